# Named points of the source (src/base/test_point.h) at which a process is killed, ended or fails: afterwards everything that was asked for
# has been done, a function's work exactly once. And races that are too short to be met otherwise.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my ($node, $points);

sub use_node
{
	my ($name, $conf) = @_;

	$node = new_node($name, conf => ($conf // '') . "\nqueue_jobs.idle_timeout = '1h'");
	$points = use_points($node);
	return;
}

use_node('points', "restart_after_crash = on\nqueue_jobs.max_executors = 2");

# ---- an interruption between the claim and the handler ----

define_gated($node);
define_gated_procedure($node);
my $n = 0;

# A job that is stopped by the statement while its executor is at that point, where it listens (pause) or not (wait).
sub interrupt_at
{
	my ($worker, $point, $action, $statement) = @_;

	$n++;
	arm($point, $action);
	my $id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', $n))");
	wait_at($point);
	my $said = $node->safe_psql('postgres', $statement =~ s/ID/$id/r);
	go_on($point);
	return ($id, $said);
}

foreach my $worker ('gated', 'gated procedure')
{
	foreach my $point ('job_taken', 'run_begins')
	{
		foreach my $action ('wait', 'pause')
		{
			my ($id, $said) = interrupt_at($worker, $point, $action, 'SELECT queue_jobs.cancel(ID)');
			is($said, 't', "$worker: cancel() at $point ($action)");
			wait_for_job($node, $id, 'cancelled');

			($id, $said) = interrupt_at($worker, $point, $action,
				q{SELECT pg_cancel_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = ID});
			like($said, qr/t/, "$worker: pg_cancel_backend() at $point ($action)");
			$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
			wait_for_job($node, $id, 'completed');
			is($node->safe_psql('postgres', "SELECT attempt, errors FROM queue_jobs.job WHERE id = $id"), '1|', 'runs again, and nothing is charged');
		}
	}
}

# A worker that is defined anew, or dropped, between the claim and the first look at its record: the condition is in its row, so that the job starts
# again with what is there, and nothing is charged.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE recorded (id int PRIMARY KEY, status text DEFAULT 'pending');
INSERT INTO recorded VALUES (1);
CREATE FUNCTION with_record(id int) RETURNS text LANGUAGE sql AS $$SELECT 'ran'$$;
CREATE FUNCTION define_recorded(pending text) RETURNS void LANGUAGE sql AS $$
	SELECT queue_jobs.define_worker('recorded', 'public.with_record', record => 'recorded', record_key => 'id', pending => pending);
$$;
SELECT define_recorded($$status = 'pending'$$);
SQL
foreach my $change ([ q{SELECT define_recorded($$status = 'other'$$)}, '1|"skipped"' ], [ q{SELECT queue_jobs.drop_worker('recorded')}, '1|"ran"' ])
{
	my ($statement, $expected) = @$change;

	arm('run_begins', 'wait');
	my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('recorded', '{"id": 1}')});
	wait_at('run_begins');
	$node->safe_psql('postgres', $statement);
	go_on('run_begins');
	wait_for_job($node, $id, $statement =~ /drop/ ? 'available' : 'completed');
	$node->safe_psql('postgres', q{SELECT define_recorded($$status = 'pending'$$)});
	wait_for_job($node, $id, 'completed');
	is($node->safe_psql('postgres', "SELECT attempt, result FROM queue_jobs.job WHERE id = $id"), $expected, "a job that was claimed before: $statement");
}

# A claim passes by a job that remove_jobs() has deleted, and remove_jobs() fails then.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('removed'); SELECT queue_jobs.enqueue('removed')});
arm('job_removed', 'pause');
my $remover = in_background($node);
my $remover_pid = $remover->pid;
$remover->send(q{SELECT queue_jobs.remove_jobs('removed')});
wait_at('job_removed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('claimant', '{removed}')}), '0', 'a job that is being removed is not claimed');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($remover_pid)");
go_on('job_removed');
$remover->result;
like($remover->error, qr/57014/, 'remove_jobs() is cancelled');
is($node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('claimant', '{removed}')}), '', 'then a claim finds the job');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'removed' AND state = 'completed'}), '1', 'and it ends as others do');
$remover->quit;

# A job that falls due is passed by if a session locks its row after the scheduler has looked. A server with assertions ends a process that would update it then.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('falls due')});
arm('row_in_reach', 'wait');
my $falls_due = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('falls due', delay => '10 ms')});
wait_at('row_in_reach');
my $row_locker = in_background($node);
$row_locker->query('BEGIN');
is($row_locker->query("SELECT queue_jobs.cancel($falls_due)"), 't', 'a job is cancelled while it falls due');
go_on('row_in_reach');
my $due_beside = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1000}', delay => '10 ms')});
wait_for_job($node, $due_beside, 'completed');
$row_locker->query('COMMIT');
wait_for_job($node, $falls_due, 'cancelled');
$row_locker->quit;

