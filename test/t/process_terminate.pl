# Interruptions of running jobs: by pg_terminate_backend() and pg_cancel_backend(), which charge nothing; by cancel()
# and discard(), which end the job; by its timeout, which is a failure.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('terminate');
define_gated($node);

my $n = 0;

sub enqueue_next
{
	my ($worker) = @_;

	$n++;
	return $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', $n))");
}

# Starts a job of that worker that goes on until its gate is opened; returns its id.
sub start_job
{
	my ($worker) = @_;

	my $id = enqueue_next($worker);
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity JOIN queue_jobs.job ON executor_pid = pid WHERE id = $id AND wait_event = 'PgSleep'");
	return $id;
}

sub pid_of
{
	my ($id) = @_;

	return $node->safe_psql('postgres', "SELECT executor_pid FROM queue_jobs.job WHERE id = $id");
}

sub open_gate
{
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
	return;
}

# Interrupted, it runs again at once, as if nothing had been.
my $id = start_job('gated');
my $bystander = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 1000}')});
wait_for_job($node, $bystander, 'executing');
for my $how (qw(pg_terminate_backend pg_cancel_backend pg_cancel_backend pg_terminate_backend))
{
	my $started = $node->safe_psql('postgres', "SELECT started_at FROM queue_jobs.job WHERE id = $id");
	is($node->safe_psql('postgres', "SELECT $how(" . pid_of($id) . ')'), 't', $how);
	wait_until($node, "SELECT started_at > '$started' AND wait_event = 'PgSleep' FROM pg_stat_activity JOIN queue_jobs.job ON executor_pid = pid WHERE id = $id");
}
open_gate();
wait_for_job($node, $id, 'completed');
is($node->safe_psql('postgres', "SELECT attempt, errors IS NULL FROM queue_jobs.job WHERE id = $id"), '1|t', 'an interruption charges nothing');
is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '1', 'and its writes are there once');

# cancel() and discard() of a running job; what it wrote goes.
for my $how (qw(cancel discard))
{
	$id = start_job('gated');
	is($node->safe_psql('postgres', "SELECT queue_jobs.$how($id)"), 't', "$how() of a running job");
	my $state = $how eq 'cancel' ? 'cancelled' : 'dead';
	wait_for_job($node, $id, $state);
	is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '0', '… undoes what it did');
	is($node->safe_psql('postgres', "SELECT finished_at > started_at, attempt, last_error FROM queue_jobs.job WHERE id = $id"),
		't|1|', '… and it has not failed');
	is($node->safe_psql('postgres', "SELECT queue_jobs.$how($id)"), 'f', '… once');
	open_gate();
	is($node->safe_psql('postgres', "SELECT queue_jobs.retry($id)"), 't', '… and it can be retried');
	wait_for_job($node, $id, 'completed');
}

# In a transaction: when it commits, not before, and not at all if it is rolled back.
$id = start_job('gated');
my $session = in_background($node);
is($session->query("BEGIN; SELECT queue_jobs.cancel($id)"), 't', 'cancel() in a transaction');
$session->query('ROLLBACK');
is($session->query("BEGIN; SAVEPOINT s; SELECT queue_jobs.cancel($id)"), 't', 'cancel() in a savepoint');
$session->query('ROLLBACK TO s; COMMIT');
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $id"), 'executing', '… rolled back');
is($session->query("BEGIN; SELECT queue_jobs.cancel($id)"), 't', 'cancel()');
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $id"), 'executing', '… not committed');
open_gate();
wait_for_job($node, $id, 'completed');
$session->query('COMMIT');
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $id"), 'completed', '… committed too late');

# A run that has failed, and is about to be written as such: the function that says when to try again waits for us.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$;
CREATE FUNCTION waits(failures int) RETURNS interval LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock(4); RETURN '1 hour'; END$$;
SELECT queue_jobs.define_worker('fails', 'public.fails', lock_timeout => '1 min', retry_backoff => 'public.waits');
SQL
for my $how (qw(cancel discard))
{
	$session->query('BEGIN; SELECT pg_advisory_xact_lock(4)');
	$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('fails')});
	wait_until($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
	is($node->safe_psql('postgres', "SELECT queue_jobs.$how($id)"), 't', "$how() of a run whose failure is being written");
	$session->query('COMMIT');
	wait_for_job($node, $id, $how eq 'cancel' ? 'cancelled' : 'dead');
}

# A job that a rolled back cancel() held, when executors passed it by, runs.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('quick')});
my ($first, $second) = split /\n/, $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2000}') FROM generate_series(1, 2)});
$session->query("BEGIN; SELECT queue_jobs.cancel($first)");
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
wait_for_job($node, $second, 'completed');
$session->query('ROLLBACK');
wait_for_job($node, $first, 'completed');
pass('a job passed by while a cancel() had it, which was rolled back, runs');

