# What is done to databases and to the extension while jobs wait and run, and processes of ours are connected: they make way, quietly, and go on
# afterwards; nothing of the jobs is lost.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('life_cycle', conf => "queue_jobs.idle_timeout = '1h'\nqueue_jobs.max_executors = 8\nwal_level = logical");
$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN CREATEDB');

# A database with the extension, in which processes of ours stay.
sub busy_database
{
	my ($db) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION queue_jobs');
	define_gated($node, db => $db);
	$node->safe_psql($db, 'GRANT USAGE ON SCHEMA queue_jobs TO PUBLIC; GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO PUBLIC');
	run_one($db, 1);
	return;
}

sub processes
{
	my ($db) = @_;

	return $node->safe_psql('postgres', "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'queue_jobs %'");
}

sub run_one
{
	my ($db, $n) = @_;
	my $id = $node->safe_psql($db, qq{SELECT queue_jobs.enqueue('quick', '{"n": $n}')});

	return wait_for_job($node, $id, 'completed', db => $db);
}

# ---- DROP DATABASE and others that need a database for themselves ----

busy_database('source');
isnt(processes('source'), '', 'processes stay, for an hour');
my $before = processes('source');
isnt($node->psql('postgres', 'SET ROLE bob; DROP DATABASE source'), 0, 'another role cannot drop the database');
isnt($node->psql('postgres', 'SET ROLE carol; CREATE DATABASE stolen TEMPLATE source'), 0, 'nor copy it');
# (One more may have been on its way.)
my @undisturbed = split / /, $before;
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid IN (' . join(', ', @undisturbed) . ')'), scalar(@undisturbed), 'and disturbs no other');

