# What a run reports is seen by other sessions before it commits, wakes those that wait for it, and stays with the job when the run has ended,
# however it ends. A run that is undone leaves nothing of it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my $node = new_node('reports', conf => "restart_after_crash = on\nqueue_jobs.max_executors = 2\nqueue_jobs.idle_timeout = '1h'\nautovacuum = off");
my $points = use_points($node);

sub sql
{
	my ($sql, $role) = @_;

	return $node->safe_psql('postgres', ($role ? "SET SESSION AUTHORIZATION $role;" : '') . $sql);
}

sub error_of
{
	my ($sql, $role) = @_;

	my (undef, undef, $error) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n" . ($role ? "SET SESSION AUTHORIZATION $role;" : '') . $sql);
	return $error;
}

sql(<<'SQL');
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
GRANT queue_jobs_define, queue_jobs_enqueue, queue_jobs_claim, queue_jobs_read TO alice, bob;
CREATE TABLE gate AS SELECT 0 AS n;
GRANT SELECT ON gate TO PUBLIC;
CREATE FUNCTION pass(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n >= pass.n) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END
$$;
CREATE FUNCTION end_as("end" text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CASE "end"
		WHEN 'ok' THEN NULL;
		WHEN 'fail' THEN PERFORM queue_jobs.retry_in('1 day'); RAISE 'failed';
		WHEN 'die' THEN RAISE 'died';
		WHEN 'snooze' THEN PERFORM queue_jobs.snooze_me('1 day');
		WHEN 'continue' THEN PERFORM queue_jobs.continue_at('{}', '1 day');
		WHEN 'continue further' THEN PERFORM queue_jobs.continue_at('{}', '1 day', 0.75);
	END CASE;
END
$$;
CREATE FUNCTION copies("end" text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM queue_jobs.report(0.25, 'copying');
	PERFORM pass(1);
	PERFORM queue_jobs.report(0.5);
	PERFORM pass(2);
	BEGIN
		PERFORM queue_jobs.report(message => 'verifying');
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	PERFORM pass(3);
	PERFORM end_as("end");
END
$$;
CREATE PROCEDURE copies_in_parts("end" text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM queue_jobs.report(0.25, 'copying');
	PERFORM pass(1);
	CALL queue_jobs.checkpoint('1', 0.5);
	PERFORM pass(2);
	PERFORM queue_jobs.report(message => 'verifying');
	ROLLBACK;
	PERFORM pass(3);
	PERFORM end_as("end");
END
$$;
SQL
sql(q{SELECT queue_jobs.define_worker('copies', 'public.copies', max_retries => 1);
SELECT queue_jobs.define_worker('copies_in_parts', 'public.copies_in_parts', max_retries => 1);
SELECT queue_jobs.define_worker('outside', max_retries => 5); SELECT queue_jobs.define_worker('unkept', keep_completed => '0')}, 'alice');

my $said = q{coalesce(progress::text, '-') || ' ' || coalesce(message, '-')};

sub said { return sql("SELECT $said FROM queue_jobs.job WHERE id = $_[0]", $_[1]) }

sub wait_for_report
{
	my ($job, $report, $name) = @_;

	ok(wait_until($node, "SELECT $said FROM queue_jobs.job WHERE id = $job", expected => $report), $name);
	return;
}

sub gate
{
	sql("UPDATE gate SET n = $_[0]");
	return;
}

# ---- executors ----

my %state = (ok => 'completed', fail => 'retryable', die => 'retryable', snooze => 'scheduled', continue => 'scheduled', 'continue further' => 'scheduled');
for my $worker (qw(copies copies_in_parts))
{
	gate(0);
	my $job = sql("SELECT queue_jobs.enqueue('$worker', '{\"end\": \"ok\"}')", 'alice');
	wait_for_report($job, '0.25 copying', "$worker: a report is seen while the run goes on");
	gate(1);
	wait_for_report($job, '0.5 copying', '… and the next one; what it leaves out stays');
	is(said($job, 'bob'), '', '… but not by a role that may not see the job');
	gate(2);
	wait_for_report($job, '0.5 verifying', '… and one that is rolled back');
	is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'executing', '… before the end');
	is(sql("SELECT progress, message FROM queue_jobs.search_jobs(worker => '$worker')", 'alice'), '0.5|verifying', '… by search_jobs(), too');
	gate(3);
	wait_for_job($node, $job, 'completed');
	is(said($job), '0.5 verifying', '… and after the end');

	for my $end (sort grep { $_ ne 'ok' } keys %state)
	{
		$job = sql("SELECT queue_jobs.enqueue('$worker', '{\"end\": \"$end\"}')", 'alice');
		wait_for_job($node, $job, $state{$end});
		is(said($job), $end eq 'continue further' ? '0.75 verifying' : '0.5 verifying', "$worker, $end: the last report stays");
		next unless $end eq 'die';
		gate(0);
		sql("SELECT queue_jobs.retry($job)");
		wait_for_report($job, '0.25 copying', '… until the next run reports');
		gate(3);
		wait_until($node, "SELECT jsonb_array_length(errors) = 2 FROM queue_jobs.job WHERE id = $job");
		is(said($job), '0.5 verifying', '… which stays, too');
		is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'dead', '… of a dead job') if $worker eq 'copies';
	}
}

# A run that another session ends.
gate(1);
for my $call (qw(cancel discard))
{
	my $job = sql(q{SELECT queue_jobs.enqueue('copies', '{"end": "ok"}')}, 'alice');
	wait_for_report($job, '0.5 copying', "a run that $call() ends");
	sql("SELECT queue_jobs.$call($job)", 'alice');
	wait_until($node, "SELECT finished_at IS NOT NULL FROM queue_jobs.job WHERE id = $job");
	is(said($job), '0.5 copying', '… leaves its report');
}

# An executor that is terminated has undone the run. So has a crash.
my $job = sql(q{SELECT queue_jobs.enqueue('copies', '{"end": "ok"}')}, 'alice');
wait_for_report($job, '0.5 copying', 'a run reports');
sql(q{SELECT queue_jobs.pause('copies')});
sql("SELECT pg_terminate_backend(executor_pid) FROM queue_jobs.job WHERE id = $job");
wait_until($node, "SELECT executor_pid IS NULL FROM queue_jobs.job WHERE id = $job");
wait_for_report($job, '- -', 'nothing is left of a run whose executor was terminated');
sql(q{SELECT queue_jobs.resume('copies')});
wait_for_report($job, '0.5 copying', 'it runs again');
sql(q{SELECT queue_jobs.pause('copies')});
kill 'KILL', sql("SELECT executor_pid FROM queue_jobs.job WHERE id = $job");
ok(wait_until($node, "SELECT state = 'retryable' FROM queue_jobs.job WHERE id = $job"), 'its executor is killed');
is(said($job), '- -', '… and nothing is left of its report');
sql(q{SELECT queue_jobs.resume('copies')});
sql("SELECT queue_jobs.cancel($job)");

# ---- claimants ----

my $claimant = in_background($node, user => 'alice');

sub claimed { return $claimant->query(q{SELECT id || ', ' || attempt FROM queue_jobs.claim('me', '{outside}', lease => '1 h')}) }

# In one transaction.
$job = sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice');
$claimant->query('BEGIN');
my $fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, 0.3, 'in a transaction')");
is(said($job, 'alice'), '0.3 in a transaction', 'a claim that is not committed: its report is seen');
is(said($job, 'bob'), '', '… but not by a role that may not see the job');
$claimant->query("SAVEPOINT s; SELECT queue_jobs.report($fence, 0.4); ROLLBACK TO s");
is(said($job), '0.4 in a transaction', 'a rollback to a savepoint does not undo it');
like(error_of("SELECT queue_jobs.report($fence, 0.5)", 'alice'), qr/55000/, 'no other session reports of that claim');
$claimant->query('ROLLBACK');
is(said($job), '- -', 'a claim that is undone has reported nothing');
$claimant->query('BEGIN; SAVEPOINT s');
$fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, 0.3); ROLLBACK TO s");
is(said($job), '- -', '… nor has one in a savepoint');
$fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, 0.6, 'once more')");
is(said($job), '0.6 once more', '… after which it is claimed again');
$claimant->query("SELECT queue_jobs.complete($fence); COMMIT");
is(said($job), '0.6 once more', 'a report of a claimant stays after complete()');

