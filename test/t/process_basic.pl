# Jobs run in every database that has the extension, by processes that come when there is work and leave when there is
# none; and what works, and what does not, without shared_preload_libraries.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('basic', conf => "queue_jobs.idle_timeout = '300ms'", extension => 0);

# Two databases, which no setting names.
for my $db (qw(one two))
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION queue_jobs');
	define_gated($node, db => $db);
}
for my $db (qw(one two))
{
	$node->safe_psql($db, q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(1, 100) n});
}
for my $db (qw(one two))
{
	wait_until($node, 'SELECT count(*) = 100 FROM ran', db => $db);
	is($node->safe_psql($db, 'SELECT count(DISTINCT n), min(attempt), max(attempt) FROM ran'), '100|1|1', "database $db: jobs ran");
	is( $node->safe_psql($db, 'SELECT state, count(*) FROM queue_jobs.job GROUP BY 1'),
		'completed|100', "database $db: and are completed");
}

# What a running job looks like.
my $id = $node->safe_psql('one', q{SELECT queue_jobs.enqueue('gated', '{"n": 1, "password": "secret"}')});
wait_until($node, "SELECT query LIKE '%gated%' AND query LIKE '%' || id || '%' FROM queue_jobs.job JOIN pg_stat_activity ON pid = executor_pid WHERE id = $id",
	db => 'one');
is($node->safe_psql('one', "SELECT query LIKE '%secret%' FROM queue_jobs.job JOIN pg_stat_activity ON pid = executor_pid WHERE id = $id"),
	'f', 'pg_stat_activity shows worker and id, not the args');
$node->safe_psql('one', 'INSERT INTO gate VALUES (1)');
wait_for_job($node, $id, 'completed', db => 'one');

# All leave: the databases can be used as a template, and dropped.
wait_for_no_processes($node, $_) foreach qw(one two);
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE one');
$node->safe_psql('postgres', 'DROP DATABASE two');
pass('an idle database can be a template, and be dropped');

# A commit in an idle database wakes them; so does one in the copy.
for my $db (qw(one copied))
{
	$id = $node->safe_psql($db, q{SELECT queue_jobs.enqueue('quick', '{"n": 101}')});
	wait_for_job($node, $id, 'completed', db => $db);
	is($node->safe_psql($db, 'SELECT count(*) FROM ran WHERE n = 101'), '1', "database $db woke up");
}

# A future job, long after everybody has left.
wait_for_no_processes($node, 'one');
$id = $node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', '{"n": 102}', delay => '3 s')});
wait_for_no_processes($node, 'one');
is($node->safe_psql('one', "SELECT state = 'scheduled' OR run_at <= clock_timestamp() FROM queue_jobs.job WHERE id = $id"),
	't', 'no process is there, and the job waits');
wait_for_job($node, $id, 'completed', db => 'one');
is( $node->safe_psql('one', "SELECT started_at >= run_at, started_at - run_at < '30 s' FROM queue_jobs.job WHERE id = $id"),
	't|t', 'it started at its time');

# The order of due times is not that of enqueuing, and a sooner one may come while they sleep.
$node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', '{"n": 203}', delay => '1 hour')});
wait_for_no_processes($node, 'one');
$node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', '{"n": 202}', delay => '1 s')});
$node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', '{"n": 201}', delay => '500 ms')});
wait_until($node, 'SELECT count(*) = 2 FROM ran WHERE n > 200', db => 'one');
is( $node->safe_psql('one', "SELECT args->>'n', state, started_at >= run_at, started_at - run_at < '30 s' FROM queue_jobs.job WHERE (args->>'n')::int > 200 ORDER BY 1"),
	"201|completed|t|t\n202|completed|t|t\n203|scheduled||", 'future jobs start at their times');

# DROP EXTENSION beside running processes, and a new one in the same database, used by the same session.
my $session = in_background($node, db => 'one');
$session->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 301}')});
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 301', db => 'one');
$session->query('DROP EXTENSION queue_jobs; CREATE EXTENSION queue_jobs');
is($session->error, '', 'a new extension in place of a dropped one');
$session->query(q{SELECT queue_jobs.define_worker('quick', 'public.quick')});
$session->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 302}')});
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 302', db => 'one');
is($node->safe_psql('one', q{SELECT state FROM queue_jobs.job}), 'completed', 'runs jobs');
$session->quit;