# Bob's job waits in the original, as he may not connect to it. The copy has none of the rights, and none of the processes.
$node->safe_psql('postgres', 'REVOKE CONNECT ON DATABASE source FROM PUBLIC');
$node->safe_psql('source', q{SET SESSION AUTHORIZATION bob; SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
is($node->psql('postgres', 'CREATE DATABASE copy TEMPLATE source'), 0, 'CREATE DATABASE TEMPLATE need not wait for idle processes');
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 2', db => 'copy');
pass('what waited starts in the copy, by itself');
run_one('source', 3);
is($node->safe_psql('source', q{SELECT count(*) FROM queue_jobs.job WHERE state = 'available'}), '1', 'and the original goes on');

is($node->psql('postgres', 'ALTER DATABASE copy RENAME TO renamed'), 0, 'nor need RENAME');
run_one('renamed', 4);
mkdir $node->basedir . '/space' or die;
$node->safe_psql('postgres', 'CREATE TABLESPACE space LOCATION \'' . $node->basedir . '/space\'');
is($node->psql('postgres', 'ALTER DATABASE renamed SET TABLESPACE space'), 0, 'nor SET TABLESPACE');
run_one('renamed', 5);

# In a transaction that takes its time, and then does not happen.
my $session = in_background($node);
$session->query('BEGIN; ALTER DATABASE renamed RENAME TO other');
is(processes('renamed'), '', 'while it is being renamed no process connects');
$session->query('ROLLBACK');
run_one('renamed', 6);

# Jobs that come from nowhere: a template has none that run.
$node->safe_psql('renamed', q{SELECT queue_jobs.pause('quick'); SELECT queue_jobs.enqueue('quick', '{"n": 7}')});
$node->safe_psql('postgres', 'ALTER DATABASE renamed IS_TEMPLATE true');
is($node->psql('postgres', 'SET ROLE carol; CREATE DATABASE hers TEMPLATE renamed'), 0, 'a role that may create databases may copy a template');
$node->safe_psql('hers', q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 7', db => 'hers');
$node->safe_psql('postgres', 'ALTER DATABASE renamed IS_TEMPLATE false');

is($node->psql('postgres', 'DROP DATABASE renamed'), 0, 'nor DROP DATABASE');
is($node->psql('postgres', 'SET ROLE carol; DROP DATABASE hers'), 0, 'by its owner');

# A job that runs is let run: as long as the server waits for others who use a database, and no longer.
my $long = $node->safe_psql('source', q{SELECT queue_jobs.enqueue('gated', '{"n": 10}')});
wait_for_job($node, $long, 'executing', db => 'source');
$session->send('DROP DATABASE source');
$session->result;
like($session->error, qr/source.*is being accessed by other users/, 'a long job keeps DROP DATABASE off');
run_one('source', 11);
is($node->safe_psql('source', "SELECT state, attempt FROM queue_jobs.job WHERE id = $long"), 'executing|1', 'and is none the worse for it');
$session->query('DROP DATABASE source WITH (FORCE)');
is($session->error, '', 'but for DROP DATABASE WITH (FORCE)');
is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ') FROM pg_database WHERE NOT datistemplate}), 'postgres', 'they are gone');

# ---- DROP EXTENSION and CREATE EXTENSION ----

# Beside a scheduler and idle executors; rolled back, then for good, and all in one session that has used it before.
define_gated($node);
run_one('postgres', 1);
$session->query(q{SELECT queue_jobs.pause('quick'); SELECT queue_jobs.enqueue('quick', '{"n": 2}', dedup_key => 'same') FROM generate_series(1, 3)});
$session->query('BEGIN; DROP EXTENSION queue_jobs CASCADE');
wait_for_no_processes($node, 'postgres');
pass('while it is being dropped no process of ours is connected');
$session->query('ROLLBACK');
is($node->safe_psql('postgres', q{SELECT state, (SELECT sum(dropped_duplicates) FROM queue_jobs.worker) FROM queue_jobs.job WHERE args = '{"n": 2}'}), 'available|2', 'DROP EXTENSION rolled back: all is there');
$session->query(q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 2 FROM ran');

for my $how ('DROP EXTENSION queue_jobs CASCADE', 'BEGIN; DROP EXTENSION queue_jobs; COMMIT', "DO 'BEGIN DROP EXTENSION queue_jobs; END'")
{
	$session->query($how);
	is($session->error, '', $how);
	$session->query('SELECT queue_jobs.enqueue(NULL)');
	like($session->error, qr/schema "queue_jobs" does not exist/, 'it is gone');
	$session->query('BEGIN; CREATE EXTENSION queue_jobs; SELECT queue_jobs.define_worker(\'rolled back\'); SELECT queue_jobs.enqueue(\'rolled back\'); ROLLBACK');
	$session->query('SELECT queue_jobs.enqueue(NULL)');
	like($session->error, qr/schema "queue_jobs" does not exist/, 'CREATE EXTENSION rolled back: it is not there');
	$session->query('DELETE FROM ran; CREATE EXTENSION queue_jobs');
	$session->query(q{SELECT queue_jobs.define_worker('quick', 'public.quick'); SELECT queue_jobs.define_worker('gated', 'public.gated')});
	is($session->query(q{SELECT count(*) FROM queue_jobs.job}), '0', 'created anew it is empty');
	is($session->query(q{SELECT sum(dropped_duplicates + merged_duplicates) FROM queue_jobs.worker}), '0', 'and has counted nothing');
	is($session->query(q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(1, 3) n}), "1\n2\n3", 'jobs are numbered anew');
	wait_until($node, 'SELECT count(*) = 3 FROM ran');
}

# Beside a job that runs: it ends first. Longer than processes are waited for, too.
for my $longer (0, 1)
{
	my $id = $node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('gated', '{"n": 2$longer}')});
	my $pid = $session->pid;

	wait_until($node, "SELECT attempt = 1 FROM queue_jobs.job WHERE id = $id AND state = 'executing'");
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}'), queue_jobs.enqueue('quick', '{"n": 1}', delay => '1 h')});
	# (A job that was to be cancelled with it has run to its end by then.)
	$session->send($longer ? 'DROP EXTENSION queue_jobs' : "BEGIN; SELECT queue_jobs.cancel($id); DROP EXTENSION queue_jobs; COMMIT");
	wait_until($node, "SELECT wait_event_type IN (" . ($longer ? "'Lock'" : "'Extension', 'Lock'") . ") FROM pg_stat_activity WHERE pid = $pid", db => 'template1');
	$node->safe_psql('postgres', "INSERT INTO gate VALUES (2$longer), (1)");
	$session->result;
	is($session->error, '', 'DROP EXTENSION waits for a job that runs');
	is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE n = 2$longer"), '1', 'which is committed');
	$session->query('CREATE EXTENSION queue_jobs');
	$session->query(q{SELECT queue_jobs.define_worker('quick', 'public.quick'); SELECT queue_jobs.define_worker('gated', 'public.gated')});
}

# A job that waits for the very session that drops the extension: neither waits forever.
$node->safe_psql('postgres', q{
	CREATE TABLE contested (id int PRIMARY KEY); INSERT INTO contested VALUES (1);
	CREATE FUNCTION contend() RETURNS void LANGUAGE sql AS 'UPDATE contested SET id = id';
	SELECT queue_jobs.define_worker('contend', 'public.contend', max_retries => 0, lock_timeout => '1 hour')});
