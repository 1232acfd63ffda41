# What one process tells another is heeded also if that one is about to leave, has no place yet, or knows nothing yet: races that are too short
# to be met otherwise.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my $node;

# Workers: quick (executors run it), hand and other (claimed).
sub use_node
{
	my ($name, $conf) = @_;

	$node = new_node($name, conf => $conf // "queue_jobs.idle_timeout = '1h'");
	use_points($node);
	define_gated($node);
	sql(q{SELECT queue_jobs.define_worker('hand'), queue_jobs.define_worker('other')});
	return;
}

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

sub enqueue_child
{
	my ($parent, $n) = @_;

	return sql(qq{SELECT queue_jobs.enqueue('quick', '{"n": $n}', after => ARRAY[$parent]::bigint[])});
}

sub claims
{
	my ($worker) = @_;

	return sql("SELECT string_agg(id::text, ' ') FROM queue_jobs.claim('me', '{$worker}', 100)");
}

sub completes
{
	my ($worker) = @_;

	return sql("SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{$worker}')");
}

# Returns when the scheduler has looked at all that there was to be looked at before.
sub looked
{
	my ($n) = @_;

	for my $i ($n, $n + 1)
	{
		my $child = enqueue_child(sql(q{SELECT queue_jobs.enqueue('other')}), $i);

		completes('other');
		wait_for_job($node, $child, 'completed');
	}
	return;
}

# ---- news for a scheduler that is about to leave ----

use_node('leaves');
my $batch = sql(q{SELECT queue_jobs.new_batch(open => true)});
my $parent = sql("SELECT queue_jobs.enqueue('hand', batch => $batch)");
sql(qq{SELECT queue_jobs.enqueue('quick', '{"n": 1}', batch => $batch, after => ARRAY[$parent]::bigint[]), queue_jobs.close_batch($batch)});
sql("SELECT queue_jobs.cancel_batch($batch)");
$node->stop;    # or the scheduler that is there might come by
arm('scheduler_leaves', 'wait');
arm('settles', 'wait');
$node->start;    # one comes that finds nothing to do, but not within one turn
wait_at('settles');
select undef, undef, undef, 0.1;    # longer than a turn
go_on('settles');
wait_at('scheduler_leaves');
sql("SELECT queue_jobs.retry_batch($batch)");
completes('hand');
go_on('scheduler_leaves');
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $batch");
pass('the next scheduler looks at what has ended');

# ---- a parent that goes before the scheduler has found out which jobs others wait for ----

$parent = sql(q{SELECT queue_jobs.enqueue('hand')});
my $child = enqueue_child($parent, 2);
looked(10);
arm('scheduler_starts', 'wait');
$node->restart;
wait_at('scheduler_starts');
is(sql(q{SELECT queue_jobs.remove_jobs('hand')}), 1, 'a parent is removed as the server starts');
go_on('scheduler_starts');
looked(20);
is(sql("SELECT state FROM queue_jobs.job WHERE id = $child"), 'waiting', 'which counts as cancelled');

# ---- a session that is about to wait, beside one that waits ----

my @sessions = map { in_background($node) } 1 .. 2;
my $n = 0;
foreach my $order ([ 0, 1 ], [ 1, 0 ])
{
	my ($waits, $registers) = @sessions[@$order];
	my $waiting = $waits->pid;

	$waits->send(q{CALL queue_jobs.wait_for_jobs('{first}', '1 hour')});
	wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiting");
	arm('waiter_registers', 'wait');
	$registers->send(q{CALL queue_jobs.wait_for_jobs('{second}', '1 hour')});
	wait_at('waiter_registers');
	sql(q{SELECT queue_jobs.enqueue('hand', queue => 'first')});
	wait_until($node, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $waiting");
	$n++;
	pass("a session is woken beside one that begins to wait, $n of 2");
	go_on('waiter_registers');
	sql(q{SELECT queue_jobs.enqueue('hand', queue => 'second')});
	$_->result foreach $waits, $registers;
	is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('me', '{first,second}', 10)}), 2, 'there were jobs');
}

# ---- a claim that has a job's key, and is cancelled ----

