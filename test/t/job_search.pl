# Bulk calls on 200,000 jobs, whatever the planner knows of the tables, while executors and claimants go on with theirs. The few jobs of a worker
# are found among these without a look at all.
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

# Few jobs among many newer ones: in its lane, parked, claimed, waiting, and not due.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('rare', concurrency_key => 'k', concurrency_limit => 1);
SELECT count(queue_jobs.enqueue('rare', '{"k": 1}')) FROM generate_series(1, 5);
SELECT count(*) FROM queue_jobs.claim('me', '{rare}', 5, lease => '1 day');
SELECT queue_jobs.enqueue('rare', '{"k": 2}', priority => 9), queue_jobs.enqueue('rare', '{"k": 3}', delay => '1 day'),
       queue_jobs.enqueue('rare', after => ARRAY(SELECT id FROM queue_jobs.job WHERE worker = 'rare' LIMIT 1));
SELECT queue_jobs.fail(id, attempt, 'no', retry_in => '1 day') FROM queue_jobs.claim('me', '{rare}', 1, lease => '1 day');
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{rare}', 1, lease => '1 day');
SELECT count(*) FROM queue_jobs.enqueue_many('many', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 20000) n));
SQL
my $rare = $node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ' ORDER BY id DESC) FROM queue_jobs.job WHERE worker = 'rare'});
my ($found, $fetched) = split /\n/, $node->safe_psql('postgres', <<'SQL');
BEGIN;
SELECT string_agg(id::text, ' ') FROM queue_jobs.search_jobs('rare');
SELECT idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relid = 'queue_jobs.live_job'::regclass;
COMMIT;
SQL
is($found, $rare, 'few jobs among many');
cmp_ok($fetched, '<', 10_000, '… which are not all read');
my $pages = '';
my $page;
do
{
	my ($before) = $pages =~ /(\d+) $/ ? "before => $1, " : '';
	$page = $node->safe_psql('postgres', "SELECT string_agg(id::text, ' ') FROM queue_jobs.search_jobs('rare', $before max_jobs => 2)");
	$pages .= "$page " if $page ne '';
} while ($page ne '');
is($pages, "$rare ", '… in pages');
is($node->safe_psql('postgres', q{SELECT queue_jobs.cancel_jobs('rare', states => '{scheduled,available,retryable,waiting}', dry_run => true) = (SELECT count(*) FROM queue_jobs.job WHERE worker = 'rare' AND state IN ('scheduled', 'available', 'retryable', 'waiting'))}),
	't', '… and for the bulk calls');

$_->quit foreach $holder, $canceller;
$node->stop;
done_testing();
