# Schedules: each tick once, whatever stops the server; ticks missed while it was down; commands that commit on their way;
# processes that come for a tick and leave.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('schedules', init => [ allows_streaming => 1 ], conf => <<'CONF');
restart_after_crash = on
queue_jobs.idle_timeout = '500ms'
CONF
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE tick (schedule text, at timestamptz, made timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION tick() RETURNS void LANGUAGE sql AS $$
	INSERT INTO tick (schedule, at) SELECT schedule, run_at FROM queue_jobs.current_job();
$$;
SELECT queue_jobs.define_worker('tick', 'public.tick');
SQL

# ---- each tick once ----

# Every second: one that makes up for everything, one by the calendar that does once, one for a command, one that skips.
my $begin = $node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.schedule('all', 'every 1 second', 'tick', if_running => 'allow', catch_up => 'all');
SELECT queue_jobs.schedule('in order', '* * * * * *', 'tick', if_running => 'queue', catch_up => 'all');
SELECT queue_jobs.schedule('once', '* * * * * *', 'tick');
SELECT queue_jobs.schedule('skip', '* * * * * *', 'tick', catch_up => 'skip');
SELECT queue_jobs.schedule('command', 'every 1 second', command => 'SELECT public.tick()', if_running => 'allow', catch_up => 'all', max_retries => 5);
SQL
# How many seconds of ticks there must be from the first, and that there are no others.
sub check_all_there
{
	my ($when, $server) = @_;

	$server //= $node;
	for my $schedule ('all', 'command')
	{
		# until the ticks up to now have been made up for
		my $now = $server->safe_psql('postgres', 'SELECT now()');
		wait_until($server, "SELECT max(at) >= timestamptz '$now' - interval '1 second' FROM tick WHERE schedule = '$schedule'");
		wait_until($server, "SELECT count(*) = count(DISTINCT at) AND count(*) >= extract(epoch FROM max(at) - min(at)) + 1 FROM tick WHERE schedule = '$schedule'");
		pass("$when: each tick of \"$schedule\" ran once");
	}
	is($server->safe_psql('postgres', q{SELECT schedule FROM tick GROUP BY schedule, at HAVING count(*) > 1}), '', "$when: no tick ran twice");
	is($server->safe_psql('postgres', q{SELECT name, error FROM queue_jobs.schedule WHERE error IS NOT NULL}), '', "$when: nothing is wrong");
}

# Enough ticks of it for something to be in the middle.
sub wait_for_ticks
{
	my ($count, $server) = @_;

	$server //= $node;
	my $since = $server->safe_psql('postgres', 'SELECT clock_timestamp()');
	wait_until($server, "SELECT count(*) >= $count FROM tick WHERE schedule = 'once' AND made > '$since'");
}

wait_for_ticks(2);
check_all_there('undisturbed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE schedule = 'all' AND started_at < run_at}), '0', 'no tick is before its time');

sub process
{
	my ($type) = @_;

	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs $type' AND datname IS NOT DISTINCT FROM "
		. ($type eq 'launcher' ? 'NULL' : q{'postgres'}) . ' LIMIT 1');
}

# kill -9 of each kind of process restarts the server's processes.
for my $type (qw(scheduler executor launcher))
{
	my $pid = process($type);
	SKIP:
	{
		skip "no $type at that moment", 1 if $pid eq '';
		kill 'KILL', $pid;
		wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
		pass("kill -9 of a $type");
	}
	wait_for_ticks(2);
}
check_all_there('after kill -9');

# pg_terminate_backend() takes just that process.
for my $type (qw(scheduler executor))
{
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs $type'");
	wait_for_ticks(2);
}
check_all_there('after pg_terminate_backend');

# The server down for some ticks.
my $down;
for my $how (qw(immediate fast))
{
	$node->stop($how);
	$down = time;
	sleep 1 while time < $down + 4;
	$node->start;
	wait_for_ticks(2);
	check_all_there("after a stop ($how) and 4 seconds");
	# Of those that may not overlap, too, all that were missed are there (one that falls due while one waits is dropped, as always).
	wait_until($node, qq{
		SELECT count(*) = 0 FROM generate_series(to_timestamp($down + 1), date_trunc('second', pg_postmaster_start_time()), '1 second') AS missed
		 WHERE NOT EXISTS (SELECT FROM tick WHERE schedule = 'in order' AND at = missed)});
	pass("… and those in order");
}
# What "once" and "skip" made of it. Time before the last start: that of the postmaster, which is before jobs can run.
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM tick WHERE schedule = 'skip' AND at BETWEEN pg_postmaster_start_time() - interval '3 seconds' AND pg_postmaster_start_time()}),
	'0', 'skip: those missed were skipped');
