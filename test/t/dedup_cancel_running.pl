# if_deduplicated => cancel_running, with executors: the run under way is interrupted when the enqueuing transaction commits, and
# the new job runs. Claimants are in test/isolation/specs/cancel_running.spec.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('cancel_running');
define_gated($node);
define_gated_procedure($node);
my $option = "deduplicate => 'until_executed', idempotent => true, if_deduplicated => 'cancel_running', dedup_args => '{n}'";
$node->safe_psql('postgres', "SELECT queue_jobs.change_worker('gated', $option), queue_jobs.change_worker('gated procedure', $option)");

my $n = 0;

# Enqueues the next n, or the same, and returns the job's id.
sub enqueue
{
	my ($worker) = @_;

	return $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}')");
}

# Starts a run for a new key that does not end by itself, and returns its job.
sub start_run
{
	my ($worker) = @_;

	$n++;
	my $job = enqueue($worker);
	wait_for_job($node, $job, 'executing');
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity a JOIN queue_jobs.job j ON j.executor_pid = a.pid
		WHERE j.id = $job AND a.wait_event = 'PgSleep'");
	return $job;
}

sub open_gate
{
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
	return;
}

foreach my $worker ('gated', 'gated procedure')
{
	my $old = start_run($worker);
	my $new = enqueue($worker);
	isnt($new, $old, "$worker: a new job");
	wait_for_job($node, $old, 'cancelled');
	wait_for_job($node, $new, 'executing');

	# Not before the commit, and not if that does not come, or the savepoint is rolled back.
	my $session = $node->background_psql('postgres');
	$session->query_safe("BEGIN; SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}')");
	is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $new"),
		'executing', "$worker: runs on until the commit");
	$session->query_safe('ROLLBACK');
	$session->query_safe("BEGIN; SAVEPOINT s; SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}'); ROLLBACK TO s; COMMIT");
	# an interrupt that had been sent would have ended it before the one that comes now
	my ($last) = $session->query_safe("BEGIN; SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}')") =~ /(\d+)/;
	is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $new"),
		'executing', "$worker: a rollback, also to a savepoint, asks for nothing");

	# The run has just ended when the transaction commits.
	open_gate();
	wait_for_job($node, $new, 'completed');
	$session->query_safe('COMMIT');
	wait_for_job($node, $last, 'completed');
	is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $new"),
		'completed', "$worker: a run that has ended stays so");
	$session->quit;

	# Two transactions ask for the end of the same run, and roll back or commit in each order.
	foreach my $order (['COMMIT', 'COMMIT'], ['COMMIT', 'ROLLBACK'], ['ROLLBACK', 'COMMIT'])
	{
		my $run = start_run($worker);
		my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
		my @jobs = map { ($_->query_safe("BEGIN; SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}')") =~ /(\d+)/)[0] } @sessions;
		$sessions[$_]->query_safe($order->[$_]) foreach 0, 1;
		wait_for_job($node, $run, 'cancelled');
		open_gate();
		wait_until($node, "SELECT count(*) = 0 FROM queue_jobs.job WHERE args = '{\"n\": $n}' AND state IN ('available', 'executing')");
		is($node->safe_psql('postgres', "SELECT count(*) > 0 FROM queue_jobs.job WHERE id IN ($jobs[0], $jobs[1]) AND state = 'completed'"),
			't', "$worker: one of the new jobs has run (@$order)");
		$_->quit foreach @sessions;
	}

	# A prepared transaction could not ask.
	start_run($worker);
	my (undef, undef, $error) = $node->psql('postgres',
		"BEGIN; SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}'); PREPARE TRANSACTION 'p'");
	like($error, qr/cannot PREPARE a transaction that has cancelled/, "$worker: PREPARE is refused");
	open_gate();
}

# With if_waiting: the run ends, and the job that waits for that has the args of the latest call.
# With if_waiting: the run ends, and the job that has been added for it is changed by the calls after.
my $old = start_run('gated');
my $session = $node->background_psql('postgres');
my $call = "SELECT queue_jobs.enqueue('gated', '{\"n\": $n}', if_waiting => 'replace', priority => ";
my ($first) = $session->query_safe("BEGIN; $call 1)") =~ /(\d+)/;
my ($second) = $session->query_safe("$call 2)") =~ /(\d+)/;
is($second, $first, 'replace changes the new job');
$session->query_safe('COMMIT');
$session->quit;
wait_for_job($node, $old, 'cancelled');
wait_for_job($node, $first, 'executing');
is($node->safe_psql('postgres', "SELECT priority FROM queue_jobs.job WHERE id = $first"), '2', 'which runs');
open_gate();
wait_for_job($node, $first, 'completed');

# With drop, a call with if_waiting finds a function's run, too.
$node->safe_psql('postgres', "SELECT queue_jobs.change_worker('gated', if_deduplicated => 'drop')");
$old = start_run('gated');
is($node->safe_psql('postgres', "SELECT queue_jobs.try_enqueue('gated', '{\"n\": $n}', if_waiting => 'replace') IS NULL"),
	't', 'a call with if_waiting is dropped while a function runs');
open_gate();
wait_for_job($node, $old, 'completed');

# A handler that enqueues the key of its own job goes on: what it enqueues would end with it.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION again(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ran (n, attempt) VALUES (again.n, 0);
	IF (SELECT count(*) < 3 FROM ran WHERE ran.n = again.n) THEN
		PERFORM queue_jobs.enqueue('again', jsonb_build_object('n', again.n));
	END IF;
END
$$;
CREATE PROCEDURE again_procedure(n int) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM again(n);
	COMMIT;
	PERFORM pg_sleep(0);
	INSERT INTO ran (n, attempt) VALUES (again_procedure.n, 1);
END
$$;
SQL
foreach my $handler ('again', 'again_procedure')
{
	$n++;
	$node->safe_psql('postgres', "SELECT queue_jobs.define_worker('again', 'public.$handler', deduplicate => 'until_executed', idempotent => true, if_deduplicated => 'cancel_running')");
	enqueue('again');
	my $runs = $handler eq 'again' ? 3 : 2;
	wait_until($node, "SELECT count(*) = $runs AND count(*) FILTER (WHERE state <> 'completed') = 0 FROM queue_jobs.job WHERE worker = 'again' AND args = '{\"n\": $n}'");
	pass("$handler: its own key runs again");
}

$node->stop;
done_testing();
