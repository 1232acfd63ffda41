# What is done to all jobs of a worker or queue does not depend on what the planner knows of the tables: a queue that was empty at the last ANALYZE may
# have any number of jobs by now.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $jobs = 20000;
my $node = new_node('bulk', conf => "autovacuum = off\nstatement_timeout = '150s'");

# Statistics say that the large table has one row, as after jobs of another worker were removed.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('gone'), queue_jobs.define_worker('keyed', idempotent => true), queue_jobs.define_worker('last', queue => 'last', max_running_jobs => 20);
SELECT count(*) FROM queue_jobs.enqueue_many('gone', ARRAY(SELECT jsonb_build_object('n', n, 'padding', repeat('x', 200)) FROM generate_series(1, 100000) n));
SELECT queue_jobs.enqueue('last');
SELECT queue_jobs.remove_jobs('gone');
VACUUM (ANALYZE, TRUNCATE off) queue_jobs.live_job;
ANALYZE queue_jobs.lane, queue_jobs.claimed_slot, queue_jobs.claimant;
SQL
is($node->safe_psql('postgres', q{SELECT reltuples, relpages > 1000 FROM pg_class WHERE oid = 'queue_jobs.live_job'::regclass}), '1|t', 'the planner takes the table for empty');

$node->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.enqueue_many('keyed', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, $jobs) n))");
is($node->safe_psql('postgres', q{SELECT queue_jobs.migrate_queue('keyed', 'elsewhere')}), $jobs, 'migrate_queue()');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('claimant', '{last}')}), '1', 'a job is claimed, with a slot of its limit');
is($node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('keyed')}), $jobs, 'remove_jobs()');
is($node->safe_psql('postgres', q{SELECT worker, state FROM queue_jobs.job}), 'last|executing', 'and all others are left');

# Slots of claims that are gone are found one by one.
$node->safe_psql('postgres', "INSERT INTO queue_jobs.claimed_slot SELECT n, n, 1 FROM generate_series(1, $jobs) n");
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('soon', 'pg_catalog.pg_backend_pid', keep_completed => '1 s'); SELECT queue_jobs.enqueue('soon', delay => '1 s')});
wait_until($node, 'SELECT count(*) = 1 FROM queue_jobs.claimed_slot');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claimed_slot s JOIN queue_jobs.job j ON j.id = s.job}), '1', 'void slots go, the one in use stays');

$node->stop;
done_testing();
