# pg_dump carries workers, unfinished jobs and dead ones; restored, the queue goes on by itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('dump', conf => "queue_jobs.idle_timeout = '1s'");
my $dir = PostgreSQL::Test::Utils::tempdir;
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION failing(n int) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'no % today', n; END$$;
CREATE FUNCTION tomorrow(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 day'$$;
SELECT queue_jobs.define_worker('failing', 'public.failing', retry_backoff => 'public.tomorrow');
SELECT queue_jobs.define_worker('deadly', 'public.failing', max_retries => 0);
SELECT queue_jobs.define_worker('outside', queue => 'out', namespace => 'ns', version => 7);
SELECT queue_jobs.define_worker('held');
SELECT queue_jobs.define_worker('keyed', idempotent => true), queue_jobs.define_worker('tenant', concurrency_key => 'tenant', concurrency_limit => 1);
SELECT queue_jobs.disable_worker('held');
SELECT queue_jobs.enqueue('failing', '{"n": 1}');
SELECT queue_jobs.enqueue('deadly', '{"n": 2}');
SELECT queue_jobs.enqueue('quick', '{"n": 3}');
SQL
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE state IN ('retryable', 'dead', 'completed')});
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.pause('quick');
SELECT queue_jobs.pause('empty');
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n), priority => n) FROM generate_series(10, 19) n;
SELECT queue_jobs.enqueue('gated', '{"n": 4}', delay => '1 day', context => '{"who": "me"}', expires_in => '1 hour');
SELECT queue_jobs.enqueue('outside', '{"n": 5}') FROM generate_series(1, 2);
SELECT queue_jobs.claim('claimant', lease => '1 hour');
SELECT queue_jobs.heartbeat('claimant');
SELECT queue_jobs.enqueue('keyed', '{"key": 1}'), queue_jobs.enqueue('keyed', dedup_key => 'token');
SELECT queue_jobs.enqueue('tenant', '{"tenant": 1}') FROM generate_series(1, 2);
SELECT queue_jobs.claim('claimant', '{tenant}', lease => '1 hour');
SELECT queue_jobs.define_worker('options', queue => 'options', idempotent => true, if_waiting => 'replace', dedup_args => '{n}', retry_for => '1 hour', aliases => '{former}', inherit_context => false, max_waiting => 100);
SELECT queue_jobs.enqueue('options', '{"n": 6}', delay => '1 day', max_retries => 3, timeout => '1 min', keep_completed => '2 days', tags => '{a,"b c"}');
SELECT queue_jobs.enqueue('options', jsonb_build_object('n', n), dedup_key => 'quiet', if_waiting => 'debounce', delay => '1 hour', max_delay => '1 day') FROM generate_series(7, 9) n;
SQL

my $own = q{SELECT j.args, j.tags, e.n, e.reason, e.detail FROM queue_jobs.job j, queue_jobs.explain_job(j.id) e WHERE j.worker = 'options' ORDER BY j.id, e.n};
my $explained = $node->safe_psql('postgres', $own);
like($explained, qr/^\{"n": 6\}\|\{a,"b c"\}\|.*max_retries 3, timeout 00:01:00, keep_completed 2 days.*^\{"n": 9\}\|.*puts it off, until/ms, 'a job has options of its own, another is debounced');

my $what = q{SELECT id, worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at, run_at, expires_at, last_error,
	result, owner, claimant FROM queue_jobs.job ORDER BY id};