# A claim that has seen a lease run out does not take the job once a heartbeat has said that it goes on.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('beats')});
my $beats = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('beats')});
$node->safe_psql('postgres', q{SELECT id FROM queue_jobs.claim('beating', '{beats}', lease => '4 s')});
wait_until($node, "SELECT lease_until < clock_timestamp() FROM queue_jobs.job WHERE id = $beats");
my $taker = in_background($node);
arm('row_in_reach', 'wait');
$taker->send(q{SELECT count(*) FROM queue_jobs.claim('another', '{beats}')});
wait_at('row_in_reach');
my ($is_its, $since) = split /\|/, $node->safe_psql('postgres', q{SELECT count(*), clock_timestamp() FROM queue_jobs.heartbeat('beating')});
go_on('row_in_reach');
my $taken = $taker->result;
is("$is_its " . $node->safe_psql('postgres', "SELECT coalesce(NOT (claimant = 'another' AND started_at < '$since'::timestamptz + interval '4 s'), true) FROM queue_jobs.job WHERE id = $beats"),
	'1 t', "a job that a heartbeat has returned is no other claim's before its lease ends");
$taker->quit;
$node->safe_psql('postgres', "SELECT queue_jobs.cancel($beats)");

# Between the rollback of its transaction and the one that writes its end, another executor passes the job by.
arm('run_undone', 'wait');
my ($undone) = interrupt_at('gated', 'run_begins', 'pause', 'SELECT queue_jobs.cancel(ID)');
wait_at('run_undone');
my $beside = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 999}')});
wait_for_job($node, $beside, 'completed');
is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '0', 'a job whose run was undone is no other executor\'s to run');
go_on('run_undone');
wait_for_job($node, $undone, 'cancelled');

# Nor does it stand for another: it is about to end.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('keyed', 'public.gated', idempotent => true)});
arm('run_undone', 'wait');
($undone) = interrupt_at('keyed', 'run_begins', 'pause', 'SELECT queue_jobs.cancel(ID)');
wait_at('run_undone');
my $twin = $node->safe_psql('postgres', "SELECT queue_jobs.try_enqueue('keyed', jsonb_build_object('n', $n))");
isnt($twin, '', 'a job whose run was undone stands for no other');
go_on('run_undone');
wait_for_job($node, $undone, 'cancelled');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
wait_for_job($node, $twin, 'completed');

# Nor does a later job of its key overtake it, however often its lane is looked through meanwhile.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('in order', 'public.quick', concurrency_key => 'n', concurrency_limit => 1)});
arm('run_undone', 'wait');
my ($first) = interrupt_at('in order', 'run_begins', 'pause',
	q{SELECT pg_cancel_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = ID});
wait_at('run_undone');
my $second = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('in order', jsonb_build_object('n', $n))");
foreach my $other (2001 .. 2004)
{
	my $id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('in order', jsonb_build_object('n', $other))");
	wait_for_job($node, $id, 'completed');
}
is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '0', 'nor does a later one of its key run before it');
go_on('run_undone');
wait_for_job($node, $_, 'completed') foreach $first, $second;
is($node->safe_psql('postgres', "SELECT finished_at < (SELECT finished_at FROM queue_jobs.job WHERE id = $second) FROM queue_jobs.job WHERE id = $first"),
	't', 'both run, in order');

# cancel() of a job that an executor is about to take, and does not get, for the row is cancel()'s.
# (The other executor has a job of its own: it would take this one.)
my $canceller = in_background($node);
$n++;
my $busy = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', $n))");
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $busy");
$n++;
arm('job_shown', 'wait');
my $shown = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', $n))");
wait_at('job_shown');
is($canceller->query("BEGIN; SELECT queue_jobs.cancel($shown)"), 't', 'cancel() of a job that an executor shows');
go_on('job_shown');
wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $shown)");
$canceller->query('COMMIT');
$canceller->quit;
wait_for_job($node, $shown, 'cancelled');
is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = $n"), '0', 'it never ran');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n - 1)");
wait_for_job($node, $busy, 'completed');

# A run fails before the cancel() commits: its job, put back, is cancelled with it. Or because of it, by an error of its own.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION gated_failure(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n = gated_failure.n) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
	RAISE EXCEPTION 'the gate is open';
EXCEPTION WHEN query_canceled THEN
	RAISE EXCEPTION 'it was not to be';
END
$$;
SELECT queue_jobs.define_worker('gated failure', 'public.gated_failure');
SQL
foreach my $end ('cancel', 'discard')
{
	my $ended = $end eq 'cancel' ? 'cancelled' : 'dead';

	$n++;
	$canceller = in_background($node);
	my $failing = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated failure', jsonb_build_object('n', $n))");
	wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $failing");
	is($canceller->query("BEGIN; SELECT queue_jobs.$end($failing)"), 't', "$end() of a job that fails");
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
	wait_for_job($node, $failing, 'retryable');
	$canceller->query('COMMIT');
	$canceller->quit;
	is($node->safe_psql('postgres', "SELECT state, last_error FROM queue_jobs.job WHERE id = $failing"), "$ended|the gate is open",
		'…before that commits');

	$n++;
	$failing = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated failure', jsonb_build_object('n', $n))");
	wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $failing");
	$node->safe_psql('postgres', "SELECT queue_jobs.$end($failing)");
	wait_for_job($node, $failing, $ended);
	pass("…or because of it");
}

