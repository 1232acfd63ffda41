# Only superusers and the tables' owner write its tables by SQL: not a role with pg_write_all_data, which could otherwise run code as any role by a row of its
# own, or stop all jobs of the database by a statement in a session that stays open.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('guard', init => [ allows_streaming => 'logical' ]);
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE clerk LOGIN;
GRANT pg_write_all_data, pg_read_all_data TO clerk;
CREATE ROLE clerks_boss LOGIN IN ROLE clerk;
SELECT queue_jobs.enqueue('quick', '{"n": 1}', delay => '1 day');
SQL

# What a role's statement is refused with, or what it returns.
sub outcome
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET lock_timeout = '20s';\nSET SESSION AUTHORIZATION $role;\n$sql", on_error_stop => 1);

	return $err =~ /ERROR:  (\w{5}: permission denied for table \w+)/ ? $1 : $err =~ /ERROR:  (.*)/ ? $1 : $out;
}

my @tables = split /\n/, $node->safe_psql('postgres', q{SELECT relname FROM pg_class WHERE relnamespace = 'queue_jobs'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1});
cmp_ok(scalar @tables, '>', 40, 'all tables');
foreach my $table (@tables)
{
	my $denied = "42501: permission denied for table $table";

	is(outcome('clerk', "INSERT INTO queue_jobs.$table SELECT * FROM queue_jobs.$table WHERE false"), $denied, "clerk inserts nothing into $table");
	is(outcome('clerk', "DELETE FROM queue_jobs.$table WHERE false"), $denied, '… and deletes nothing');
	is(outcome('clerk', "BEGIN; LOCK TABLE queue_jobs.$table IN ROW EXCLUSIVE MODE"), $denied, '… and does not lock it');
}
is(outcome('clerk', 'BEGIN; LOCK TABLE queue_jobs_internal.job_alive'), '42501: permission denied for table job_alive', "... nor, by a view, what it is made of");
my $schedule = q{(name, owner, cron, timezone, worker, args, if_running, catch_up, next_run, last_job) VALUES
	('mine', 'postgres', '* * * * * *', 'UTC', 'queue_jobs.command', '{"command": "ALTER ROLE clerk SUPERUSER"}', 'allow', 'once', now(), 0)};
is(outcome($_, "INSERT INTO queue_jobs.defined_schedule $schedule"), '42501: permission denied for table defined_schedule', "$_ makes no schedule of the superuser's")
  for qw(clerk clerks_boss);
is(outcome('clerk', q{UPDATE queue_jobs.live_job SET args = '{"n": 2}'}), '42501: permission denied for table live_job', 'nor changes a job');
is(outcome('clerk', "COPY queue_jobs.lane FROM STDIN;\n\\."), '42501: permission denied for table lane', 'nor copies rows into one');
is(outcome('clerk', q{WITH gone AS (DELETE FROM queue_jobs.live_job RETURNING 1) SELECT count(*) FROM gone}), '42501: permission denied for table live_job', 'nor deletes one in a query');
is(outcome('clerk', 'BEGIN; LOCK TABLE queue_jobs.live_job IN ACCESS SHARE MODE; SELECT count(*) FROM queue_jobs.live_job'), '1', 'but reads, as pg_dump does');

# With the right to say that triggers are not to fire.
$node->safe_psql('postgres', 'GRANT SET ON PARAMETER session_replication_role TO clerk');
is(outcome('clerk', "SET session_replication_role = replica; INSERT INTO queue_jobs.defined_schedule $schedule"), '42501: permission denied for table defined_schedule',
	'nor as if it were replication');
my $next = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 3}')});
wait_for_job($node, $next, 'completed');
pass('jobs go on meanwhile');

# The owner of the extension, and superusers, as before.
$node->safe_psql('postgres', q{UPDATE queue_jobs.live_job SET priority = 5; DELETE FROM queue_jobs.live_job; TRUNCATE queue_jobs.token});
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.live_job}), '0', 'a superuser writes them');

# ---- rows that a subscription applies with its owner's rights (PostgreSQL 16) ----

SKIP:
{
	skip 'subscriptions run as a superuser', 2 if $node->pg_version < 16;

	$node->safe_psql('postgres', 'CREATE DATABASE source');
	$node->safe_psql('source', <<'SQL');
CREATE SCHEMA queue_jobs;
CREATE TABLE queue_jobs.defined_schedule (name text PRIMARY KEY, owner regrole, cron text, timezone text, worker text, args jsonb, if_running text, catch_up text,
	next_run timestamptz, last_job bigint);
CREATE PUBLICATION p FOR ALL TABLES;
SELECT pg_create_logical_replication_slot('s', 'pgoutput');
SQL
	my $connstr = $node->connstr('source') =~ s/'/''/gr;
	$node->safe_psql('postgres', qq{CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p
		WITH (create_slot = false, slot_name = 's', copy_data = false, run_as_owner = true, password_required = false)});
	$node->safe_psql('postgres', 'GRANT pg_create_subscription, queue_jobs_read TO clerk; GRANT CREATE ON DATABASE postgres TO clerk; ALTER SUBSCRIPTION s OWNER TO clerk');
	$node->safe_psql('source', "INSERT INTO queue_jobs.defined_schedule $schedule");
	$node->wait_for_log(qr/logical replication .*ERROR:  permission denied for table defined_schedule/);
	pass('a subscription of the clerk\'s is refused');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.defined_schedule'), '0', 'and has written nothing');
	$node->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE');
}
is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'clerk'}), 'f', 'the clerk is no superuser');

$node->stop;
done_testing();
