# Too few worker slots or executors: jobs wait, no process spins, the log says once what to increase; and when there are
# only few executors, all roles and databases get their turn.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

# The launcher and two more: that is all.
my $node = new_node('slots', extension => 0, conf => <<'CONF');
max_worker_processes = 3
max_logical_replication_workers = 0
max_parallel_workers = 0
queue_jobs.idle_timeout = '300ms'
CONF
for my $db (qw(one two three))
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION queue_jobs');
	define_gated($node, db => $db);
	# Who was called for the workers has come when a job has run.
	$node->safe_psql($db, 'INSERT INTO gate VALUES (0)');
	my $first = $node->safe_psql($db, q{SELECT queue_jobs.enqueue('gated', '{"n": 0}')});
	wait_for_job($node, $first, 'completed', db => $db);
	wait_for_no_processes($node, $db);
}

my $id = $node->safe_psql('one', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}')});
wait_for_job($node, $id, 'executing', db => 'one');
wait_for_job($node, $node->safe_psql('two', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}')}), 'executing', db => 'two');
$node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(11, 15) n});
for my $n (21 .. 25)
{
	$node->safe_psql('three', "SELECT queue_jobs.enqueue('quick', '{\"n\": $n}')");
	$node->safe_psql('one', "SELECT queue_jobs.enqueue('quick', '{\"n\": $n}')");
}
wait_until($node, 'SELECT true') until log_count($node, 'no free background worker slot for an executor')
  && log_count($node, 'no free background worker slot for a scheduler');
is( $node->safe_psql($_, q{SELECT state, count(*) FROM queue_jobs.job WHERE worker = 'quick' GROUP BY 1}),
	'available|' . ($_ eq 'one' ? 10 : 5), "no slot is free: jobs of database $_ wait")
  foreach qw(one three);
is($node->safe_psql('three', 'SELECT DISTINCT waits_for FROM queue_jobs.job WHERE state = \'available\''), 'no background worker slot is free (max_worker_processes)', 'a job says so');
is($node->safe_psql('three', 'SELECT DISTINCT e.reason FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE state = \'available\' AND e.n = 1'), 'no_executors', 'to programs, too');
like($node->safe_psql('one', 'SELECT DISTINCT waits_for FROM queue_jobs.job WHERE state = \'available\''), qr/^all executors for it are busy/, 'beside one that is busy, jobs wait for it');
is($node->safe_psql('one', "SELECT DISTINCT e.hint ~ 'pool of \"queue_jobs.pools\"' FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE state = 'available' AND e.reason = 'executors_busy'"),
	't', 'the hint of explain_job() names pools');
is( $node->safe_psql('one', "SELECT DISTINCT e.detail ~ 'executor [0-9]+ runs job $id since ' FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE state = 'available' AND e.reason = 'executors_busy'"),
	't', 'with the job that it runs');
# (Once more for each process whose place another has had in between.)
cmp_ok(log_count($node, 'HINT:  You may need to increase "max_worker_processes"'), '<', 8, 'the log says so, with the hint, not at each commit');

$node->safe_psql($_, 'INSERT INTO gate VALUES (1)') foreach qw(one two);
wait_until($node, 'SELECT count(*) = 11 FROM ran WHERE n > 0', db => 'one');
wait_until($node, 'SELECT count(*) = 5 FROM ran WHERE n > 0', db => 'three');
pass('when slots are free, all run');
$node->stop;

# No slot for the launcher, which would tell others of it.
$node = new_node('without_launcher', conf => 'max_worker_processes = 0');
define_gated($node);
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
ok(wait_until($node, "SELECT waits_for = 'no background worker slot is free (max_worker_processes)' FROM queue_jobs.job WHERE id = $id"),
	'without a slot for the launcher a job says so');
is($node->safe_psql('postgres', q{SELECT ok, value FROM queue_jobs.health() WHERE name = 'engine'}), 'f|no background worker slot is free (max_worker_processes)', 'and so does health()');
$node->stop;

# One executor, and three roles, each with a backlog that does not end by itself.
$node = new_node('turns', conf => "queue_jobs.max_executors = 1\nqueue_jobs.idle_timeout = '1h'");
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE r1 LOGIN; CREATE ROLE r2 LOGIN; CREATE ROLE r3 LOGIN;
GRANT USAGE ON SCHEMA queue_jobs TO r1, r2, r3;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO r1, r2, r3;
CREATE FUNCTION again() RETURNS void LANGUAGE sql AS $$
	INSERT INTO ran (attempt) VALUES (1);
	SELECT queue_jobs.enqueue('again') WHERE NOT EXISTS (SELECT FROM gate);
	SELECT pg_sleep(0.001);
$$;
SELECT queue_jobs.define_worker('again', 'public.again');
SQL
$node->psql('postgres', "SET SESSION AUTHORIZATION $_; SELECT queue_jobs.enqueue('again') FROM generate_series(1, 3)") foreach qw(r1 r2 r3);
wait_until($node, 'SELECT count(*) = 3 FROM (SELECT FROM ran GROUP BY role HAVING count(*) >= 20) r');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT pid) FROM ran'), '>=', 3, 'three roles take turns at the one executor');
# (One that leaves is seen a little longer than it has its place.)
wait_until($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
pass('which is one');

# And another database.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION queue_jobs');
define_gated($node, db => 'other');
$id = $node->safe_psql('other', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
wait_for_job($node, $id, 'completed', db => 'other');
pass('another database has its turn, too');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (1)');
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state <> 'completed'});
pass('and the roles go on to their end');

# An idle executor of one role does not keep its place from another.
$id = $node->safe_psql('other', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
wait_for_job($node, $id, 'completed', db => 'other');
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
wait_for_job($node, $id, 'completed');
pass('an idle executor makes room');
$node->stop;

# An executor that cannot connect is not started over and over.
$node = new_node('closed', extension => 0, conf => "queue_jobs.idle_timeout = '1h'");
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', 'CREATE EXTENSION queue_jobs');
define_gated($node, db => 'shop');
$node->safe_psql('shop', 'CREATE ROLE r1 LOGIN; GRANT queue_jobs_enqueue TO r1');
wait_for_job($node, $node->safe_psql('shop', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')}), 'completed', db => 'shop');
my $session = in_background($node, db => 'shop');
$session->query('SELECT 1');
$node->safe_psql('postgres', 'ALTER DATABASE shop ALLOW_CONNECTIONS false');
$session->query(q{SET ROLE r1; SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
# (An executor that leaves has the next ones in another slot.)
wait_until($node, 'SELECT true') until log_count($node, 'FATAL:  database "shop" is not currently accepting connections') >= 1;
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND datname = 'shop'});
wait_until($node, 'SELECT true') until log_count($node, 'FATAL:  database "shop" is not currently accepting connections') >= 4;
my @times = map { (split / /)[1] } grep { /FATAL:  database "shop" is not currently/ } split /\n/, slurp_file($node->logfile);
foreach my $try (1 .. 3)
{
	cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM '$times[$try]'::time - '$times[$try - 1]'::time)"), '>=', 4,
		"an executor that cannot connect is tried again after a while ($try)")
	  unless $times[$try] lt $times[$try - 1];
}
$node->safe_psql('postgres', 'ALTER DATABASE shop ALLOW_CONNECTIONS true');
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE state IN ('completed', 'retryable')}, db => 'shop');
pass('… and then it can');
$session->quit;
$node->stop;

done_testing();