# The same between the last look of cancel() at the job and the end of its commit: the executor waits for that.
$n++;
my $failing = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated failure', jsonb_build_object('n', $n))");
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $failing");
$canceller = in_background($node);
arm('publishes', 'wait');
$canceller->send("SELECT queue_jobs.cancel($failing)");
wait_at('publishes');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
wait_until($node, "SELECT errors IS NOT NULL FROM queue_jobs.live_job WHERE id = $failing");
go_on('publishes');
is($canceller->result, 't', 'cancel() of a job that is put back while that commits');
wait_for_job($node, $failing, 'cancelled');
$canceller->quit;

# An executor that is terminated before it can be interrupted ends the job as it goes.
foreach my $worker ('gated', 'gated procedure')
{
	$n++;
	arm('run_begins', 'wait');
	my $asked = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', $n))");
	wait_at('run_begins');
	is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($asked)"), 't', "a job of $worker is cancelled");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = $asked");
	go_on('run_begins');
	wait_until($node, "SELECT state IN ('cancelled', 'executing', 'completed') FROM queue_jobs.job j WHERE id = $asked AND (state <> 'executing' OR EXISTS
		(SELECT FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $asked AND wait_event = 'PgSleep'))");
	is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $asked"), 'cancelled', 'though its executor is terminated first');
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
}

# The same of one that is killed: the server starts again, and knows of the request.
foreach my $worker ('gated', 'gated procedure')
{
	$n++;
	arm('run_begins', 'wait');
	my $asked = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', $n))");
	wait_at('run_begins');
	is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($asked)"), 't', "a job of $worker is cancelled");
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM queue_jobs.running_jobs() WHERE job_id = $asked");
	kill 'KILL', $pid or die "$pid: $!";
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid) AND (state <> 'executing' OR EXISTS
		(SELECT FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $asked AND wait_event = 'PgSleep'))
		FROM queue_jobs.job WHERE id = $asked AND state <> 'available'");
	go_on('run_begins');
	is($node->safe_psql('postgres', "SELECT state, errors FROM queue_jobs.job WHERE id = $asked"), 'cancelled|', 'though its executor is killed first');
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
}

# The same of one that has just put the job back, and of one that is on its way out.
$n++;
arm('end_written', 'wait');
$failing = $node->safe_psql('postgres', "INSERT INTO gate VALUES ($n); SELECT queue_jobs.enqueue('gated failure', jsonb_build_object('n', $n))");
wait_at('end_written');
is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($failing)"), 't', 'a job is cancelled that is being put back');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = $failing");
go_on('end_written');
wait_until($node, "SELECT state IN ('cancelled', 'retryable') AND NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $failing) FROM queue_jobs.job WHERE id = $failing");
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $failing"), 'cancelled', 'though its executor is terminated then');

$n++;
my $leaving = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $n))");
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $leaving");
arm('executor_leaves', 'wait');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = $leaving");
wait_at('executor_leaves');
is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($leaving)"), 't', 'a job is cancelled whose executor is on its way out');
go_on('executor_leaves');
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $leaving"), 'cancelled', 'and has ended at once');

# A run that cannot be committed is ended, and its job put back, in a transaction of its own: who cancels it meanwhile is heeded.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE uncommitted (n int);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not to be committed'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON uncommitted DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE FUNCTION cannot_commit() RETURNS void LANGUAGE sql AS 'INSERT INTO uncommitted VALUES (1)';
CREATE FUNCTION slow_backoff(failures int) RETURNS interval LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(77);
	RETURN '1 hour';
END
$$;
SELECT queue_jobs.define_worker('cannot commit', 'public.cannot_commit', retry_backoff => 'public.slow_backoff');
SQL
$canceller = in_background($node);
$canceller->query('SELECT pg_advisory_lock(77)');
my $refused = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('cannot commit')});
wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND wait_event = 'advisory'});
is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($refused)"), 't', 'cancel() of a job whose failed run is being written');
$canceller->query('SELECT pg_advisory_unlock(77)');
$canceller->quit;
wait_for_job($node, $refused, 'cancelled');

# An interruption that comes too late for its job harms no other job.
my $quick = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1000}')});
wait_for_job($node, $quick, 'completed');
my @idle = executor_pids($node);
cmp_ok(scalar @idle, '>', 0, 'there are idle executors');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($_)") foreach @idle;
$quick = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1001}')});
wait_for_job($node, $quick, 'completed');
# Another may have been started beside them: for the job enqueued while one was held, say.
sub still_there
{
	my %there = map { $_ => 1 } executor_pids($node);

	return grep { $there{$_} } @_;
}
is_deeply([ still_there(@idle) ], \@idle, 'an idle executor is not ended by pg_cancel_backend()');
my ($overdue) = interrupt_at('quick', 'end_committed', 'wait', q{SELECT pg_cancel_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = ID});
$quick = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1002}')});
wait_for_job($node, $_, 'completed') foreach $overdue, $quick;
wait_until($node, 'SELECT count(*) = 0 FROM queue_jobs.running_jobs()');
is_deeply([ still_there(@idle) ], \@idle, 'nor one whose job has just been completed');

# ---- COMMIT PREPARED ----

