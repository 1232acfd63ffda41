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
isnt($node->psql('postgres', 'SET ROLE bob; DROP DATABASE source'), 0, 'somebody else cannot drop the database');
isnt($node->psql('postgres', 'SET ROLE carol; CREATE DATABASE stolen TEMPLATE source'), 0, 'nor copy it');
is(processes('source'), $before, 'and disturbs nobody');

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
is(processes('renamed'), '', 'while it is being renamed nobody connects');
$session->query('ROLLBACK');
run_one('renamed', 6);

# Jobs that come from nowhere: a template has none that run.
$node->safe_psql('renamed', q{SELECT queue_jobs.pause('quick'); SELECT queue_jobs.enqueue('quick', '{"n": 7}')});
$node->safe_psql('postgres', 'ALTER DATABASE renamed IS_TEMPLATE true');
is($node->psql('postgres', 'SET ROLE carol; CREATE DATABASE hers TEMPLATE renamed'), 0, 'whoever may create databases may copy a template');
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
$session->send('DROP DATABASE source');
wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'source' AND backend_type LIKE 'queue_jobs %'");
$session->result;
$session->query('DROP DATABASE source WITH (FORCE)');
is($session->error, '', 'but for DROP DATABASE WITH (FORCE)');
is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ') FROM pg_database WHERE NOT datistemplate}), 'postgres', 'they are gone');
is(log_count($node, 'queue_jobs .*ERROR|queue_jobs .*FATAL:  (?!terminating)'), 0, 'without a complaint of a process of ours');

$session->quit;
$node->stop;
done_testing();