sql(q{SELECT queue_jobs.define_worker('keyed', idempotent => true, deduplicate => 'until_executed')});
my $job = sql(q{SELECT queue_jobs.enqueue('keyed')});
my ($pid, $waiting) = map { $_->pid } @sessions;
arm('claim_has_key', 'pause');
$sessions[0]->send(q{SELECT id FROM queue_jobs.claim('other', '{keyed}')});
wait_at('claim_has_key');
is($sessions[1]->query(q{BEGIN; SELECT id FROM queue_jobs.claim('me', '{keyed}'); ROLLBACK}), '', 'another claim passes the job by, and is rolled back');
$sessions[1]->send(q{CALL queue_jobs.wait_for_jobs('{keyed}', '1 hour')});
wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiting");
pass('which does not have its session look again');
sql("SELECT pg_cancel_backend($pid)");
go_on('claim_has_key');
$sessions[0]->result;
like($sessions[0]->error, qr/canceling statement/, 'the first is cancelled');
$sessions[1]->result;
is(claims('keyed'), $job, 'then it is claimed');

# ---- a claim that gives back what it had of a limit: one that was refused meanwhile looks again ----

# (Without being told, it looks after ten seconds, and with a load like that of a slow machine this may take as long.)
my $soon = 9;
sql(q{SELECT queue_jobs.define_worker('one slot', max_running_jobs => 1), queue_jobs.define_worker('one start', rate_limit => 1, rate_period => '1 hour')});
sql(q{SELECT queue_jobs.enqueue('one slot'), queue_jobs.enqueue('one start')});
my $third = in_background($node);
wait_for(sub { $third->query(q{BEGIN; SELECT id FROM queue_jobs.claim('first', '{one start}'); ROLLBACK}); 1 }, 'the worker is known');

# Returns whether the session was woken soon after the other's claim had come to its end, in one of five tries.
sub hears_of
{
	my ($queue, $point, $end) = @_;

	foreach my $try (1 .. 5)
	{
		arm($point, 'pause');
		$sessions[0]->send("SELECT id FROM queue_jobs.claim('first', '{$queue}')");
		wait_at($point);
		$sessions[1]->send("CALL queue_jobs.wait_for_jobs('{$queue}', '1 hour')");
		wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiting");
		my $begun = time;
		$end->();
		go_on($point);
		$sessions[0]->result;
		$sessions[1]->result;
		return 1 if time - $begun < $soon;
	}
	return 0;
}

ok(hears_of('one slot', 'slot_locked', sub { sql("SELECT pg_cancel_backend($pid)") }), 'the slot of a claim that was cancelled');
$third->quit;

# ---- a cancel() that finds an executor at a job, which finds that another session has its row ----

# (The row is locked before any executor looks, or another one would run the job.)
sql(q{SELECT queue_jobs.pause('quick')});
$job = sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 5}')});
$sessions[0]->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
arm('job_shown', 'wait');
sql(q{SELECT queue_jobs.resume('quick')});
wait_at('job_shown');
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a job is cancelled while an executor is about to take it');
go_on('job_shown');
$sessions[0]->query('COMMIT');
wait_until($node, "SELECT state IN ('cancelled', 'completed') FROM queue_jobs.job WHERE id = $job");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'cancelled', 'it does not run, though that one could not take it');

# ---- requests to end a job whose run has been interrupted, while another session has its row ----

# The executor leaves the end to the scheduler, which tries the row.
define_gated_procedure($node);
my $run = 100;

# A procedure's run has been interrupted by cancel(), and its executor has gone on, though the first session has the row.
sub cancelled_and_locked
{
	$run++;
	my $id = sql("SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $run))");

	wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $id");
	is($sessions[0]->query("BEGIN; SELECT queue_jobs.cancel($id)"), 't', 'a session is about to cancel a procedure, and so has its row');
	is(sql("SELECT queue_jobs.cancel($id)"), 't', 'another one cancels it');
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $id)");
	return $id;
}

# It has ended, or its handler has been called once more.
sub has_ended
{
	my ($id, $how) = @_;

	$sessions[0]->query('ROLLBACK');
	wait_until($node, "SELECT state = 'cancelled' OR (SELECT count(*) > 1 FROM ran WHERE n = $run) FROM queue_jobs.job WHERE id = $id");
	is(sql("SELECT state, (SELECT count(*) FROM ran WHERE n = $run) FROM queue_jobs.job WHERE id = $id"), 'cancelled|1', $how);
	sql("INSERT INTO gate VALUES ($run)");
	return;
}

$job = cancelled_and_locked();
has_ended($job, 'it does not run again');

$job = cancelled_and_locked();
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
has_ended($job, 'nor if executors are terminated then');