# From the moment that the prepared job can be seen it stands for others of its key, although a look that did not see it has
# left a hint behind. (The session that holds a snapshot keeps the dead entries that make a hint worth while: MANY_DEAD.)
my $holder = in_background($node);
$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue_jobs.live_job');
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('hint', idempotent => true, deduplicate => 'until_executed');
DO $$ BEGIN FOR i IN 1 .. 15 LOOP PERFORM queue_jobs.enqueue('hint'); COMMIT;
	PERFORM queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', ARRAY['hint']); COMMIT; END LOOP; END $$;
BEGIN;
SELECT queue_jobs.enqueue('hint');
PREPARE TRANSACTION 'hint';
BEGIN;
SELECT queue_jobs.enqueue('hint');
ROLLBACK;
SQL
arm('prepared_ended', 'wait');
my $committer = in_background($node);
$committer->send(q{COMMIT PREPARED 'hint'});
wait_at('prepared_ended');
is( $node->safe_psql('postgres', q{SELECT count(*), (SELECT count(queue_jobs.try_enqueue('hint'))) FROM queue_jobs.job WHERE worker = 'hint' AND state = 'available'}),
	'1|0', 'a job that COMMIT PREPARED has just brought takes duplicates in');
is($node->safe_psql('postgres', q{SELECT count(queue_jobs.try_enqueue('hint'))}), '0', 'and once more');
go_on('prepared_ended');
$committer->result;

# Its session is ended in there: everything is looked at all the same.
$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.enqueue('quick', '{"n": 1002}'); PREPARE TRANSACTION 'ends'});
arm('prepared_ended', 'fatal');
$node->psql('postgres', q{COMMIT PREPARED 'ends'});
wait_until($node, 'SELECT EXISTS (SELECT FROM ran WHERE n = 1002)');
pass('jobs of COMMIT PREPARED run, even if its session ends before it returns');
$_->quit foreach ($committer, $holder);
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('hint')});

# ---- claimants who walk over the same jobs ----

# Who meets a job that another has goes on from where that one has come to, without walking over all of his.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('walked')});

sub walked
{
	my ($claimant, $max_jobs) = @_;

	return "SELECT string_agg(args::text, ' ') FROM queue_jobs.claim('$claimant', '{walked}', $max_jobs)";
}

sub enqueue_walked
{
	my ($first, $last) = @_;

	$node->safe_psql('postgres', "SELECT count(queue_jobs.enqueue('walked', to_jsonb(n))) FROM generate_series($first, $last) n");
	return;
}

my ($slow, $fast) = (in_background($node), in_background($node));
enqueue_walked(1, 40);
arm('job_claimed', 'wait');
$slow->query('BEGIN');
$slow->send(walked('slow', 10));
wait_at('job_claimed');
$fast->query('BEGIN');
is($fast->query(walked('fast', 20)), join(' ', 2 .. 21), 'jobs beside one that is being claimed');
go_on('job_claimed');
is($slow->result, join(' ', 1, 22 .. 30), 'whose claimant passes them by');
$fast->query('ROLLBACK');
is($fast->query(walked('fast', 40)), join(' ', 2 .. 21, 31 .. 40), 'undone, they are found');
$slow->query('ROLLBACK');
is($slow->query(walked('slow', 40)), join(' ', 1, 22 .. 30), 'and those of the other');

# What the claim's own transaction has enqueued is known to no other, and so it does not count as passed.
enqueue_walked(41, 42);
$slow->query(q{BEGIN; SELECT queue_jobs.enqueue('walked', '43')});
enqueue_walked(44, 60);
arm('job_claimed', 'wait');
$slow->send(walked('slow', 3));
wait_at('job_claimed');
is($fast->query(walked('fast', 15)), join(' ', 42, 44 .. 57), 'jobs beside one that another has enqueued');
go_on('job_claimed');
is($slow->result, '41 43 58', 'which that one claims');
$slow->query('COMMIT');

# A claim that fails has told how far it had come.
enqueue_walked(61, 80);
arm('lane_told', 'error');
$slow->query(walked('slow', 40));
like($slow->error, qr/test point "lane_told" was reached/, 'a claim fails');
is($fast->query(walked('fast', 40)), join(' ', 59 .. 80), 'its jobs are found');

# A migration that meets a job which another one has just moved elsewhere leaves it there, but has its row locked.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('walked', '81', queue => 'from')});
arm('job_moves', 'wait');
$slow->query('BEGIN');
$slow->send(q{SELECT queue_jobs.migrate_queue('from', 'to')});
wait_at('job_moves');
is($fast->query(q{SELECT queue_jobs.migrate_queue('from', 'elsewhere')}), '1', 'a job is moved by one of two');
go_on('job_moves');
is($slow->result, '0', 'not by the other one');
is($fast->query(q{SELECT count(*) FROM queue_jobs.claim('fast', '{elsewhere}')}), '0', 'which is in the way of claims');
$slow->query('COMMIT');
is($fast->query(q{SELECT args FROM queue_jobs.claim('fast', '{elsewhere}')}), '81', 'until it commits');
$_->quit foreach ($slow, $fast);
$node->safe_psql('postgres', q{SELECT queue_jobs.complete_many(array_agg(id), array_agg(attempt)) FROM queue_jobs.job WHERE worker = 'walked' AND state = 'executing'});

# ---- a key that a claim has for a moment ----

