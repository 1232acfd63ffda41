# Upgrades: whatever version a database comes from, the extension is in the end what CREATE EXTENSION makes; and until ALTER EXTENSION UPDATE a new library
# beside old SQL refuses politely.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $node = new_node('upgrade', conf => "queue_jobs.idle_timeout = '300ms'");
my $fingerprint = slurp_file("$root/test/lib/fingerprint.sql");
my $fresh = $node->safe_psql('postgres', $fingerprint);

# ---- the fingerprint sees what there is to be seen ----

cmp_ok(scalar(split /\n/, $fresh), '>', 500, 'the fingerprint is of everything');
foreach my $change (
	'COMMENT ON FUNCTION queue_jobs.pause(text) IS NULL', 'GRANT EXECUTE ON FUNCTION queue_jobs.pause TO PUBLIC',
	'ALTER FUNCTION queue_jobs.pause STABLE', 'ALTER TABLE queue_jobs.live_job ADD COLUMN more int', 'ALTER TABLE queue_jobs.live_job ALTER priority SET DEFAULT 7',
	'ALTER TABLE queue_jobs.live_job SET (fillfactor = 99)', 'DROP INDEX queue_jobs.live_job_key', 'COMMENT ON COLUMN queue_jobs.live_job.due IS NULL',
	'ALTER VIEW queue_jobs.job RESET (security_barrier)', 'GRANT SELECT ON queue_jobs.live_job TO PUBLIC', 'GRANT CREATE ON SCHEMA queue_jobs TO PUBLIC', 'GRANT USAGE ON SCHEMA queue_jobs_internal TO PUBLIC',
	'DROP TRIGGER table_written ON queue_jobs.live_job', 'ALTER SEQUENCE queue_jobs.job_id CACHE 10', 'ALTER EXTENSION queue_jobs DROP VIEW queue_jobs.capacity')
{
	isnt($node->safe_psql('postgres', "BEGIN; SET LOCAL allow_system_table_mods = on; $change; $fingerprint; ROLLBACK"), $fresh, "it sees: $change");
}
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION queue_jobs');
is($node->safe_psql('second', $fingerprint), $fresh, 'and is the same of two that were created alike');

# ---- each way from one version to another ----

my ($current) = slurp_file("$root/queue_jobs.control") =~ /^default_version *= *'(.*)'/m;
my @scripts = map { m{queue_jobs--(.+)--(.+)\.sql$} ? [ $1, $2 ] : () } glob "$root/src/sql/queue_jobs--*--*.sql";
is($node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'queue_jobs'}), $current, "the version is $current");
foreach my $script (@scripts)
{
	my ($from, $to) = @$script;
	my $db = "from_$from";

	$node->safe_psql('postgres', qq{CREATE DATABASE "$db"});
	is($node->psql($db, qq{CREATE EXTENSION queue_jobs VERSION '$from'}), 0, "version $from can be installed (src/sql/queue_jobs--$from.sql, or updates to it)");
	is($node->psql($db, qq{ALTER EXTENSION queue_jobs UPDATE}), 0, "and updated from, by queue_jobs--$from--$to.sql");
	is($node->safe_psql($db, $fingerprint), $fresh, "updated from $from it equals a fresh one");
	$node->safe_psql('postgres', qq{DROP DATABASE "$db"});
}

# Another role's schema is not taken for the extension's.
$node->safe_psql('postgres', q{CREATE DATABASE squatted; CREATE ROLE squatter});
$node->safe_psql('squatted', q{CREATE EXTENSION queue_jobs VERSION '0.1.0'; GRANT CREATE ON DATABASE squatted TO squatter; SET ROLE squatter; CREATE SCHEMA queue_jobs_internal});
like(($node->psql('squatted', 'ALTER EXTENSION queue_jobs UPDATE'))[2], qr/ERROR:  schema "queue_jobs_internal" already exists/, 'a schema made before the update is not adopted');
$node->safe_psql('squatted', 'DROP SCHEMA queue_jobs_internal');
$node->safe_psql('squatted', 'ALTER EXTENSION queue_jobs UPDATE');
is($node->safe_psql('squatted', $fingerprint), $fresh, '... without it the update goes on');
$node->safe_psql('squatted', 'DROP EXTENSION queue_jobs');
is($node->safe_psql('squatted', q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'queue\_jobs%'}), '0', 'DROP EXTENSION leaves neither schema');
$node->safe_psql('postgres', q{DROP DATABASE squatted; DROP ROLE squatter});

