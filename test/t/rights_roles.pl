# Jobs run as their own role, in a process that is that role's from the start; a role that cannot run jobs leaves them
# waiting, with the reason, until it can.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('roles', conf => "queue_jobs.idle_timeout = '2s'\nqueue_jobs.max_executors = 8");
define_gated($node);
$node->safe_psql('postgres', 'CREATE DATABASE quiet');
$node->safe_psql('quiet', 'CREATE EXTENSION queue_jobs');
define_gated($node, db => 'quiet');
for my $db (qw(postgres quiet))
{
	$node->safe_psql($db, <<'SQL');
DO $$ BEGIN
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN; CREATE ROLE group_role;
	GRANT group_role TO alice;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
GRANT USAGE ON SCHEMA queue_jobs TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO PUBLIC;
GRANT SELECT ON queue_jobs.job TO PUBLIC;
SQL
}

# Enqueues as that role; returns the id.
sub enqueue_as
{
	my ($role, $n, %opts) = @_;

	my $worker = $opts{worker} // 'quick';
	return $node->safe_psql($opts{db} // 'postgres',
		"SET SESSION AUTHORIZATION $role; SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', $n))");
}

# In a database where nothing else happens: found at the regular look, at the end of this file.
$node->safe_psql('quiet', 'REVOKE CONNECT ON DATABASE quiet FROM PUBLIC');
my $quiet = enqueue_as('bob', 1, db => 'quiet');
like($node->safe_psql('quiet', "SELECT waits_for FROM queue_jobs.job WHERE id = $quiet"), qr/bob.*connect/, 'without CONNECT a job waits, and says why');
wait_for_no_processes($node, 'quiet');
my $since = $node->safe_psql('quiet', 'GRANT CONNECT ON DATABASE quiet TO bob; SELECT clock_timestamp()');

# Each as its own.
for my $role (qw(alice bob carol))
{
	enqueue_as($role, $_) foreach 1 .. 5;
}
wait_until($node, 'SELECT count(*) = 15 FROM ran');
is($node->safe_psql('postgres', 'SELECT role, count(*), count(DISTINCT pid) > 0 FROM ran GROUP BY 1 ORDER BY 1'),
	"alice|5|t\nbob|5|t\ncarol|5|t", 'each job had the session of its own role');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM ran GROUP BY pid HAVING count(DISTINCT role) > 1) p'), '0', 'no process served two roles');
is($node->safe_psql('postgres', 'SET SESSION AUTHORIZATION alice; SELECT count(*), min(owner), max(owner) FROM queue_jobs.job'), '5|alice|alice', 'a role sees its own jobs');