# No executors wanted: says so.
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors = 0');
$node->restart;
$id = $node->safe_psql('one', q{SELECT queue_jobs.enqueue('quick', '{"n": 401}')});
like($node->safe_psql('one', "SELECT waits_for FROM queue_jobs.job WHERE id = $id"),
	qr/max_executors/, 'with max_executors = 0 a job says what it waits for');
$node->stop;

# Without shared_preload_libraries.
$node = new_node('plain', conf => "shared_preload_libraries = ''");
define_gated($node);
like(($node->psql('postgres', q{SELECT queue_jobs.define_worker('quick', 'public.quick')}))[2],
	qr/WARNING:  jobs of worker "quick" are not run yet.*shared_preload_libraries/s, 'not preloaded: define_worker() warns');
is(($node->psql('postgres', q{SELECT queue_jobs.define_worker('outside')}))[2], '', '… but not of a worker for claimants');
is($node->safe_psql('postgres', q{CALL queue_jobs.wait_for_jobs(timeout => '0'); SELECT count(*) FROM queue_jobs.claim('c')}), '0', 'not preloaded: nothing has ever been there');
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $id"), 'available', 'not preloaded: jobs are enqueued');
like($node->safe_psql('postgres', "SELECT waits_for FROM queue_jobs.job WHERE id = $id"),
	qr/shared_preload_libraries/, '… and wait, and say what to set');

$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', '{"n": 1}')});
is( $node->safe_psql('postgres', "SELECT args->>'n', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')"),
	'1|', '… a claimant takes and completes its job');
is($node->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.claim('c')"), '0', '… once');
is($node->safe_psql('postgres', q{SELECT queue_jobs.cancel(id), queue_jobs.retry(id) FROM (SELECT queue_jobs.enqueue('outside', '{"n": 0}') AS id) s}),
	't|t', '… a job is cancelled, and retried');
is(join(' ', glob($node->data_dir . '/pg_stat/queue_jobs.*')), '', '… for which a session makes no file of the processes that are not there');
is($node->safe_psql('postgres', "SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')"), '', '… and the job is claimed');
like(($node->psql('postgres', q{BEGIN; ALTER TABLE queue_jobs.live_job ADD COLUMN note jsonb; SELECT queue_jobs.enqueue('outside')}))[2],
	qr/ERROR:  table "live_job" of extension "queue_jobs" has been changed/, '… and no job gets into a table with other columns, which a session without the library can add');

my $waiting = in_background($node);
$waiting->send(q{CALL queue_jobs.wait_for_jobs(timeout => '1 hour')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', '{"n": 2}', delay => '200 ms')});
$waiting->result;
is( $node->safe_psql('postgres', "SELECT args->>'n', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')"),
	'2|', '… wait_for_jobs() returns when a future job is due');

# Only the claimants move due jobs here: one with an open transaction must not keep the others' from them.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', jsonb_build_object('n', n), delay => '1 ms') FROM generate_series(1, 3) n});
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'outside' AND state = 'available'});
$waiting->query('BEGIN');
is($waiting->query(q{SELECT args->>'n' FROM queue_jobs.claim('c')}), '1', '… a claim in an open transaction');
is($node->safe_psql('postgres', "SELECT args->>'n' FROM queue_jobs.claim('d', max_jobs => 10)"),
	"2\n3", '… leaves the other jobs that fell due to others');
$waiting->query('ROLLBACK');
is($node->safe_psql('postgres', "SELECT args->>'n' FROM queue_jobs.claim('d')"), '1', '… and its own when it is rolled back');

# A job that another session has ends no session's waiting.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', '{"n": 4}')});
$waiting->query('BEGIN');
is($waiting->query(q{SELECT args->>'n' FROM queue_jobs.claim('c')}), '4', '… another in an open transaction');
my $other = in_background($node);
my $pid = $other->pid;
$other->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid");
is($other->ended, 0, '… ends no session\'s waiting');
$waiting->query('ROLLBACK');
$other->result;
is($node->safe_psql('postgres', "SELECT args->>'n' FROM queue_jobs.claim('d')"), '4', '… until it is rolled back');
$other->quit;
$waiting->quit;

# Once it is preloaded, the job that waited runs.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'queue_jobs'");
$node->restart;
wait_until($node, 'SELECT count(*) = 1 FROM ran');
pass('preloaded: the job that waited ran');

$node->stop;
done_testing();
