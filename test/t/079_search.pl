# Bulk calls on 200,000 jobs, whatever the planner knows of the tables, while executors and claimants go on with theirs.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $jobs = 200_000;
my $node = new_node('search', conf => "autovacuum = off\nstatement_timeout = '170s'\nfsync = off");

define_gated($node);
$node->safe_psql('postgres', <<"SQL");
ANALYZE queue_jobs.live_job, queue_jobs.lane, queue_jobs.finished_job, queue_jobs.dead_job;
SELECT queue_jobs.define_worker('many', keep_completed => '10 days'), queue_jobs.define_worker('few');
SELECT count(*) FROM queue_jobs.enqueue_many('many', ARRAY(SELECT jsonb_build_object('n', n, 'even', n % 2 = 0) FROM generate_series(1, $jobs) n));
SELECT queue_jobs.enqueue('few', '{"n": 1}');
SQL

# What another transaction has, it keeps: nothing waits for it.
my $holder = in_background($node);
$holder->query(q{BEGIN});
is($holder->query(q{SELECT count(*) FROM queue_jobs.claim('holder', '{many}', 10)}), '10', 'a transaction has claimed ten');

is($node->safe_psql('postgres', q{SELECT queue_jobs.cancel_jobs('many', args => '{"even": true}', dry_run => true)}), $jobs / 2, 'a dry run counts');
my $canceller = in_background($node);
$canceller->query('BEGIN');
is($canceller->query(q{SELECT queue_jobs.cancel_jobs('many')}), $jobs - 10, 'cancel_jobs() passes by what another transaction has');

# Before it has committed, others go on.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
wait_until($node, q{SELECT count(*) = 1 FROM ran WHERE n = 1});
pass('an executor goes on meanwhile');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('other')}), '1', 'so does a claimant');
$canceller->query('COMMIT');
$holder->query('ROLLBACK');

is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.search_jobs('many', states => '{available}')}), '10', 'the ten are left');
is($node->safe_psql('postgres', q{SELECT queue_jobs.retry_jobs('many')}), $jobs - 10, 'retry_jobs()');
is($node->safe_psql('postgres', q{SELECT queue_jobs.discard_jobs('many', max_jobs => 150000)}), 150_000, 'discard_jobs(), so many');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.search_jobs('many', states => '{dead}', args => '{"n": 200000}')}), '1', 'the newest first');
is($node->safe_psql('postgres', q{SELECT queue_jobs.forget_jobs('many', states => '{dead}')}), 150_000, 'forget_jobs()');
is($node->safe_psql('postgres', q{SELECT count(*), min(state) FROM queue_jobs.job WHERE worker = 'many'}), ($jobs - 150_000) . '|available', 'and the others are there');

$_->quit foreach $holder, $canceller;
$node->stop;
done_testing();