# retry() after that has a run of its own: no session has asked for the end of that.
$job = cancelled_and_locked();
$pid = stop_scheduler($node);
$sessions[0]->query('COMMIT');
is(sql("SELECT queue_jobs.retry($job)"), 't', 'the first session commits, and the job is retried before the scheduler looks');
sql("INSERT INTO gate VALUES ($run)");
kill 'CONT', $pid or die "$pid: $!";
wait_until($node, "SELECT state IN ('completed', 'cancelled') AND NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job) FROM queue_jobs.job WHERE id = $job");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'completed', 'it runs');

# The same of a job that its executor has put back, with retry() rolled back, and then committed.
sql(q{CREATE FUNCTION fails_once() RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF (queue_jobs.current_job()).attempt = 1 THEN RAISE 'once'; END IF; END $$});
sql(q{SELECT queue_jobs.define_worker('fails once', 'public.fails_once')});
foreach my $end ('ROLLBACK', 'ROLLBACK TO s; COMMIT', 'RELEASE s; COMMIT')
{
	arm('end_committed', 'wait');
	$job = sql(q{SELECT queue_jobs.enqueue('fails once')});
	wait_at('end_committed');
	$sessions[0]->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
	is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a job is cancelled that was put back, and whose row another session has');
	go_on('end_committed');
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job)");
	$pid = stop_scheduler($node);
	$sessions[0]->query('COMMIT');
	is($sessions[0]->query("BEGIN; SAVEPOINT s; SELECT queue_jobs.retry($job)"), 't', 'and is retried before the scheduler looks');
	$sessions[0]->query($_) foreach split /; /, $end;
	kill 'CONT', $pid or die "$pid: $!";
	wait_until($node, "SELECT state IN ('completed', 'cancelled') FROM queue_jobs.job WHERE id = $job");
	is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), $end =~ /RELEASE/ ? 'completed' : 'cancelled', "what becomes of it after $end");
}

# Before the executor has left the end to the scheduler, there is nothing to retry: the job is about to end.
arm('end_committed', 'wait');
$job = sql(q{SELECT queue_jobs.enqueue('fails once')});
wait_at('end_committed');
$sessions[0]->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a job is cancelled that was put back');
$sessions[0]->query('COMMIT');
is(sql("SELECT queue_jobs.retry($job)"), 'f', 'retry() does nothing before its executor has heeded that, and says so');
go_on('end_committed');
wait_until($node, "SELECT state IN ('completed', 'cancelled') FROM queue_jobs.job WHERE id = $job");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'cancelled', 'the job ends');

# The scheduler meets the end while the executor still shows the job, and is slow: the executor leaves the end once more meanwhile, and that one stays.
$run++;
$job = sql("SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $run))");
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $job");
$sessions[0]->query("BEGIN; SELECT queue_jobs.cancel($job)");
arm('end_tried', 'wait');
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a procedure is cancelled whose row another session has');
wait_at('end_tried');
arm('crash_charged', 'wait');
$child = enqueue_child(sql(q{SELECT queue_jobs.enqueue('other')}), 110);
completes('other');
wait_at('crash_charged');
go_on('end_tried');
wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job)");
go_on('crash_charged');
wait_for_job($node, $child, 'completed');
has_ended($job, 'it does not run again, though the scheduler has asked the executor once more');

# A procedure that has succeeded keeps its result, though it is cancelled before the executor can write that.
$run++;
sql("INSERT INTO gate VALUES ($run)");
arm('handler_returned', 'wait');
$job = sql("SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $run))");
wait_at('handler_returned');
$sessions[0]->query("BEGIN; SELECT queue_jobs.cancel($job)");
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a procedure is cancelled that has just returned, and whose row another session has');
my $executor = sql("SELECT pid FROM queue_jobs.running_jobs() WHERE job_id = $job");
go_on('handler_returned');
wait_until($node, "SELECT wait_event_type = 'Lock' OR NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job) FROM pg_stat_activity WHERE pid = $executor");
$sessions[0]->query('ROLLBACK');
wait_until($node, "SELECT state IN ('completed', 'cancelled') FROM queue_jobs.job WHERE id = $job");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'completed', 'it keeps its result');

# ---- a signal for a job whose executor still shows it, while another session has its row ----

sql(q{CREATE FUNCTION asks() RETURNS void LANGUAGE plpgsql AS $$
BEGIN IF queue_jobs.signal_payload('go') IS NULL THEN PERFORM queue_jobs.wait_for_signal('go'); END IF; END $$});
sql(q{SELECT queue_jobs.define_worker('asks', 'public.asks')});
arm('end_committed', 'wait');
$job = sql(q{SELECT queue_jobs.enqueue('asks')});
wait_at('end_committed');
$sessions[0]->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
is(sql("SELECT queue_jobs.signal($job, 'go')"), 't', 'a signal is sent to a job that another session has');
looked(30);
go_on('end_committed');
$sessions[0]->query('COMMIT');
wait_for_job($node, $job, 'completed');
pass('which runs when that has committed');