# Rights on what has got another signature are kept; and a name that is the engine's own by now is refused.
$node->safe_psql('postgres', q{CREATE DATABASE "rights"; CREATE ROLE "has rights"});
$node->safe_psql('rights', q{CREATE EXTENSION queue_jobs VERSION '0.1.0'; GRANT EXECUTE ON FUNCTION queue_jobs.schedule TO "has rights"});
my $taken = q{SET session_replication_role = replica; INSERT INTO queue_jobs.defined_worker (name, definer, queue, version, idempotent, deduplicate, reschedule_once, including_scheduled, dedup_ttl,
	max_retries, urgency, external_dependencies, resource_boundary, weight, tags, lock_timeout, data_consistency, run_as_definer, loggable_args, keep_completed, search_path)
	VALUES ('queue_jobs.heal', 'postgres', 'q', 0, false, 'none', false, false, '1 h', 0, 'low', false, 'unknown', 1, '{}', '1 s', 'always', false, '{}', '1 h', '')};
like(($node->psql('rights', "BEGIN; $taken; ALTER EXTENSION queue_jobs UPDATE"))[2], qr/ERROR:  worker names queue_jobs\.heal are reserved/, 'a worker of a reserved name is to be renamed first');
$node->safe_psql('rights', 'ALTER EXTENSION queue_jobs UPDATE');
is($node->safe_psql('rights', q{SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname) FROM pg_proc p, aclexplode(p.proacl) a, pg_roles r WHERE p.oid = 'queue_jobs.schedule'::regproc AND r.oid = a.grantee AND a.grantee <> p.proowner}),
	'has rights, pg_database_owner, queue_jobs_define', 'rights on schedule() are kept');
$node->safe_psql('postgres', q{DROP DATABASE "rights"; DROP ROLE "has rights"});

# ---- new library, old SQL: as it is between the restart and ALTER EXTENSION UPDATE ----

define_gated($node, db => 'second');
$node->safe_psql('second', q{SELECT queue_jobs.pause('quick')});
my $waiting = $node->safe_psql('second', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
$node->safe_psql('second', q{UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'queue_jobs'});
$node->stop;
# (A scheduler may have come by before the stop.)
my $warned = log_count($node, 'WARNING:  extension "queue_jobs" in database "second" is not of the library');
$node->start;
my $end = time + $PostgreSQL::Test::Utils::timeout_default;
sleep 1 while log_count($node, 'WARNING:  extension "queue_jobs" in database "second" is not of the library') == $warned && time < $end;
is(log_count($node, 'WARNING:  extension "queue_jobs" in database "second" is not of the library') - $warned, 1, 'the log says once that the extension is to be updated');
foreach my $call (q{SELECT queue_jobs.enqueue('quick')}, q{SELECT * FROM queue_jobs.claim('me')}, q{SELECT queue_jobs.define_worker('new')}, q{SELECT queue_jobs.pause('quick')})
{
	like(($node->psql('second', "\\set VERBOSITY verbose\n$call"))[2], qr/ERROR:  55000: .*version.*ALTER EXTENSION queue_jobs UPDATE/s, "refused: $call");
}
wait_for_no_processes($node, 'second');
is(log_count($node, 'WARNING:  extension "queue_jobs" in database "second" is not of the library') - $warned, 1, 'no process is started in vain again and again');
$node->safe_psql('second', "UPDATE pg_extension SET extversion = '$current' WHERE extname = 'queue_jobs'");
$node->safe_psql('second', q{SELECT queue_jobs.resume('quick')});
wait_for_job($node, $waiting, 'completed', db => 'second');
pass('then its jobs run');

$node->stop;
done_testing();