# By a lease.
my %ends = ("queue_jobs.fail(%s, 'no')" => '0.5 copying', "queue_jobs.fail(%s, 'no', final => true)" => '0.5 copying',
	"queue_jobs.snooze(%s, '0')" => '0.5 copying', "queue_jobs.continue_at(%s, '{}')" => '0.5 copying', "queue_jobs.continue_at(%s, '{}', progress => 0.75)" => '0.75 copying');
for my $end (sort keys %ends)
{
	my $call = sprintf($end, sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice') . ', 1');
	$fence = claimed();
	my ($id) = split(/,/, $fence);
	$claimant->query("BEGIN; SELECT queue_jobs.report($fence, 0.5, 'copying')");
	is(said($id), '0.5 copying', "a lease, and a transaction that goes on: the report is seen");
	$claimant->query("ROLLBACK; SELECT $call");
	is($claimant->error, '', '… and kept');
	is(said($id), $ends{$end}, "… at $end");
	sql("SELECT queue_jobs.cancel($id)");
}
is(sql('SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'a session without a transaction ID');
$job = sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice');
$fence = claimed();
is($claimant->query("BEGIN; SELECT count(queue_jobs.report($fence, n)) FROM generate_series(1, 1000) n; SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT"), "1000\nt",
	'a report writes nothing');
like(error_of("SELECT queue_jobs.report($job, 2, 0.5)", 'alice'), qr/55000/, 'an attempt that does not have the job is refused');
like(error_of("SELECT queue_jobs.report($fence, 0.5)", 'bob'), qr/42501/, '… and another role');
like(error_of("SELECT queue_jobs.report($fence, 'NaN')", 'alice'), qr/22023/, '… and a progress that is none');
is(said($job), '1000 -', '… which changes nothing');

# A lease that runs out: the report stays until the next attempt reports.
$claimant->query("SELECT queue_jobs.heartbeat_many(ARRAY[$job], ARRAY[1], '1 ms')");
$claimant->query('BEGIN');
wait_until($node, "SELECT lease_until < clock_timestamp() FROM queue_jobs.job WHERE id = $job");
$fence = claimed();
is($fence, "$job, 2", 'the job is claimed again');
is(said($job), '1000 -', '… with the report of the attempt before');
$claimant->query("SELECT queue_jobs.report($fence, message => 'again')");
is(said($job), '- again', '… until it reports by itself');
$claimant->query('COMMIT');
is(said($job), '- again', '… and commits');
like(error_of("SELECT queue_jobs.report($job, 1, 0.5)", 'alice'), qr/55000/, 'the attempt before is refused');
$claimant->query("BEGIN; SELECT queue_jobs.complete($fence)");
is(said($job), '- again', 'an end that is not committed changes nothing');
$claimant->query('ROLLBACK');
is(said($job), '- again', '… nor does one that is rolled back');
sql("SELECT queue_jobs.cancel($job)");
is(said($job), '- again', 'a claimed job that is cancelled keeps its report');

# A session that ends in the middle of its transaction, and one that prepares it.
$job = sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice');
my $lost = in_background($node, user => 'alice');
my $pid = $lost->pid;
$lost->query(q{BEGIN; SELECT queue_jobs.report(id, attempt, 0.9) FROM queue_jobs.claim('me', '{outside}')});
is(said($job), '0.9 -', 'another session claims, and reports');
$lost->kill_client;
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
is(said($job), '- -', '… and is lost');
$claimant->query('BEGIN');
$fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, 0.9); SELECT queue_jobs.complete($fence); PREPARE TRANSACTION 'reports'");
is(said($job), '- -', 'a prepared transaction shows nothing');
$claimant->query(q{COMMIT PREPARED 'reports'});
is(said($job), '0.9 -', '… until it is committed');

# ---- await_progress() ----

gate(0);
arm('waiter_woken', 'count');
$job = sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice');
my @waiting = map { in_background($node, user => 'alice') } 1 .. 2;
my $asleep = 'SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event_type = \'Extension\' AND pid IN (' . join(',', map { $_->pid } @waiting) . ')';
my $call = "CALL queue_jobs.await_progress($job, NULL, '1 h')";

sub wait_for_both
{
	$_->send($_[0]) foreach @waiting;
	wait_until($node, $asleep);
	counted('waiter_woken');
	return;
}

wait_for_both("CALL queue_jobs.await_progress($job, NULL, '1 h')");
$claimant->query('BEGIN');
$fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, 0.1)");
is($_->result, '0.1|', 'await_progress() is woken by a report of an open transaction') foreach @waiting;
is(counted('waiter_woken'), 2, '… each session once');
is($waiting[0]->query($call), '0.1|', 'it returns at once where the progress is another one already');
wait_for_both("CALL queue_jobs.await_progress($job, 0.1, '1 h')");
$claimant->query("SELECT queue_jobs.report($fence, 0.1) FROM generate_series(1, 100)");
is(counted('waiter_woken'), 0, 'a report that changes nothing wakes no session');
$claimant->query("SELECT queue_jobs.report($fence, message => 'here')");
is($_->result, '0.1|here', '… another message does') foreach @waiting;
wait_for_both("CALL queue_jobs.await_progress($job, 0.1, '1 h')");
$claimant->query("SELECT queue_jobs.complete($fence); COMMIT");
is($_->result, '0.1|here', '… and the end of the job') foreach @waiting;
is($waiting[0]->query("CALL queue_jobs.await_progress($job, 0.1, '1 h')"), '0.1|here', 'of a job that has ended it returns at once');
counted('waiter_woken');
$job = sql(q{SELECT queue_jobs.enqueue('outside')}, 'alice');
$fence = claimed();
$claimant->query("SELECT queue_jobs.report($fence, n) FROM generate_series(1, 1000) n");
is(counted('waiter_woken'), 0, 'reports for which no session waits wake none');
is($waiting[0]->query("CALL queue_jobs.await_progress($job, 1000, '10 ms')"), '1000|', 'after the timeout it returns what there is');
like(error_of("CALL queue_jobs.await_progress($job)", 'bob'), qr/42704/, "another role's job is not there");
like(error_of("BEGIN; CALL queue_jobs.await_progress($job)", 'alice'), qr/2D000/, 'within a transaction it is refused');
$claimant->query("SELECT queue_jobs.complete($fence)");

# The job of an executor; one that is not kept.
$job = sql(q{SELECT queue_jobs.enqueue('copies', '{"end": "ok"}')}, 'alice');
is($waiting[0]->query("CALL queue_jobs.await_progress($job, NULL, '1 h')"), '0.25|copying', 'the report of an executor');
$waiting[0]->send("CALL queue_jobs.await_progress($job, 0.25, '1 h')");
gate(1);
is($waiting[0]->result, '0.5|copying', '… and the next one');
gate(3);
wait_for_job($node, $job, 'completed');
$job = sql(q{SELECT queue_jobs.enqueue('unkept')}, 'alice');
wait_for_both("CALL queue_jobs.await_progress($job, NULL, '1 h')");
$claimant->query(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{unkept}')});
is($claimant->error, '', 'a job that is not kept ends');
is($_->result, '|', '… which the sessions that wait for it learn') foreach @waiting;

# ---- run_due(), assert_idempotent() ----

my $test = in_background($node, user => 'alice');
gate(0);
$test->query('BEGIN');
$job = $test->query(q{SELECT queue_jobs.enqueue('copies', '{"end": "ok"}')});
gate(3);
is($test->query(q{SELECT queue_jobs.run_due('{copies}')}), '1', 'run_due() runs a job that reports');
is($test->query("SELECT state, $said FROM queue_jobs.job WHERE id = $job"), 'completed|0.5 verifying', '… whose report is kept');
$test->query('ROLLBACK');
is(sql(q{SELECT queue_jobs.assert_idempotent('copies', '{"end": "ok"}')}, 'alice'), '', 'assert_idempotent() of a handler that reports');
like(error_of('SELECT queue_jobs.report(0.5)', 'alice'), qr/55000/, 'no job runs here');

# ---- another extension ----

# Its jobs have the ids of those that were there before.
sql('CREATE DATABASE other');
my $other = in_background($node, db => 'other');
for my $report ('0.5', '')
{
	$other->query('CREATE EXTENSION queue_jobs');
	$other->query(q{SELECT queue_jobs.define_worker('outside'), queue_jobs.enqueue('outside')});
	$other->query(q{SELECT queue_jobs.report(id, attempt, 0.5) FROM queue_jobs.claim('me', '{outside}')}) if $report;
	is($other->query('SELECT id, progress FROM queue_jobs.job'), "1|$report", $report ? 'the first job of an extension reports' : '… and the first one of the next has reported nothing');
	$other->query('DROP EXTENSION queue_jobs CASCADE');
	is($other->error =~ /ERROR/ ? $other->error : '', '', '… which is dropped');
}
$other->quit;

# ---- many ----

sql(q{CREATE FUNCTION many() RETURNS void LANGUAGE sql AS $$SELECT count(queue_jobs.report(n, 'row ' || n)) FROM generate_series(1, 100000) n$$});
sql(q{SELECT queue_jobs.define_worker('many', 'public.many')}, 'alice');
my $wal = sql('SELECT pg_current_wal_insert_lsn()');
$job = sql(q{SELECT queue_jobs.enqueue('many')}, 'alice');
wait_for_job($node, $job, 'completed');
is(said($job), '100000 row 100000', 'a run reports 100,000 times');
is(sql("SELECT pg_current_wal_insert_lsn() - '$wal' < 1000000"), 't', '… and writes next to nothing');

$_->quit foreach $claimant, $test, @waiting;
$node->stop;
done_testing();