my $jobs = $node->safe_psql('postgres', $what);
# Duplicates are counted since the server started, in each database by itself.
my $defined = q{SELECT to_jsonb(w) - 'dropped_duplicates' FROM queue_jobs.worker w ORDER BY name};
my $workers = $node->safe_psql('postgres', $defined);
my $paused = $node->safe_psql('postgres', 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1');
is($paused, "empty\nquick", 'two queues are paused');

# Custom format and plain; whole, and in one transaction, as the documents say: what is paused is restored after the jobs.
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--single-transaction', '-d', $node->connstr('restored'), "$dir/dump" ], 'pg_restore');
is($node->safe_psql('restored', $what), $jobs, 'jobs of all states are restored');
is($node->safe_psql('restored', $defined), $workers, 'workers too');
is($node->safe_psql('restored', $own), $explained, '… what a job has of its own, and until when one is debounced');
is($node->safe_psql('restored', q{SELECT queue_jobs.enqueue('former', '{"n": 6, "new": true}', delay => '2 days') = id FROM queue_jobs.job WHERE tags @> '{a}'}), 't',
	'a call by a former name replaces the job that waits');
is($node->safe_psql('restored', q{SELECT queue_jobs.enqueue('options', '{"n": 10}', dedup_key => 'quiet', if_waiting => 'debounce', delay => '1 hour') = id FROM queue_jobs.job WHERE dedup_key = 'quiet'}), 't',
	'another debounces it');
is($node->safe_psql('restored', q{SELECT args FROM queue_jobs.job WHERE worker = 'options' ORDER BY id}), qq({"n": 6, "new": true}\n{"n": 10}), 'the latest calls count');
is($node->safe_psql('restored', 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1'), $paused, 'and what is paused');
is($node->safe_psql('restored', q{SELECT queue_jobs.try_enqueue('keyed', '{"key": 1}') IS NULL, queue_jobs.try_enqueue('keyed', dedup_key => 'token') IS NULL}), 't|t',
	'a job that waits stands for its duplicates');
is($node->safe_psql('restored', q{SELECT count(*) FROM queue_jobs.claim('another', '{tenant}')}), '0', 'a limit that is reached holds');
$node->safe_psql('restored', q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 11 FROM ran', db => 'restored');
is($node->safe_psql('restored', 'SELECT count(DISTINCT n) FROM ran'), '11', 'those that waited run');
cmp_ok($node->safe_psql('restored', q{SELECT queue_jobs.enqueue('held') IS NULL, queue_jobs.enqueue('quick', '{"n": 50}')}),
	'=~', qr/^t\|\d+$/, 'the kill switch is off, still');
is($node->safe_psql('restored', 'SELECT count(*) = count(DISTINCT id) FROM queue_jobs.job'), 't', 'new ids are new');
is($node->safe_psql('restored', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'outside'}),
	'', 'a claimant can complete what it had claimed');
$node->safe_psql('restored', q{CREATE OR REPLACE FUNCTION failing(n int) RETURNS void LANGUAGE sql AS 'SELECT'});
is($node->safe_psql('restored', q{SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE state = 'dead'}), 't', 'a dead job can be retried');
wait_until($node, q{SELECT state = 'completed' FROM queue_jobs.job WHERE worker = 'deadly'}, db => 'restored');
is($node->safe_psql('postgres', $what), $jobs, 'the original is as it was');

# No session resumes or enqueues anything: the restored jobs start by themselves, with no restart.
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 11 FROM ran');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('later', 'public.quick', queue => 'later')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('later', '{"n": 60}', delay => '1 h')});
$node->safe_psql('postgres', q{UPDATE queue_jobs.live_job SET run_at = now() + '4 s' WHERE args = '{"n": 60}'});
$node->command_ok([ 'pg_dump', '-f', "$dir/plain.sql", $node->connstr('postgres') ], 'pg_dump, plain');
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', "$dir/plain.sql" ], 'restored by psql');
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 60', db => 'plain');
pass('a future job starts at its time after the restore');

# What was a role's that has been dropped goes into no dump: its number may be another role's where that is restored.
$node->safe_psql('postgres', <<'SQL');
CREATE DATABASE departed;
CREATE ROLE leaver LOGIN;
GRANT queue_jobs_enqueue, queue_jobs_define, queue_jobs_claim, queue_jobs_read TO leaver;
CREATE ROLE dumper LOGIN;
GRANT pg_read_all_data TO dumper;
SQL
$node->safe_psql('departed', 'CREATE EXTENSION queue_jobs');
for my $role ('leaver', $node->safe_psql('departed', 'SELECT current_user'))
{
	$node->safe_psql('departed', <<SQL);
SET SESSION AUTHORIZATION "$role";
SELECT queue_jobs.define_worker('of $role', keep_completed => CASE WHEN '$role' = 'leaver' THEN interval '1 day' ELSE '1 hour' END);
SELECT queue_jobs.enqueue('of $role', jsonb_build_object('n', n)) FROM generate_series(1, 4) n;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('completes', '{of $role}');
SELECT queue_jobs.discard(max(id)) FROM queue_jobs.job WHERE worker = 'of $role';
SELECT id FROM queue_jobs.claim('works for $role', '{of $role}');
SELECT queue_jobs.heartbeat('works for $role');
SELECT queue_jobs.schedule('of $role', '\@yearly', 'of $role');
SELECT queue_jobs.subscribe('event.*', 'of $role', '{"n": 1}');
SELECT queue_jobs.run_once('token', 'SELECT 1');
SQL
}
$node->safe_psql('departed', <<'SQL');
CREATE FUNCTION public.left_behind(args jsonb) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION public.left_behind OWNER TO leaver;
SELECT queue_jobs.define_worker('left behind', 'public.left_behind');
REASSIGN OWNED BY leaver TO CURRENT_USER;
DROP ROLE leaver;
SQL
my $rows = 'SELECT ' . join q{ || ', ' || }, map { "'$_ ' || (SELECT count(*) FROM queue_jobs.$_)" }
  qw(defined_worker lane live_job finished_job dead_job claimant token defined_schedule event_subscriber);
is($node->safe_psql('departed', $rows), 'defined_worker 3, lane 2, live_job 4, finished_job 4, dead_job 2, claimant 2, token 2, defined_schedule 2, event_subscriber 2', 'two roles, of which one has gone');
like($node->safe_psql('departed', q{SELECT finding FROM queue_jobs.check_workers() WHERE worker = 'of leaver' AND advice ~ 'dump'}), qr/definer.*does not exist/,
	'check_workers() tells of what will be in no dump');
like($node->safe_psql('departed', q{SELECT finding FROM queue_jobs.check_workers() WHERE worker = 'left behind' AND advice ~ 'dump'}), qr/the owner of its handler, role with OID \d+, does not exist/,
	'… also because of who owned a function');
for my $user ('dumper', $node->safe_psql('departed', 'SELECT current_user'))
{
	my $db = "departed_$user";

	$node->command_ok([ 'pg_dump', '-Fc', '-U', $user, '-f', "$dir/$db", $node->connstr('departed') ], "pg_dump by $user");
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($db), "$dir/$db" ], '… restored');
	is($node->safe_psql($db, $rows), 'defined_worker 1, lane 1, live_job 2, finished_job 2, dead_job 1, claimant 1, token 1, defined_schedule 1, event_subscriber 1', '… without what was the role\'s');
	is($node->safe_psql($db, q{SELECT count(*) FROM queue_jobs.publish('event.a', '{"n": 1}')}), '1', '… the subscription counts at once');
	is($node->safe_psql($db, q{SELECT DISTINCT owner = current_user, worker = 'of ' || current_user FROM queue_jobs.job}), 't|t', '… but with all else');
	is($node->safe_psql($db, q{SELECT count(*) FROM (SELECT lane FROM queue_jobs.live_job UNION ALL SELECT lane FROM queue_jobs.finished_job) j
		WHERE lane NOT IN (SELECT id FROM queue_jobs.lane)}), '0', '… each job with its lane');
}

# The data alone, into a database that has the schema.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('quick'); SELECT queue_jobs.enqueue('quick', '{"n": 70}')});
$node->command_ok([ 'pg_dump', '--data-only', '-Fc', '-f', "$dir/data", $node->connstr('postgres') ], 'pg_dump --data-only');
$node->safe_psql('postgres', 'CREATE DATABASE data');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--schema-only', '-d', $node->connstr('data'), "$dir/dump" ], 'the schema');
$node->command_checks_all([ 'pg_restore', '--exit-on-error', '--data-only', '-d', $node->connstr('data'), "$dir/data" ], 0, [], [], 'the data');
$node->safe_psql('data', q{SELECT queue_jobs.resume('quick')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE args = '{"n": 70}' AND state = 'completed'}, db => 'data');
pass('its waiting jobs run');

# ---- A restore in many transactions: nothing runs before it is over, and everything after it ----

# What the jobs need comes late: rows of a table that pg_dump puts after ours (whose check lets the restore go on when the test says so), a
# trigger, rights. And workers that make jobs of their own would take ids that the dump has.
$node->safe_psql('postgres', <<'SQL');
CREATE DATABASE source;
CREATE ROLE app LOGIN;
SQL
$node->safe_psql('source', <<'SQL');
CREATE EXTENSION queue_jobs;
CREATE SCHEMA zoo;
CREATE FUNCTION zoo.opened() RETURNS boolean LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(42) IS NOT NULL';
CREATE TABLE zoo.late (n int CHECK (zoo.opened()));
INSERT INTO zoo.late VALUES (1);
CREATE TABLE zoo.ran (n int, triggered boolean);
CREATE FUNCTION zoo.triggered() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.triggered := true; RETURN NEW; END';
CREATE TRIGGER triggered BEFORE INSERT ON zoo.ran FOR EACH ROW EXECUTE FUNCTION zoo.triggered();
CREATE FUNCTION zoo.work(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM zoo.late) THEN
		RAISE 'too early';
	END IF;
	INSERT INTO zoo.ran VALUES (work.n);
END
$$;
CREATE TABLE zoo.record (id int PRIMARY KEY, status text);
INSERT INTO zoo.record SELECT n, 'pending' FROM generate_series(1, 5) n;
CREATE FUNCTION zoo.heal(id int) RETURNS void LANGUAGE sql AS $$UPDATE zoo.record SET status = 'done' WHERE record.id = heal.id$$;
GRANT USAGE ON SCHEMA zoo, queue_jobs TO app;
GRANT INSERT ON zoo.ran TO app;
GRANT SELECT ON zoo.late TO app;
GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO app;
SELECT queue_jobs.define_worker(name, 'zoo.work', max_retries => 0) FROM unnest('{work,capacity}'::text[]) name;
SELECT queue_jobs.pause(name) FROM unnest('{work,capacity,heal}'::text[]) name;
SELECT queue_jobs.define_worker('capacity', 'zoo.work', max_running_jobs => 2, remaining_work =>
	$$SELECT '{"n": -1}'::jsonb FROM zoo.late WHERE (SELECT count(*) FROM zoo.ran WHERE n < 0) < 2$$);
SELECT queue_jobs.define_worker('heal', 'zoo.heal', idempotent => true, record => 'zoo.record', record_key => 'id', pending => $$status = 'pending'$$,
	heal_every => '1 s', heal_after => '1 s');
SELECT queue_jobs.enqueue('work', jsonb_build_object('n', n)) FROM generate_series(1, 10) n;
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.enqueue('work', jsonb_build_object('n', n)) FROM generate_series(11, 20) n;
SQL
# The dump's queues are not paused, or nothing would be tested.
$node->command_ok([ 'pg_dump', '-Fc', '--exclude-table-data=queue_jobs.paused_queue', '-f', "$dir/source", $node->connstr('source') ], 'pg_dump of what waits');
$node->command_ok([ 'pg_restore', '-f', "$dir/source.sql", "$dir/source" ], '… as SQL');
unlike(slurp_file("$dir/source.sql"), qr/^COPY queue_jobs.paused_queue/m, 'without pauses');

my %ways = (
	'pg_restore' => [ 'pg_restore', '--exit-on-error', "$dir/source", '-d' ],
	'pg_restore --jobs' => [ 'pg_restore', '--exit-on-error', '--jobs', '2', "$dir/source", '-d' ],
	'psql' => [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/source.sql", '-d' ]);
foreach my $way (sort keys %ways)
{
	my $db = $way =~ tr/a-z//cdr;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	my $gate = in_background($node, db => $db);
	$gate->query('SELECT pg_advisory_lock(42)');
	my $restore = IPC::Run::start([ @{ $ways{$way} }, $node->connstr($db) ], '<', \undef);
	wait_until($node, q{SELECT count(*) = 20 AND bool_and(waits_for ~ '^a restore') FROM queue_jobs.job WHERE worker = 'work'}, db => $db);
	wait_until($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted}, db => $db);
	wait_for_no_processes($node, $db);		# who was there is told to leave, and not waited for
	is($node->safe_psql($db, qq{SELECT count(*) FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'queue_jobs%'}), '0',
		"$way: no process of ours is in the database while it is under way");
	$gate->query('SELECT pg_advisory_unlock(42)');
	$gate->quit;
	ok(IPC::Run::finish($restore), $way);
	wait_until($node, q{SELECT count(*) >= 22 AND count(*) FILTER (WHERE n > 0) = 20 AND bool_and(triggered) FROM zoo.ran}, db => $db);
	wait_until($node, q{SELECT bool_and(status = 'done') FROM zoo.record}, db => $db);
	is($node->safe_psql($db, q{SELECT count(*) FROM queue_jobs.job WHERE state = 'dead'}), '0', '… what waited runs, with all that it needs');
	$node->safe_psql('postgres', "DROP DATABASE $db WITH (FORCE)");
}
cmp_ok(log_count($node, 'queue_jobs runs nothing in database "pgrestore" until this session ends'), '==', 1, 'the log says why');

$node->stop;
done_testing();