$session->query('BEGIN; UPDATE contested SET id = id');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('contend')});
wait_until($node, q{SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity USING (pid) WHERE NOT granted AND backend_type = 'queue_jobs executor'});
$session->query('DROP EXTENSION queue_jobs');
like($session->error, qr/^$|deadlock detected/, 'a job that waits for the session that drops the extension: a deadlock like any other');
$session->query('ROLLBACK');

# ---- the schema's name ----

$session->query('DROP EXTENSION IF EXISTS queue_jobs; CREATE EXTENSION queue_jobs');
$session->query(q{SELECT queue_jobs.define_worker('quick', 'public.quick')});
run_one('postgres', 1);
$session->query('ALTER SCHEMA queue_jobs RENAME TO jobs');
like($session->error, qr/cannot rename or move schema "queue_jobs"/, 'ALTER SCHEMA queue_jobs RENAME is refused');

# A superuser who writes the catalog by hand gets that. The job falls due meanwhile; it runs when the name is back.
$node->safe_psql('postgres', 'TRUNCATE ran');
$session->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 30}', delay => '1 s')});
$session->query(q{UPDATE pg_namespace SET nspname = 'jobs' WHERE nspname = 'queue_jobs'});
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'postgres'});
$session->query('ALTER SCHEMA jobs RENAME TO queue_jobs');
is($session->error, '', 'the name comes back');
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 30');
pass('and the job that fell due meanwhile runs');

# ---- maintenance under load ----

$session->query('DROP EXTENSION IF EXISTS queue_jobs CASCADE; CREATE EXTENSION queue_jobs; CREATE PUBLICATION everything FOR ALL TABLES');
$session->query(q{SELECT queue_jobs.define_worker('quick', 'public.quick'); SELECT queue_jobs.define_worker('limited', max_running_jobs => 5)});
$node->safe_psql('postgres', 'TRUNCATE ran; SELECT pg_create_logical_replication_slot(\'slot\', \'pgoutput\')');
my $enqueued = 0;
foreach my $command ('VACUUM FULL queue_jobs.live_job', 'REINDEX TABLE queue_jobs.live_job', 'REINDEX TABLE CONCURRENTLY queue_jobs.live_job',
	'CLUSTER queue_jobs.live_job USING live_job_id', 'REINDEX INDEX CONCURRENTLY queue_jobs.live_job_ready', 'VACUUM FULL queue_jobs.lane, queue_jobs.defined_worker',
	'VACUUM FULL queue_jobs.finished_job', 'REINDEX TABLE queue_jobs.finished_job', 'VACUUM (FREEZE, ANALYZE) queue_jobs.live_job', 'VACUUM FULL queue_jobs.claimed_slot')
{
	$session->send("SELECT count(queue_jobs.enqueue('quick', jsonb_build_object('n', n), delay => CASE WHEN n % 3 = 0 THEN interval '100 ms' END)) FROM generate_series($enqueued + 1, $enqueued + 500) n");
	$session->result;
	$enqueued += 500;
	is($node->psql('postgres', $command), 0, $command);
}
wait_until($node, "SELECT count(*) = $enqueued FROM ran");
is($node->safe_psql('postgres', 'SELECT count(DISTINCT n) FROM ran'), $enqueued, 'each job has run once');

# What is published can be changed all the same: claimed, dead, retried, cleaned up.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('limited') FROM generate_series(1, 3); SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{limited}', 2)});
my $dead = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('limited', delay => '1 h')});
is($node->safe_psql('postgres', "SELECT queue_jobs.discard($dead)") . $node->safe_psql('postgres', "SELECT queue_jobs.retry($dead)"), 'tt', 'in a publication FOR ALL TABLES: dead, and back');
foreach my $table (split /\n/, $node->safe_psql('postgres', q{SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'queue_jobs'::regnamespace AND relkind IN ('r', 'p')}))
{
	is($node->psql('postgres', "BEGIN; DELETE FROM $table; ROLLBACK"), 0, "$table can be deleted from");
}
$node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_binary_changes('slot', NULL, NULL, 'proto_version', '1', 'publication_names', 'everything')});
pass('and decoded');
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('slot')});
my @complaints = slurp_file($node->logfile)
  =~ /^.*queue_jobs .*(?:ERROR:  (?!deadlock|canceling statement due to lock timeout)|FATAL:  (?!terminating|database \S+ does not exist|cannot connect to invalid database)).*$/mg;
is(join("\n", @complaints), '', 'without a complaint of a process of ours');

$session->quit;
$node->stop;
done_testing();