# A claim locks the key, and finds that its own job cannot start. Another one is refused the key meanwhile: it passes by a job that
# can start as soon as the key is given back, and no run will end and publish it.
sub keyed
{
	my ($claimant) = @_;

	return "SELECT count(*) FROM queue_jobs.claim('$claimant', '{keyed}')";
}

sub found_again
{
	my ($said) = @_;
	my $end = time + 50;    # all lanes are looked at after a minute
	my $found = 0;

	while ($found == 0 && time < $end)
	{
		$found = $node->safe_psql('postgres', q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('last', '{keyed}')});
		select undef, undef, undef, 0.1 if $found == 0;
	}
	return is($found, '1', $said);
}

$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('keyed', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.enqueue('keyed');
SQL
($slow, $fast) = (in_background($node), in_background($node));
my $locker = in_background($node);
$locker->query('BEGIN; SELECT FROM queue_jobs.live_job FOR SHARE');
arm('key_unlocked', 'wait');
$slow->send(keyed('slow'));
wait_at('key_unlocked');
$locker->query('COMMIT');
is($fast->query(keyed('fast')), '0', 'a key is locked by a claim whose job cannot be changed');
go_on('key_unlocked');
is($slow->result, '0', 'which has none');
found_again('the job that both passed by is found');

$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('keyed')});
is($slow->query(q{SELECT count(*) FROM queue_jobs.claim('slow', '{keyed}')}), '1', 'a run by a lease');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('keyed')});
arm('key_unlocked', 'wait');
$locker->send(keyed('locker'));
wait_at('key_unlocked');
arm('key_unlocked', 'wait');
go_on('key_unlocked');    # a claim tries a key twice
wait_at('key_unlocked');
$slow->query(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing'});
is($fast->query(keyed('fast')), '0', 'a key is locked by a claim that found it taken, which it is no more');
go_on('key_unlocked');
is($locker->result, '0', 'which has none');
found_again('the job that both passed by is found');
$_->quit foreach ($slow, $fast, $locker);

# ---- a batch that ends while a transaction that will fail has it locked ----

# The look passes by its row; when the lock is gone, there is another look. (News is taken in order: the second batch ends after the first was passed by.)
$node->safe_psql('postgres', 'CREATE ROLE stranger; GRANT queue_jobs_enqueue TO stranger');
my ($locked, $member) = split /\|/, $node->safe_psql('postgres', q{WITH b AS MATERIALIZED (SELECT queue_jobs.new_batch() AS id) SELECT id, queue_jobs.enqueue('walked', batch => id) FROM b});
my $stranger = in_background($node);
$stranger->query('SET ROLE stranger');
arm('batch_locked', 'wait');
$stranger->send("SELECT queue_jobs.enqueue('walked', batch => $locked)");
wait_at('batch_locked');
$node->safe_psql('postgres', "SELECT queue_jobs.cancel($member)");
my $next = $node->safe_psql('postgres', 'SELECT queue_jobs.new_batch()');
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $next");
is($node->safe_psql('postgres', "SELECT ended_at IS NULL FROM queue_jobs.batch WHERE id = $locked"), 't', 'a batch that is locked does not end');
go_on('batch_locked');
$stranger->result;
like($stranger->error, qr/permission denied for batch/, 'the transaction that locked it fails');
wait_until($node, "SELECT ended_at IS NOT NULL FROM queue_jobs.batch WHERE id = $locked");
pass('and the batch ends');
$stranger->quit;

# The same where close_batch() is interrupted as it has the lock, and the transaction goes on without it: the death that a look passed by is found.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('mourns')});
($locked, $member) = split /\|/, $node->safe_psql('postgres',
	q{WITH b AS MATERIALIZED (SELECT queue_jobs.new_batch(on_dead => 'mourns', open => true) AS id) SELECT id, queue_jobs.enqueue('walked', batch => id) FROM b});
my $closer = in_background($node);
$closer->query('BEGIN; SAVEPOINT before');
arm('batch_closed', 'pause');
$closer->send("SELECT queue_jobs.close_batch($locked)");
wait_at('batch_closed');
$node->safe_psql('postgres', "SELECT queue_jobs.discard($member)");
$next = $node->safe_psql('postgres', 'SELECT queue_jobs.new_batch()');
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $next");
is($node->safe_psql('postgres', "SELECT died_at IS NULL FROM queue_jobs.tracked_batch WHERE id = $locked"), 't', 'a batch that is being closed is passed by');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT queue_jobs.close_batch%'});
go_on('batch_closed');
$closer->result;
like($closer->error, qr/canceling statement/, 'the call that closes it is interrupted');
$closer->query('ROLLBACK TO before; COMMIT');
wait_until($node, "SELECT died_at IS NOT NULL FROM queue_jobs.tracked_batch WHERE id = $locked");
is($node->safe_psql('postgres', q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'mourns'}), 't', 'and the death calls back');
$closer->quit;