# Timeouts. (A sequence tells of a process what the rollback of its transaction does not take back.)
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE stubborn_pid;
CREATE FUNCTION stubborn(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM setval('public.stubborn_pid', pg_backend_pid());
	INSERT INTO ran (n, attempt) SELECT stubborn.n, attempt FROM queue_jobs.current_job();
	LOOP
		BEGIN
			PERFORM pg_sleep(60);
		EXCEPTION WHEN query_canceled THEN
			INSERT INTO ran (n, attempt) SELECT stubborn.n, attempt FROM queue_jobs.current_job();
		END;
	END LOOP;
END
$$;
SELECT queue_jobs.define_worker('slow', 'public.gated', timeout => '200 ms', max_retries => 0);
SELECT queue_jobs.define_worker('stubborn', 'public.stubborn', timeout => '3 s', max_retries => 0);
SQL
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('slow', '{"n": 3000}')});
wait_for_job($node, $id, 'dead');
is( $node->safe_psql('postgres', "SELECT attempt, last_error ~ 'timeout', finished_at - started_at >= '200 ms' FROM queue_jobs.job WHERE id = $id"),
	'1|t|t', 'a run longer than its timeout has failed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ran WHERE n = 3000'), '0', '… and left nothing');

$id = enqueue_next('stubborn');
wait_for_job($node, $id, 'dead');
my $pid = $node->safe_psql('postgres', 'SELECT last_value FROM stubborn_pid WHERE is_called');
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
is($node->safe_psql('postgres', "SELECT attempt FROM queue_jobs.job WHERE id = $id"), '1', 'one that catches its cancellation is stopped, with its process');
is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '0', '… and left nothing');
isnt($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $bystander"), 'retryable', 'no other job is charged');

# Catches a cancel() likewise: ended at the next one, or at its timeout.
$id = enqueue_next('stubborn');
wait_until($node, "SELECT last_value <> $pid FROM stubborn_pid");
$node->safe_psql('postgres', "SELECT queue_jobs.cancel($id)");
wait_until($node, "SELECT state IN ('cancelled', 'dead') FROM queue_jobs.job WHERE id = $id");
pass('one that catches cancel() ends');

# A timeout does not hit the next job in the same executor, which goes on when that time is over. (On a busy machine it may
# be over in the quick ones, too: then they run again.)
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION at_once(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '0'$$;
CREATE FUNCTION lasting(n int) RETURNS void LANGUAGE sql AS $$SELECT pg_sleep(0.3)$$;
SELECT queue_jobs.define_worker('brief', 'public.quick', timeout => '200 ms', retry_backoff => 'public.at_once');
SELECT queue_jobs.define_worker('lasting', 'public.lasting', queue => 'brief', max_retries => 0);
SELECT queue_jobs.enqueue(CASE WHEN n % 25 = 0 THEN 'lasting' ELSE 'brief' END, '{"n": 4000}') FROM generate_series(1, 500) n;
SQL
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker IN ('brief', 'lasting') AND state NOT IN ('completed', 'dead')});
is($node->safe_psql('postgres', q{SELECT worker, state, count(*) FROM queue_jobs.job WHERE worker IN ('brief', 'lasting') GROUP BY 1, 2 ORDER BY 1}),
	"brief|completed|480\nlasting|completed|20", 'quick jobs with a timeout, and others after them');

# A procedure's job is a row with a lease, which an interruption leaves. It has been started in time, if it expires; and waits, if its worker
# is disabled, as any other does.
define_gated_procedure($node);
for my $end ('runs again', 'is removed')
{
	$n++;
	$id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $n), expires_in => '1 min')");
	wait_until($node, "SELECT count(*) = 1 FROM ran WHERE n = $n");    # it is shown as executing before its lease is committed
	is($node->safe_psql('postgres', "SELECT expires_at IS NULL FROM queue_jobs.job WHERE id = $id"), 't', 'a procedure that was started does not expire');
	my $executor = pid_of($id);
	$node->safe_psql('postgres', q{SELECT queue_jobs.disable_worker('gated procedure')});
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($executor)");
	wait_for_job($node, $id, 'available');
	is($node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('gated procedure')}), '1', '… interrupted, it can be removed') if $end eq 'is removed';
	open_gate();
	$node->safe_psql('postgres', q{SELECT queue_jobs.enable_worker('gated procedure')});
	wait_for_job($node, $id, 'completed') if $end eq 'runs again';
}
$n++;
$id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $n))");
wait_until($node, "SELECT count(*) = 1 FROM ran WHERE n = $n");
is($node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('gated procedure')}), '0', '… running, it cannot');
open_gate();
wait_for_job($node, $id, 'completed');

# The other processes may be terminated, too.
wait_for_job($node, $bystander, 'executing');
for my $process ('launcher', 'scheduler')
{
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 5000}', delay => '1 hour')});
	wait_until($node, "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'queue_jobs $process'");
	$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 5000}', delay => '200 ms')});
	wait_for_job($node, $id, 'completed');
	pass("$process terminated: a future job runs");
}
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (1000)');
wait_for_job($node, $bystander, 'completed');
is($node->safe_psql('postgres', "SELECT attempt FROM queue_jobs.job WHERE id = $bystander"), '1', 'the job that ran all the while was not disturbed');

$session->quit;
$node->stop;
done_testing();