# ---- a due job that a savepoint had while the scheduler looked ----

$pid = stop_scheduler($node);
$job = sql(q{SELECT queue_jobs.enqueue('hand', run_at => clock_timestamp() + '500 ms')});
$sessions[0]->query('BEGIN; SAVEPOINT s');
wait_for(sub { $sessions[0]->query(q{SELECT id FROM queue_jobs.claim('other', '{hand}')}) eq $job }, 'the job is due');
kill 'CONT', $pid or die "$pid: $!";
wait_for_job($node, sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 4}', run_at => clock_timestamp() + '100 ms')}), 'completed');
is(claims('hand'), '', 'the scheduler has passed it by, as the claim has it');
$sessions[0]->query('ROLLBACK TO s');
wait_for(sub { claims('hand') eq $job }, 'it is claimed');
pass('a job is available again when the savepoint is rolled back');
$sessions[0]->query('COMMIT');

$job = sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 6}', run_at => clock_timestamp() + '500 ms')});
$sessions[0]->query("BEGIN; SAVEPOINT s; SELECT queue_jobs.cancel($job)");
wait_for_job($node, sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 7}', run_at => clock_timestamp() + '600 ms')}), 'completed');
$sessions[0]->query('ROLLBACK TO s');
wait_for_job($node, $job, 'completed');
pass('the same of one that was cancelled in the savepoint');
$sessions[0]->query('COMMIT');
$_->quit foreach @sessions;

# ---- news where jobs are switched off ----

sql('ALTER DATABASE postgres SET queue_jobs.run = off');
$node->append_conf('postgresql.conf', "queue_jobs.idle_timeout = '1s'");
$node->restart;
sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 3}')});
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type IN ('queue_jobs scheduler', 'queue_jobs executor')});
$batch = sql(q{SELECT queue_jobs.new_batch(open => true)});
sql("SELECT queue_jobs.enqueue('hand', batch => $batch), queue_jobs.close_batch($batch)");
completes('hand');
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $batch");
pass('a batch of claimed jobs ends');
$node->stop;

# ---- jobs are switched off while an executor starts ----

# Each role's jobs have executors of their own: the scheduler starts one for each of these.
use_node('off');
sql(qq{CREATE ROLE starts_$_ LOGIN; GRANT queue_jobs_enqueue TO starts_$_}) foreach 1 .. 3;
wait_for_job($node, sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')}), 'completed');
my %starting = (1 => 'starts_executor', 2 => 'executor_connected', 3 => 'executor_starts');
foreach my $n (sort keys %starting)
{
	arm($starting{$n}, 'wait');
	sql(qq{SET SESSION AUTHORIZATION starts_$n; SELECT count(queue_jobs.enqueue('quick', '{"n": $n}')) FROM generate_series(1, 2000)});
	wait_at($starting{$n});
	sql('ALTER DATABASE postgres SET queue_jobs.run = off');
	go_on($starting{$n});
	wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
	is(sql("SELECT count(*) FROM ran WHERE role = 'starts_$n'"), 0, "no job runs that was not running before ($starting{$n})");
	sql('ALTER DATABASE postgres SET queue_jobs.run = on');
	wait_until($node, "SELECT count(*) = 2000 FROM ran WHERE role = 'starts_$n'");
}
$node->stop;

# ---- a database whose slot another one has had ----

use_node('again', "queue_jobs.max_databases = 1\nqueue_jobs.idle_timeout = '1s'");
$parent = sql(q{SELECT queue_jobs.enqueue('hand')});
$child = enqueue_child($parent, 1);
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'});
arm('scheduler_starts', 'wait');
sql('CREATE DATABASE without');
wait_at('scheduler_starts');
completes('hand');
go_on('scheduler_starts');
wait_for_job($node, $child, 'completed');
pass('learns what has ended meanwhile');
$node->stop;

# ---- a procedure that is interrupted while its COMMIT waits for a synchronous standby ----

# That wait takes the signal. (No other transaction waits for the standby, which is not there.)
use_node('standby', "queue_jobs.idle_timeout = '1h'\nwal_level = replica\nmax_wal_senders = 2\nsynchronous_standby_names = 'absent'\nsynchronous_commit = local");
sql(<<'SQL');
CREATE PROCEDURE waits_for_standby(n int) LANGUAGE plpgsql AS $$
BEGIN
	SET LOCAL synchronous_commit = on;
	INSERT INTO ran (n) VALUES (n);
	COMMIT;
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n = waits_for_standby.n) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END
$$;
SELECT queue_jobs.define_worker('waits for standby', 'public.waits_for_standby');
SQL
foreach my $end ('cancel', 'discard')
{
	$job = sql(q{SELECT queue_jobs.enqueue('waits for standby', '{"n": 1}')});
	wait_until($node, "SELECT wait_event = 'SyncRep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $job");
	is(sql("SELECT queue_jobs.$end($job)"), 't', "$end() of a procedure whose COMMIT waits for a standby");
	wait_until($node, "SELECT state <> 'executing' OR EXISTS (SELECT FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $job AND wait_event = 'PgSleep')
		FROM queue_jobs.job WHERE id = $job");
	is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), $end eq 'cancel' ? 'cancelled' : 'dead', 'it ends after that');
}
$node->stop;