is( $node->safe_psql('postgres', qq{
	SELECT count(*) FILTER (WHERE at > to_timestamp($down)) <= 1 AND count(*) FILTER (WHERE made > pg_postmaster_start_time()) >= 1
	  FROM tick WHERE schedule = 'once' AND at < pg_postmaster_start_time()}), 't', 'once: one for all that were missed');

# Two sessions steer while it ticks: a schedule that a session has locked keeps no other.
my $session = in_background($node);
$session->query(q{BEGIN; SELECT queue_jobs.schedule('once', '* * * * * *', 'tick')});
my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM tick WHERE schedule = 'once'});
wait_until($node, q{SELECT count(*) >= 2 FROM tick WHERE schedule = 'skip' AND made > now() - interval '1.5 seconds'});
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM tick WHERE schedule = 'once'}), '<=', $count + 1, 'a schedule that is locked does not tick');
$session->query('COMMIT');
$session->quit;
wait_for_ticks(2);
check_all_there('after a lock');

# ---- failover ----

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
wait_for_ticks(2);
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.schedule'), '5', 'a standby shows the schedules');
my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT queue_jobs.unschedule('all')");
like($err, qr/ERROR:  25006:/, 'and changes none');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.next_runs('@daily')}), '5', 'next_runs() works there');
$node->stop('immediate');
$standby->promote;
wait_for_ticks(3, $standby);
check_all_there('after failover', $standby);
$standby->stop;

# ---- dump and restore ----

$node->start;
$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state IN ('available', 'executing')});
$node->safe_psql('postgres', <<'SQL');
TRUNCATE tick;
CREATE ROLE app LOGIN;
GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA queue_jobs TO app;
GRANT ALL ON tick TO app;
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.schedule('in July', '0 0 1 7 *', 'tick', '{}', 'Europe/Berlin', 'queue', 'all');
SELECT queue_jobs.schedule('yearly', '@yearly', command => 'SELECT public.tick()', timeout => '1 min', max_retries => 3);
SQL
my $dir = PostgreSQL::Test::Utils::tempdir;
my $what = 'SELECT name, cron, timezone, worker, args, command, if_running, catch_up, timeout, max_retries, owner, next_run FROM queue_jobs.schedule ORDER BY name';
my $schedules = $node->safe_psql('postgres', $what);
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), "$dir/dump" ], 'pg_restore');
is($node->safe_psql('restored', $what), $schedules, 'schedules are restored');
# A tick that is overdue in the dump waits until all of it is restored, however long that takes; then it comes, and is new.
# (Rights are restored last: the first attempt may come too soon for them, and is repeated.)
my $next = $node->safe_psql('postgres', q{SELECT next_run FROM queue_jobs.schedule WHERE name = 'yearly'});
$node->command_ok([ 'pg_dump', '-f', "$dir/plain", $node->connstr('postgres') ], 'pg_dump, plain');
my $script = slurp_file("$dir/plain");
is($script =~ s/\Q$next\E/2020-01-01 00:00:00+00/g, 1, 'a tick is overdue');
is($script =~ s/^(COPY queue_jobs\.(?:lane|live_job) )/SELECT pg_sleep(1);\n$1/gm, 2, 'the restore takes its time');
append_to_file("$dir/slow", $script);
$node->safe_psql('postgres', 'CREATE DATABASE ticks');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('ticks'), '-f', "$dir/slow" ], 'the restore is not disturbed');
my $last = $node->safe_psql('postgres', 'SELECT max(id) FROM queue_jobs.job');
wait_until($node, q{SELECT count(*) = 1 FROM tick WHERE schedule = 'yearly'}, db => 'ticks');
is($node->safe_psql('ticks', qq{SELECT owner, state, max_attempts, id > $last FROM queue_jobs.job WHERE schedule = 'yearly'}),
	'app|completed|4|t', 'a restored schedule ticks, as its owner');
is($node->safe_psql('ticks', q{SELECT last_run, next_run, last_state, error FROM queue_jobs.schedule WHERE name = 'yearly'}),
	"2020-01-01 00:00:00+00|$next|completed|", '… and goes on');

# ---- what waits for the last job to end ----