# ---- kill, end and fail at every point ----

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (worker text, n int, at timestamptz);
CREATE TABLE record (id int PRIMARY KEY, status text DEFAULT 'pending');
CREATE FUNCTION work(n int DEFAULT 0) RETURNS void LANGUAGE sql AS $$ INSERT INTO done SELECT worker, n, run_at FROM queue_jobs.current_job(); $$;
CREATE PROCEDURE proceed(n int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO done SELECT worker, n FROM queue_jobs.current_job(); COMMIT; END $$;
CREATE FUNCTION heal(id int) RETURNS void LANGUAGE sql AS $$
	UPDATE record r SET status = 'done' WHERE r.id = heal.id;
	INSERT INTO done VALUES ('heals', heal.id);
$$;
CREATE FUNCTION soon(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$;
SELECT queue_jobs.define_worker('function', 'public.work', retry_backoff => 'public.soon'),
	queue_jobs.define_worker('procedure', 'public.proceed', retry_backoff => 'public.soon', idempotent => true),
	queue_jobs.define_worker('limited', 'public.work', retry_backoff => 'public.soon', concurrency_key => 'key', concurrency_limit => 1),
	queue_jobs.define_worker('executed', 'public.work', retry_backoff => 'public.soon', idempotent => true, deduplicate => 'until_executed'),
	queue_jobs.define_worker('ticks', 'public.work', retry_backoff => 'public.soon'),
	queue_jobs.define_worker('claimed', retry_backoff => 'public.soon');
SQL

my @faults = ('kill', 'fatal', 'error');

# Runs SQL in a session that may not survive it, or find the server while it starts anew. True if it was carried out.
sub try_sql
{
	my ($sql) = @_;

	my ($status) = eval { $node->psql('postgres', $sql, stderr => \my $ignored) };
	return defined $status && $status == 0;
}

sub wait_until_passed
{
	my ($point) = @_;

	return wait_for(sub { !-e "$points/$point" }, "a process has been at $point");
}

sub wait_until_drained
{
	return wait_until($node, 'SELECT NOT EXISTS (SELECT FROM queue_jobs.live_job)', retry_crashed => 1);
}

# Asked until the server answers, which may be about to start anew.
sub times_done
{
	my ($worker) = @_;

	my $times;
	wait_for(sub {
		my ($status, $out) = eval { $node->psql('postgres', "SELECT count(*) FROM done WHERE worker = '$worker' AND n = $n", stderr => \my $ignored) };
		$times = $out if defined $status && $status == 0;
		return defined $times;
	}, 'the server answers');
	return $times;
}

# A job of each of the workers, enqueued with these arguments, comes by the point.
sub fault_at
{
	my ($point, $faults, $more, @workers) = @_;

	foreach my $fault (@$faults)
	{
		foreach my $worker (@workers)
		{
			$n++;
			my $crashes = log_count($node, 'all server processes terminated; reinitializing');
			arm($point, $fault);
			try_sql("SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}'$more)");
			wait_until_passed($point);
			wait_for(sub { $fault ne 'kill' || log_count($node, 'all server processes terminated; reinitializing') > $crashes }, 'the server starts anew');
			wait_until_drained();
			my $times = times_done($worker);
			ok($worker eq 'procedure' ? $times >= 1 : $times == 1, "$fault at $point: $worker, done $times times");
		}
	}
	return;
}

# An executor.
fault_at($_, \@faults, '', 'function', 'procedure') foreach ('job_taken', 'run_begins', 'handler_returned', 'end_written');
fault_at('end_written', ['fatal'], '', 'executed', 'limited');
fault_at('end_committed', \@faults, '', 'procedure');
fault_at('publishes', ['kill'], '', 'function');      # of who enqueues

# The scheduler: jobs that fall due; ticks; a crash that is charged. An executor: healing.
fault_at('due_promoted', \@faults, ", delay => '1 ms'", 'function');
foreach my $point ('tick_written', 'tick_committed')
{
	foreach my $fault (@faults)
	{
		arm($point, $fault);
		my $before = $node->safe_psql('postgres', q{SELECT count(*) FROM done WHERE worker = 'ticks'});
		try_sql(q{SELECT queue_jobs.schedule('ticks', '* * * * * *', 'ticks')});
		wait_until_passed($point);
		wait_until($node, "SELECT count(*) > $before + 1 FROM done WHERE worker = 'ticks'");
		wait_until($node, q{SELECT queue_jobs.unschedule('ticks') IS NOT NULL});
		wait_until_drained();
		is($node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT at) FROM done WHERE worker = 'ticks'}), '0', "$fault at $point: no tick twice");
	}
}
# An error of the server's, and not the schedule's, does not make its tick pass.
arm('job_inserted', 'error');
$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.schedule('yearly', '@yearly', 'ticks'); UPDATE queue_jobs.defined_schedule SET next_run = now() WHERE name = 'yearly'; COMMIT});
wait_until_passed('job_inserted');
wait_until($node, q{SELECT last_state = 'completed' AND error IS NULL FROM queue_jobs.schedule WHERE name = 'yearly'});
pass('a tick that met an error of the server comes when that is over');
$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule('yearly')});
$n++;
arm($_, 'kill') foreach ('handler_returned', 'crash_charged');
# (The server may go down before the COMMIT has returned.)
my $crashed = ($node->psql('postgres', "BEGIN;\nSELECT queue_jobs.enqueue('function', '{\"n\": $n}', delay => '1 s');\nCOMMIT;"))[1];
wait_until_passed($_) foreach ('handler_returned', 'crash_charged');
wait_for_job($node, $crashed, 'completed', retry_crashed => 1);
is($node->safe_psql('postgres', "SELECT attempt, jsonb_array_length(errors) FROM queue_jobs.job WHERE id = $crashed"), '2|1',
	'a crash is charged once, also if the scheduler is killed when it has charged it');