# ---- two ends of one job, before and after a retry() ----

# The first executor runs a job until its gate opens; the second leaves the end of a procedure, and then runs a job, too.
use_node('two_ends', "queue_jobs.idle_timeout = '1h'\nqueue_jobs.max_executors = 2");
define_gated_procedure($node);
my $locks = in_background($node);

sub gated
{
	my ($worker, $n) = @_;

	my $id = sql("SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}')");
	wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $id");
	return $id;
}

gated('gated', 1);
$job = gated('gated procedure', 2);
$locks->query("BEGIN; SELECT queue_jobs.cancel($job)");
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'a procedure is cancelled whose row another session has');
wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job)");
gated('gated', 3);
$pid = stop_scheduler($node);
$locks->query('COMMIT');
is(sql("SELECT queue_jobs.retry($job)"), 't', 'it is retried before the scheduler looks');
arm('job_shown', 'wait');
sql('INSERT INTO gate VALUES (1)');
wait_at('job_shown');
$locks->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
is(sql("SELECT queue_jobs.cancel($job)"), 't', 'and cancelled again, as an executor looks at it whose entry stands before the other');
go_on('job_shown');
wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $job)");
$locks->query('COMMIT');
kill 'CONT', $pid or die "$pid: $!";
sql('INSERT INTO gate VALUES (2)');
wait_until($node, "SELECT state IN ('completed', 'cancelled') FROM queue_jobs.job WHERE id = $job");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'cancelled', 'the second cancel() is heeded, though the first is void');
sql('INSERT INTO gate VALUES (3)');
$locks->quit;
$node->stop;

# ---- ends that one executor leaves, while a session has all these rows ----

# The second executor's places are for a fifth end.
use_node('ends', "queue_jobs.idle_timeout = '1h'\nqueue_jobs.max_executors = 2\nqueue_jobs.max_executors_per_database = 1\nrestart_after_crash = on");
define_gated_procedure($node);
my $holder = in_background($node);

# Cancels four procedures whose rows the holder has. Returns their jobs.
sub leave_ends
{
	my ($first) = @_;
	my @left;

	$holder->query('BEGIN');
	foreach my $n ($first .. $first + 3)
	{
		my $id = sql("SELECT queue_jobs.enqueue('gated procedure', jsonb_build_object('n', $n))");
		wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $id");
		$holder->query("SELECT queue_jobs.cancel($id)");
		is(sql("SELECT queue_jobs.cancel($id)"), 't', "job $n is cancelled");
		# there are places for three: the executor waits at the fourth, as it must not lose any
		wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.running_jobs() WHERE job_id = $id)") if $n < $first + 3;
		push @left, $id;
	}
	return @left;
}

my @left = leave_ends(1);
my $last = sql(q{SELECT queue_jobs.enqueue('quick', '{"n": 5}')});
$holder->query('ROLLBACK');
wait_for_job($node, $last, 'completed');
wait_for_job($node, $_, 'cancelled') foreach @left;
is(sql('SELECT count(*), count(DISTINCT n) FROM ran'), '5|5', 'all have ended, and none has run again');

# An executor that is terminated then says what it cannot do, and goes, though the holder's transaction goes on.
@left = leave_ends(11);
($executor) = executor_pids($node);
arm('end_tried', 'wait');
wait_at('end_tried');
sql("SELECT pg_terminate_backend($executor)");
go_on('end_tried');
wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $executor)");
is(log_count($node, "job $left[3] was not ended as asked"), 1, 'an executor that is terminated does not wait for the row of a job for whose end there is no place');
$holder->query('ROLLBACK');
sql('INSERT INTO gate VALUES (14)');
wait_for_job($node, $_, 'cancelled') foreach @left[ 0 .. 2 ];
wait_for_job($node, $left[3], 'completed');