$node->safe_psql('postgres', 'CREATE DATABASE quiet');
$node->safe_psql('quiet', <<'SQL');
CREATE EXTENSION queue_jobs;
SELECT queue_jobs.define_worker('outside');
SELECT queue_jobs.schedule('tick', 'every 1000 days', 'outside', if_running => 'queue', catch_up => 'skip');
SELECT queue_jobs.schedule('by hand', 'every 1000 days', 'outside', if_running => 'queue', catch_up => 'skip');
SELECT queue_jobs.run_now(name) FROM queue_jobs.schedule;
SQL
# It was not missed while the server was down: it comes in any case.
$node->safe_psql('quiet', q{UPDATE queue_jobs.defined_schedule SET next_run = now() WHERE name = 'tick'});
is($node->safe_psql('quiet', q{SELECT queue_jobs.run_now('by hand') IS NULL}), 't', 'a run by hand waits');
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.defined_schedule WHERE waiting IS NOT NULL}, db => 'quiet');
$node->restart;
$node->safe_psql('quiet', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', max_jobs => 2)});
wait_until($node, qq{SELECT count(*) = 2 FROM queue_jobs.job WHERE schedule = '$_'}, db => 'quiet') foreach ('tick', 'by hand');
is($node->safe_psql('quiet', q{SELECT count(*), min(next_run) > now() + '999 days', count(waiting) FROM queue_jobs.defined_schedule}), '2|t|0', 'a run that waited comes after a restart, too');

# A run_now() that makes no job has the schedule's row as long as its transaction lasts; a tick that is due meanwhile comes then. (Else after a minute.)
$node->safe_psql('quiet', q{SELECT queue_jobs.schedule(n, 'every 1000 days', 'outside') FROM unnest(ARRAY['locked', 'looked']) n; SELECT queue_jobs.run_now('locked')});
$node->safe_psql('quiet', q{UPDATE queue_jobs.defined_schedule SET next_run = now() + '3 s' WHERE name IN ('locked', 'looked')});
$session = in_background($node, db => 'quiet');
is($session->query(q{BEGIN; SELECT queue_jobs.run_now('locked') IS NULL}), 't', 'a job runs');
wait_until($node, q{SELECT last_run IS NOT NULL FROM queue_jobs.schedule WHERE name = 'looked'}, db => 'quiet');
my $let_go = $node->safe_psql('quiet', 'SELECT clock_timestamp()');
$session->query('COMMIT');
$session->quit;
wait_until($node, q{SELECT skipped = 1 FROM queue_jobs.schedule WHERE name = 'locked'}, db => 'quiet');
is($node->safe_psql('quiet', "SELECT clock_timestamp() - '$let_go' < '55 s'"), 't', 'a schedule is looked at when its row is let go');

# ---- idle ----

# A database whose next tick is an hour away has no process; it comes back for it, and leaves.
$node->safe_psql('postgres', 'CREATE DATABASE idle');
$node->safe_psql('idle', 'CREATE EXTENSION queue_jobs; CREATE TABLE tick (at timestamptz)');
$node->safe_psql('idle', q{SELECT queue_jobs.schedule('hourly', 'every 1 hour', command => 'INSERT INTO tick SELECT run_at FROM queue_jobs.current_job()')});
wait_for_no_processes($node, 'idle');
is($node->safe_psql('idle', 'SELECT count(*) FROM tick'), '0', 'no process is there before the tick');
$node->safe_psql('idle', q{UPDATE queue_jobs.defined_schedule SET next_run = now() + interval '4 seconds'});
wait_for_no_processes($node, 'idle');
wait_until($node, 'SELECT count(*) = 1 FROM tick', db => 'idle');
# (Who is not called looks again after a minute.)
is($node->safe_psql('idle', q{SELECT started_at - run_at BETWEEN '0' AND '55 s' FROM queue_jobs.job}), 't', 'a process has come for it in time');
wait_for_no_processes($node, 'idle');
is($node->safe_psql('idle', q{SELECT next_run - last_run FROM queue_jobs.schedule}), '01:00:00', 'and has left');
# After a restart, too.
$node->restart;
$node->safe_psql('idle', q{UPDATE queue_jobs.defined_schedule SET next_run = now() + interval '3 seconds'});
wait_for_no_processes($node, 'idle');
$node->restart;
wait_until($node, 'SELECT count(*) = 2 FROM tick', db => 'idle');
pass('a restart changes nothing of that');

# ---- commands ----

$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule});
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE step (n int, role name DEFAULT session_user);
GRANT ALL ON step TO app;
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.step VALUES (1);
	COMMIT;
	WHILE NOT EXISTS (SELECT FROM public.gate WHERE n = 77) LOOP
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP;
	INSERT INTO public.step VALUES (2);
END
$$;
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.schedule('steps', '@yearly', command => 'CALL public.steps()');
SELECT queue_jobs.schedule('write', '@yearly', command => $$INSERT INTO public.step VALUES (10);
	DO 'BEGIN WHILE NOT EXISTS (SELECT FROM public.gate WHERE n = 78) LOOP PERFORM pg_sleep(0.02); END LOOP; END'$$);