# What a handler does to become another role, or to leave something behind.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE outcome (n int, what text);
GRANT ALL ON outcome TO PUBLIC;
CREATE FUNCTION escape(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO outcome VALUES (n, session_user || ' ' || current_user || ' ' || current_setting('is_superuser'));
	IF n = 1 THEN RESET ROLE; END IF;
	IF n = 2 THEN RESET SESSION AUTHORIZATION; END IF;
	IF n = 3 THEN SET SESSION AUTHORIZATION DEFAULT; END IF;
	IF n = 4 THEN SET ROLE group_role; END IF;
	IF n = 5 THEN SET search_path = pg_temp; SET work_mem = '77MB'; CREATE TEMPORARY TABLE left_behind (); PERFORM pg_advisory_lock(77); END IF;
	IF n = 6 THEN EXECUTE 'PREPARE left_behind AS SELECT 1'; EXECUTE 'LISTEN left_behind'; END IF;
	INSERT INTO public.outcome VALUES (n, session_user || ' ' || current_user || ' ' || current_setting('is_superuser'));
END
$$;
CREATE FUNCTION look(n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO outcome VALUES (look.n, concat_ws(' ', current_user, current_setting('work_mem'), current_setting('search_path'), to_regclass('pg_temp.left_behind'),
		(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND pid = pg_backend_pid()),
		(SELECT count(*) FROM pg_listening_channels())));
$$;
SELECT queue_jobs.define_worker('escape', 'public.escape', max_retries => 0);
SELECT queue_jobs.define_worker('look', 'public.look');
SQL
for my $n (1 .. 6)
{
	my $id = enqueue_as('alice', $n, worker => 'escape');
	wait_until($node, "SELECT state IN ('completed', 'dead') FROM queue_jobs.job WHERE id = $id");
	$id = enqueue_as('alice', 100 + $n, worker => 'look');
	wait_for_job($node, $id, 'completed');
}
is($node->safe_psql('postgres', q{SELECT DISTINCT split_part(what, ' ', 1), split_part(what, ' ', 3) FROM outcome WHERE n < 100}), 'alice|off', 'no handler became anybody else');
is( $node->safe_psql('postgres', q{SELECT DISTINCT what FROM outcome WHERE n > 100}),
	'alice 4MB "$user", public 0 0 0', 'nor is anything left for the next job');

# run_as definer.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('as_definer', 'public.quick', run_as => 'definer')});
my $id = enqueue_as('alice', 50, worker => 'as_definer');
wait_for_job($node, $id, 'completed');
is($node->safe_psql('postgres', 'SELECT role = (SELECT rolname FROM pg_roles WHERE oid = 10) FROM ran WHERE n = 50'), 't', 'run_as => definer');
is($node->safe_psql('postgres', "SELECT owner FROM queue_jobs.job WHERE id = $id"), 'alice', '… for the owner');

# Roles that cannot log in, may not connect, or are gone.
$node->safe_psql('postgres', 'ALTER ROLE carol NOLOGIN; REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO alice, carol');
my $nologin = enqueue_as('carol', 60);
my $noconnect = enqueue_as('bob', 61);
like($node->safe_psql('postgres', "SELECT waits_for FROM queue_jobs.job WHERE id = $nologin"), qr/carol.*log in/, 'without LOGIN a job waits, and says why');
like($node->safe_psql('postgres', "SELECT waits_for FROM queue_jobs.job WHERE id = $noconnect"), qr/bob.*connect/, 'without CONNECT too');
$id = enqueue_as('alice', 62);
wait_for_job($node, $id, 'completed');
is($node->safe_psql('postgres', "SELECT state, attempt FROM queue_jobs.job WHERE id IN ($nologin, $noconnect)"), "available|0\navailable|0", 'and does not keep others');
is($node->safe_psql('postgres', "SELECT string_agg(reason, ' ' ORDER BY n) FROM queue_jobs.explain_job($_->[0])"), $_->[1], "$_->[1], to programs") foreach [ $nologin, 'cannot_log_in' ], [ $noconnect, 'cannot_connect' ];
$node->safe_psql('postgres', 'ALTER ROLE carol LOGIN; GRANT CONNECT ON DATABASE postgres TO bob');
# (Anything that happens in the queue makes the scheduler look again.)
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 63}')});
wait_for_job($node, $_, 'completed') foreach ($nologin, $noconnect, $id);
is($node->safe_psql('postgres', 'SELECT n, role, attempt FROM ran WHERE n IN (60, 61) ORDER BY 1'), "60|carol|1\n61|bob|1", 'given back, they run');

$node->safe_psql('postgres', 'CREATE ROLE dave LOGIN; GRANT CONNECT ON DATABASE postgres TO dave');
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('quick')});
my $gone = enqueue_as('dave', 70);
$node->safe_psql('postgres', 'REVOKE CONNECT ON DATABASE postgres FROM dave; DROP ROLE dave');
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
$id = enqueue_as('alice', 71);
wait_for_job($node, $id, 'completed');
like($node->safe_psql('postgres', "SELECT state || ': ' || waits_for FROM queue_jobs.job WHERE id = $gone"), qr/^available: role .* does not exist/, 'a dropped role: its job waits, and says why');
is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($gone)"), 't', 'and can be cancelled');

# One role's job of a key does not keep another's from running.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('keyed', 'public.gated', idempotent => true, deduplicate => 'until_executed')});
my @keyed = map { $node->safe_psql('postgres', "SET SESSION AUTHORIZATION $_; SELECT queue_jobs.enqueue('keyed', '{\"n\": 90}')") } ('alice', 'bob');
wait_until($node, "SELECT count(*) = 2 FROM queue_jobs.job WHERE id IN ($keyed[0], $keyed[1]) AND state = 'executing'");
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (90)');
wait_for_job($node, $_, 'completed') foreach @keyed;
pass('jobs of one key, but of two roles, run at once');

# A role whose executors fail to connect (too many connections of its own) does not stop the others.
$node->safe_psql('postgres', 'ALTER ROLE bob CONNECTION LIMIT 0');
my $limited = enqueue_as('bob', 80);
$id = enqueue_as('alice', 81);
wait_for_job($node, $id, 'completed');
pass('a role at its connection limit keeps no other waiting');

# No process of ours can connect. (A session that is connected already sees what it has been told.)
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type ~ '^queue_jobs'});
my $inside = in_background($node);
$inside->query('SELECT 1');			# it is connected
$node->safe_psql('quiet', 'ALTER DATABASE postgres ALLOW_CONNECTIONS false');
$inside->query(q{INSERT INTO gate VALUES (82); SELECT queue_jobs.enqueue('gated', '{"n": 82}')});
is( $inside->query(q{DO $$BEGIN
	WHILE NOT (SELECT bool_or(e.reason = 'scheduler_failed') FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE worker = 'gated' AND args ->> 'n' = '82') LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END$$;
SELECT 'it says so'}), 'it says so', 'a job says that the scheduler cannot connect');
$node->safe_psql('quiet', 'ALTER DATABASE postgres ALLOW_CONNECTIONS true');
$inside->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 83}')});
wait_until($node, q{SELECT count(*) = 1 FROM ran WHERE n = 82});
$inside->quit;

# The quiet database: a look once a minute.
wait_for_job($node, $quiet, 'completed', db => 'quiet');
is($node->safe_psql('quiet', "SELECT started_at - '$since' < '100 s' FROM queue_jobs.job WHERE id = $quiet"), 't',
	'CONNECT given back where nothing else happens: it runs after a minute at most');

$node->stop;
done_testing();