# Not before: jobs that heal pass the other points, too.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('heals', 'public.heal', idempotent => true, record => 'record', record_key => 'id', pending => $$status = 'pending'$$,
	heal_every => '1 s', heal_after => '0 s', retry_backoff => 'public.soon')});
foreach my $fault (@faults)
{
	$n++;
	arm('batch_healed', $fault);
	wait_for(sub { try_sql("INSERT INTO record VALUES ($n) ON CONFLICT DO NOTHING") }, 'the server, which heals every second, takes a record');
	wait_until_passed('batch_healed');
	wait_until($node, "SELECT status = 'done' FROM record WHERE id = $n");
	wait_until_drained();
	is(times_done('heals'), '1', "$fault at batch_healed: healed once");
}

# A client: what it had not committed is not there.
# (No other session inserts a job: what was healed is on disk with this commit, so that no crash has it healed again.)
$node->safe_psql('postgres', q{SELECT queue_jobs.drop_worker('heals')});
foreach my $fault (@faults)
{
	$n++;
	arm('job_inserted', $fault);
	ok(!try_sql("SELECT queue_jobs.enqueue('function', '{\"n\": $n}')"), "$fault at job_inserted");
	wait_until_drained();
	is(times_done('function'), '0', 'it never was');
	$n++;
	wait_for(sub { try_sql("SELECT queue_jobs.enqueue('claimed', '{\"n\": $n}')") }, 'the server takes a job');
	my $claim = q{BEGIN; INSERT INTO done SELECT worker, (args->>'n')::int FROM queue_jobs.claim('c', ARRAY['claimed']);
		SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'claimed' AND state = 'executing'; COMMIT};
	foreach my $point ('job_claimed', 'job_completed')
	{
		arm($point, $fault);
		ok(!try_sql($claim), "$fault at $point");
		is(times_done('claimed'), '0', 'nothing was done');
	}
	wait_for(sub { try_sql($claim) }, 'the server takes a claim');
	is(times_done('claimed'), '1', 'once more: done');
}

# Nothing is left.
wait_until_drained();
wait_until($node, 'SELECT count(*) = 0 FROM queue_jobs.running_jobs()');
pass('no executor says that it runs a job');
wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
pass('no hold is left');
is(join(' ', glob("$points/*")), '', 'every point was met');

# A job that an executor finds when it looks once more leaves nothing behind in the session either.
$node->stop;
use_node('second_look', 'queue_jobs.max_executors = 1');
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION soil() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('app.note', 'left', false);
	RETURN pg_backend_pid();
END
$$;
CREATE FUNCTION look() RETURNS text LANGUAGE sql AS $$ SELECT format('%s%s', current_setting('app.note', true), pg_backend_pid()) $$;
CREATE FUNCTION idle() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker(w, 'public.' || w, queue => 'in turn') FROM unnest('{soil,look,idle}'::text[]) w;
SQL
arm('looks_again', 'wait');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('idle')});
wait_at('looks_again');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('soil', priority => 1), queue_jobs.enqueue('look', priority => 2)});
go_on('looks_again');
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE state = 'completed'});
is( $node->safe_psql('postgres', q{SELECT result #>> '{}' FROM queue_jobs.job WHERE worker = 'look'}),
	$node->safe_psql('postgres', q{SELECT result #>> '{}' FROM queue_jobs.job WHERE worker = 'soil'}),
	'the next job in the same session finds nothing of it');

# A wake-up that comes while an executor that has found nothing waits for something else (a lock, a page; here, the point) is not lost.
arm('going_to_sleep', 'wait');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('idle')});
wait_at('going_to_sleep');
my $late = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('look')});
go_on('going_to_sleep');
wait_for_job($node, $late, 'completed');
pass('a job that comes just before an executor sleeps');

# Nor is a change of the configuration.
my ($old) = executor_pids($node);
arm('going_to_sleep', 'wait');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('idle')});
wait_at('going_to_sleep');
$node->append_conf('postgresql.conf', "queue_jobs.pools = 'new 1 *'");
$node->reload;
wait_until($node, q{SELECT current_setting('queue_jobs.pools') = 'new 1 *'});
go_on('going_to_sleep');
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $old");
pass('a change of the configuration that comes then');
$node->stop;

# A piece of work whose job ends just before the jobs that there are, and what is left, are looked at, is not made again.
use_node('remaining_work', 'queue_jobs.max_executors = 2');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE piece (n int PRIMARY KEY, open boolean NOT NULL, done boolean NOT NULL DEFAULT false);
INSERT INTO piece VALUES (1, false), (2, false);
CREATE TABLE run (n int);
CREATE FUNCTION do_piece(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM piece p WHERE p.n = do_piece.n AND p.open) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO run VALUES (do_piece.n);
	UPDATE piece p SET done = true WHERE p.n = do_piece.n;