SQL
my $steps = $node->safe_psql('postgres', q{SELECT queue_jobs.run_now('steps')});
my $write = $node->safe_psql('postgres', q{SELECT queue_jobs.run_now('write')});
wait_until($node, 'SELECT count(*) = 1 FROM step');
wait_for_job($node, $write, 'executing');
my $started = $node->safe_psql('postgres', "SELECT started_at FROM queue_jobs.job WHERE id = $write");
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND query LIKE '%INSERT%'}), '0', 'a command is not shown in pg_stat_activity');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (77), (78)');
wait_for_job($node, $_, 'completed') foreach ($steps, $write);
is($node->safe_psql('postgres', "SELECT attempt, started_at > '$started' FROM queue_jobs.job WHERE id IN ($steps, $write)"), "1|t\n1|t", 'commands run again after the server was stopped, not charged');
is($node->safe_psql('postgres', 'SELECT n, count(*) > 0, min(role) FROM step GROUP BY n ORDER BY n'), "1|t|app\n2|t|app\n10|t|app", '… as their owner');
is($node->safe_psql('postgres', 'SELECT count(*) FROM step WHERE n = 10'), '1', '… and what does not commit on its way happened once');
# One that takes its process down is not tried again, for retries are off.
$node->safe_psql('postgres', q{SELECT queue_jobs.schedule('crash', '@yearly', command => 'SELECT pg_sleep(600)')});
my $crash = $node->safe_psql('postgres', q{SELECT queue_jobs.run_now('crash')});
wait_until($node, "SELECT count(*) = 1 FROM queue_jobs.job j JOIN pg_stat_activity a ON a.pid = executor_pid WHERE j.id = $crash AND wait_event = 'PgSleep'");
kill 'KILL', $node->safe_psql('postgres', "SELECT executor_pid FROM queue_jobs.job WHERE id = $crash");
wait_for_job($node, $crash, 'dead');
pass('a command whose process was killed is dead');

# A long command keeps no others: each executor has its own.
$node->safe_psql('postgres', q{DELETE FROM gate; SELECT queue_jobs.schedule('crash', '@yearly', command => 'SELECT pg_sleep(600)'); SELECT queue_jobs.run_now('crash')});
$node->safe_psql('postgres', q{SELECT queue_jobs.schedule('vacuum', '@yearly', command => 'VACUUM step')});
wait_for_job($node, $node->safe_psql('postgres', q{SELECT queue_jobs.run_now('vacuum')}), 'completed');
is($node->safe_psql('postgres', q{SELECT last_state FROM queue_jobs.schedule WHERE name = 'crash'}), 'executing', 'a long command keeps no other');
$node->safe_psql('postgres', q{SELECT queue_jobs.cancel(last_job) FROM queue_jobs.schedule WHERE name = 'crash'});

# The extension's owner can stop all commands at once.
$node->safe_psql('postgres', q{SELECT queue_jobs.disable_worker('queue_jobs.command')});
is($node->safe_psql('postgres', q{SELECT queue_jobs.run_now('vacuum') IS NULL}), 't', 'the kill switch of commands');
$node->safe_psql('postgres', q{SELECT queue_jobs.enable_worker('queue_jobs.command')});
wait_for_job($node, $node->safe_psql('postgres', q{SELECT queue_jobs.run_now('vacuum')}), 'completed');

# A role that is dropped harms its own schedule only.
$node->safe_psql('postgres', q{SELECT queue_jobs.schedule('other', 'every 1 second', 'tick')});
$node->safe_psql('postgres', 'DROP OWNED BY app');
$node->safe_psql('restored', 'DROP OWNED BY app');
$node->safe_psql('ticks', 'DROP OWNED BY app');
$node->safe_psql('postgres', 'DROP ROLE app');
# Only now: the job of a tick before would wait for its owner, and the schedule would skip all others for it.
$node->safe_psql('postgres', q{UPDATE queue_jobs.defined_schedule SET cron = 'every 1 second', next_run = now() WHERE name = 'steps'});
wait_until($node, q{SELECT error ~ '^role with OID \d+ does not exist$' FROM queue_jobs.schedule WHERE name = 'steps'});
my $since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
wait_until($node, "SELECT count(*) >= 2 FROM tick WHERE schedule = 'other' AND made > '$since'");
cmp_ok(log_count($node, qr/role with OID \d+ does not exist/), '<=', 2, 'and is logged once, not at each tick');

$node->stop;
done_testing();