# After a crash the fourth end stands where the executor's run stood, and another session has the rows: the next executor begins a job meanwhile. The end
# is made while that job runs.
@left = leave_ends(21);
arm('scheduler_starts', 'wait');
my $victim = in_background($node);
kill 'KILL', $victim->pid or die;
wait_at('scheduler_starts');
my $gated;
wait_for(sub { $gated = eval { sql(q{SELECT queue_jobs.enqueue('gated', '{"n": 25}')}) } }, 'the server takes a job again');
my $later = in_background($node);
$later->query('BEGIN');
$later->query("SELECT queue_jobs.cancel($_)") foreach @left;
go_on('scheduler_starts');
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $gated");
$later->query('ROLLBACK');
wait_for_job($node, $_, 'cancelled') foreach @left;
is(sql("SELECT state FROM queue_jobs.job WHERE id = $gated"), 'executing', 'an end that a crash has left in the place of an executor is made while another job runs there');
sql('INSERT INTO gate VALUES (25)');
wait_for_job($node, $gated, 'completed');
$_->kill_client foreach $victim, $holder, $later;

# ---- an end that is asked of an executor without a place of its own, as the server crashes once more ----

# The four ends of the crash before are not made yet: another session has the rows.
$node->restart;
$holder = in_background($node);
@left = leave_ends(41);
arm('scheduler_starts', 'wait');
$victim = in_background($node);
kill 'KILL', $victim->pid or die;
wait_at('scheduler_starts');
wait_for(sub { $gated = eval { sql(q{SELECT queue_jobs.enqueue('gated', '{"n": 45}')}) } }, 'the server takes a job again');
$later = in_background($node);
$later->query('BEGIN');
$later->query("SELECT queue_jobs.cancel($_)") foreach @left;
go_on('scheduler_starts');
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $gated");
($executor) = executor_pids($node);
kill 'STOP', $executor or die;
is(sql("SELECT queue_jobs.cancel($gated)"), 't', 'a fifth job is cancelled, and its executor does not come to it');
arm('scheduler_starts', 'wait');
kill 'KILL', $later->pid or die;
wait_at('scheduler_starts');
wait_for(sub { eval { sql('INSERT INTO gate SELECT generate_series(41, 45)'); 1 } }, 'the server takes a statement again');
go_on('scheduler_starts');
wait_until($node, "SELECT bool_and(state IN ('completed', 'cancelled')) FROM queue_jobs.job WHERE id IN (" . join(',', @left, $gated) . ')');
is(sql('SELECT string_agg(state, \' \') FROM queue_jobs.job WHERE id IN (' . join(',', @left, $gated) . ')'), 'cancelled cancelled cancelled cancelled cancelled',
	'all five ends are made after the second crash');
# The crash can have undone the latest commits of executors, which are asynchronous.
is(sql('SELECT count(*) = count(DISTINCT n), count(*) BETWEEN 1 AND 4 FROM ran WHERE n BETWEEN 41 AND 45'), 't|t', 'none of the jobs has run again');
$_->kill_client foreach $victim, $holder, $later;

# ---- a claim of a job that a process has yet to charge for its crash ----

# Its worker has no handler any more. (An executor that began while all places were taken has none: another one comes.)
$node->restart;
$job = sql(q{SELECT queue_jobs.enqueue('gated', '{"n": 31}')});
wait_until($node, "SELECT wait_event = 'PgSleep' FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $job");
($executor) = executor_pids($node);
arm('scheduler_starts', 'wait');
kill 'KILL', $executor or die;
wait_at('scheduler_starts');
wait_for(sub { eval { sql(q{SELECT queue_jobs.define_worker('gated')}); 1 } }, 'the server takes a definition again');
is(claims('gated'), '', 'a job whose executor was killed is not claimed');
go_on('scheduler_starts');
wait_for_job($node, $job, 'retryable');
is(sql("SELECT attempt, errors -> 0 ->> 'sqlstate' FROM queue_jobs.job WHERE id = $job"), '1|57P02', 'before it is charged with the crash');
sql("SELECT queue_jobs.retry($job)");
is(claims('gated'), $job, 'then it is');
$node->stop;

done_testing();
