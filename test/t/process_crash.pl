# Processes that die by kill -9, which makes the server start again: jobs run all the same, exactly once; the job that
# did it is charged, no other; after three such ends it is dead.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('crash', conf => "restart_after_crash = on\nlog_min_messages = log\nqueue_jobs.idle_timeout = '1h'");
define_gated($node);

sub running_pid
{
	my ($id) = @_;

	wait_for_job($node, $id, 'executing');
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity JOIN queue_jobs.job ON executor_pid = pid WHERE id = $id AND wait_event = 'PgSleep'");
	return $node->safe_psql('postgres', "SELECT executor_pid FROM queue_jobs.job WHERE id = $id");
}

# By a postmaster that has seen it: then the old shared memory is gone.
sub wait_for_crashes
{
	my ($count) = @_;

	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until (log_count($node, 'all server processes terminated; reinitializing') >= $count)
	{
		die 'the server has not noticed the crash' if time > $end;
		select undef, undef, undef, 0.02;
	}
	wait_until($node, 'SELECT true');
	return;
}

# One executor is killed in the middle of its job; two others, and a claimant, were at work, too.
my ($killed, $other1, $other2) = split /\n/, $node->safe_psql('postgres',
	q{SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', n)) FROM generate_series(1, 3) n});
my $pid = running_pid($killed);
running_pid($_) foreach ($other1, $other2);
kill 'KILL', $pid;
wait_for_crashes(1);
wait_until($node, "SELECT errors -> 0 ->> 'sqlstate' = '57P02' FROM queue_jobs.job WHERE id = $killed");
like($node->safe_psql('postgres', "SELECT last_error FROM queue_jobs.job WHERE id = $killed"),
	qr/crash/, 'the job whose executor was killed is charged an attempt, and says why');
ok( $node->safe_psql('postgres', "SELECT (errors->0->>'started_at')::timestamptz <= (errors->0->>'failed_at')::timestamptz
		FROM queue_jobs.job WHERE id = $killed") ne 'f',
	'its times are not absurd');
$node->safe_psql('postgres', 'INSERT INTO gate SELECT generate_series(1, 3)');
# (It may be due by now.)
$node->safe_psql('postgres', "SELECT queue_jobs.retry($killed)");
wait_for_job($node, $_, 'completed') foreach ($killed, $other1, $other2);
is($node->safe_psql('postgres', 'SELECT n, count(*), max(attempt) FROM ran GROUP BY n ORDER BY n'),
	"1|1|2\n2|1|1\n3|1|1", 'its writes are there exactly once; the others ran again without a charge');
is( $node->safe_psql('postgres', "SELECT id, attempt, jsonb_array_length(coalesce(errors, '[]')) FROM queue_jobs.job ORDER BY id"),
	"$killed|2|1\n$other1|1|0\n$other2|1|0", 'only the one has an error');

# An executor between two jobs, or idle: no job is charged.
wait_until($node, 'SELECT count(*) = 0 FROM queue_jobs.running_jobs()');
my ($idle) = executor_pids($node);
kill 'KILL', $idle;
wait_for_crashes(2);
my $next = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 10}')});
wait_for_job($node, $next, 'completed');
is($node->safe_psql('postgres', 'SELECT sum(attempt) FROM queue_jobs.job'), '5', 'an idle executor killed: no job is charged');

# A backend killed in the middle of a transaction that enqueued, and of one that claimed.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside'); SELECT queue_jobs.enqueue('outside')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 11}')});
my $enqueuer = in_background($node);
$enqueuer->query(q{BEGIN; SELECT queue_jobs.enqueue('quick', '{"n": 12}')});
my $claimant = in_background($node);
is($claimant->query(q{BEGIN; SELECT attempt FROM queue_jobs.claim('c')}), '1', 'a claim');
$pid = $enqueuer->pid;
kill 'KILL', $pid;
wait_for_crashes(3);
$_->quit foreach ($enqueuer, $claimant);
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE args @> '{"n": 12}'}), '0', 'an enqueuer killed: its job never was');
is($node->safe_psql('postgres', q{SELECT attempt FROM queue_jobs.claim('d')}), '1', 'a claim that was not committed never was');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (11)');
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 11');
is($node->safe_psql('postgres', q{SELECT attempt FROM queue_jobs.job WHERE args @> '{"n": 11}'}), '1', 'what ran beside it is not charged');