END
$$;
SELECT queue_jobs.define_worker('do_piece', 'public.do_piece', max_running_jobs => 2,
	remaining_work => 'SELECT jsonb_build_object($$n$$, n) FROM public.piece WHERE NOT done ORDER BY n');
SQL
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE state = 'executing'});
arm('fills', 'wait');
$node->safe_psql('postgres', 'UPDATE piece SET open = true WHERE n = 1');
wait_at('fills');
$node->safe_psql('postgres', 'UPDATE piece SET open = true WHERE n = 2');
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE state = 'completed'});
go_on('fills');
$node->safe_psql('postgres', 'INSERT INTO piece VALUES (3, true)');
wait_until($node, q{SELECT done FROM piece WHERE n = 3});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE finished_at IS NULL});
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM run'), '3|3', 'each piece of work is done once');

# ---- jobs of a key with a limit of one are sent back to their lane by the scheduler ----

# From its commit on they are not parked any more, but no claim begins with them before they are published.
$node->safe_psql('postgres', q{
	SELECT queue_jobs.define_worker('in order', concurrency_key => 'key', concurrency_limit => 1);
	SELECT count(queue_jobs.enqueue('in order', jsonb_build_object('key', 1, 'n', n))) FROM generate_series(1, 40) n});

sub claim_in_order
{
	return $node->safe_psql('postgres', q{SELECT string_agg((args -> 'n')::text, ' ') FROM queue_jobs.claim('points', '{in order}')});
}

sub live_in_order
{
	my ($condition) = @_;

	return "SELECT id FROM queue_jobs.live_job WHERE args -> 'key' = '1' AND $condition ORDER BY id";
}

is(claim_in_order(), '1', 'the first job of a key is claimed');
arm('jobs_parked', 'wait');
is(claim_in_order(), '', 'no other can be');
wait_at('jobs_parked');
$node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'in order' AND state = 'executing'});
arm('committed', 'wait');
go_on('jobs_parked');
wait_at('committed');
is($node->safe_psql('postgres', live_in_order('place >= 0')), '', 'it ends while they are parked: they wait for the scheduler');
arm('committed', 'wait');
go_on('committed');
wait_at('committed');
isnt($node->safe_psql('postgres', live_in_order('place >= 0')), '', 'which sends back one');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('in order', '{"key": 1, "n": 41}')});
is(claim_in_order(), '', 'before that is published, no later one overtakes it');
go_on('committed');
my $claimed;
wait_for(sub { $claimed = claim_in_order() }, 'a job can be claimed');
is($claimed, '2', 'then it is claimed');
$node->stop;

# ---- a database without a slot is dropped: its executors leave, and call a scheduler ----

use_node('way', 'queue_jobs.max_databases = 1');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION queue_jobs');
define_gated($node, db => 'other');
wait_for_job($node, $node->safe_psql('other', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')}), 'completed', db => 'other');
my $restore = in_background($node);
$restore->query('INSERT INTO queue_jobs.live_job SELECT * FROM queue_jobs.live_job WHERE false');    # it has the slot now
# (One, or two: another may have been started before the first had taken the job.)
cmp_ok(scalar executor_pids($node, 'other'), '>=', 1, 'an executor is in a database without a slot');
arm('way_asked', 'wait');
my $drop = in_background($node);
$drop->send('DROP DATABASE other');
wait_at('way_asked');
$restore->quit;
# (A process that waits for that lock is not in pg_stat_activity yet.)
wait_until($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND NOT granted)
	OR EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'other')});
go_on('way_asked');
$drop->result;
is($drop->error, '', 'the scheduler does not connect before the database is gone');
define_gated($node);
wait_for_job($node, $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}')}), 'completed');
$node->stop;

# ---- sessions that look while another one counts the live jobs ----

use_node('count');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('claimed'); SELECT queue_jobs.enqueue_many('claimed', '{1,2,3}')});
my $look = q{SELECT available, (SELECT sum(seq_scan) FROM pg_stat_xact_all_tables WHERE relid = 'queue_jobs.live_job'::regclass) FROM queue_jobs.queue};
arm('jobs_counted', 'wait');
my @lookers = map { in_background($node) } 1 .. 3;
my @pids = map { $_->pid } @lookers;
$lookers[0]->send($look);
wait_at('jobs_counted');
$_->send($look) foreach @lookers[ 1, 2 ];
my $both_wait = "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND pid IN ($pids[1], $pids[2])";
wait_until($node, $both_wait);
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('claimed')});
go_on('jobs_counted');
is($lookers[0]->result, '3|1', 'a look counts the rows that its snapshot sees');
is($_->result, '4|0', 'those that come meanwhile wait for its count, and read no rows themselves') foreach @lookers[ 1, 2 ];

$node->safe_psql('postgres', 'DELETE FROM queue_jobs.live_job WHERE false');    # it is counted again
arm('jobs_counted', 'pause');
$lookers[0]->send($look);
wait_at('jobs_counted');
$_->send($look) foreach @lookers[ 1, 2 ];
wait_until($node, $both_wait);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[0])");
go_on('jobs_counted');
is_deeply([ sort map { $_->result } @lookers[ 1, 2 ] ], [ '4|0', '4|1' ], 'one of them counts if the one that did so is gone');
$node->stop;

done_testing();