# A claim that was committed outlives the crash, with its lease.
$enqueuer = in_background($node);
$pid = $enqueuer->pid;
kill 'KILL', $pid;
wait_for_crashes(4);
$enqueuer->quit;
is($node->safe_psql('postgres', q{SELECT state, attempt, claimant FROM queue_jobs.job WHERE worker = 'outside'}),
	'executing|1|d', 'a claim that was committed is kept');

# Processes that do not listen when the server goes down, and are killed five seconds later: what they were at is not charged.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('claimed'); SELECT queue_jobs.enqueue('claimed')});
my ($guilty, $innocent) = split /\n/, $node->safe_psql('postgres',
	q{SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', n)) FROM generate_series(13, 14) n});
my @pids = map { running_pid($_) } $guilty, $innocent;
$claimant = in_background($node);
is($claimant->query(q{BEGIN; SELECT count(*) FROM queue_jobs.claim('e', '{claimed}')}), '1', 'a claim');
push @pids, $claimant->pid;
kill 'STOP', @pids[ 1, 2 ];
kill 'KILL', $pids[0];
wait_for_crashes(5);
$claimant->quit;
wait_until($node, "SELECT errors -> 0 ->> 'sqlstate' = '57P02' FROM queue_jobs.job WHERE id = $guilty");
pass('the guilty job is charged');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (13), (14)');
$node->safe_psql('postgres', "SELECT queue_jobs.retry($guilty)");
wait_for_job($node, $_, 'completed') foreach $guilty, $innocent;
is($node->safe_psql('postgres', "SELECT attempt, errors FROM queue_jobs.job WHERE id = $innocent"), '1|', 'the innocent one is not');
is($node->safe_psql('postgres', q{SELECT attempt, errors FROM queue_jobs.claim('e', '{claimed}')}), '1|', 'nor is the one that was claimed');

# A job that kills its own process at once, each time it runs. It is retried by Sidekiq's formula: its worker's function is not called.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION poison() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -KILL ' || pg_backend_pid());
	PERFORM pg_sleep(60);
END
$$;
CREATE FUNCTION never(int) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 day'$$;
SELECT queue_jobs.define_worker('poison', 'public.poison', retry_backoff => 'public.never');
SQL
# Its crash may come before the session that starts it has got its answer; psql() dies then.
my $poison = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('poison') FROM queue_jobs.pause('poison')});
eval { $node->psql('postgres', q{SELECT queue_jobs.resume('poison')}) };
wait_for_job($node, $poison, 'retryable');
is($node->safe_psql('postgres', "SELECT run_at - (errors -> -1 ->> 'failed_at')::timestamptz BETWEEN '14 s' AND '25 s' FROM queue_jobs.job WHERE id = $poison"),
	't', 'after a crash the delay is by the formula');
wait_for_job($node, $poison, 'dead', retry_crashed => 1);
is($node->safe_psql('postgres', "SELECT attempt FROM queue_jobs.job WHERE id = $poison"), '3', 'a poison job is dead after three crashes');
wait_for_crashes(8);
is(log_count($node, 'all server processes terminated; reinitializing'), 8, 'and there were no more than those');
$next = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 20}')});
wait_for_job($node, $next, 'completed');
pass('the queue is alive');

# Retried by hand, it has its three lives again, no more.
eval { $node->psql('postgres', "SELECT queue_jobs.retry($poison)") };
wait_for_crashes(9);
pass('retried');
wait_for_job($node, $poison, 'dead', retry_crashed => 1);
cmp_ok(log_count($node, 'all server processes terminated; reinitializing'), '<=', 11, 'and dead again');

$node->stop;
done_testing();
