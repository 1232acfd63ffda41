# Settings of databases and roles: none of them makes a job run as another role than its own, or stops the processes of
# queue_jobs from their work.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('settings', init => [ allows_streaming => 1 ], conf => "queue_jobs.idle_timeout = '2s'\nqueue_jobs.replica_timeout = '1min'");
my $superuser = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE other LOGIN;
CREATE ROLE alice LOGIN IN ROLE other;
GRANT CREATE ON DATABASE postgres TO alice;
GRANT queue_jobs_enqueue TO alice, other;
CREATE TABLE ran (what text, n int, session name DEFAULT session_user, "current" name DEFAULT current_user, role text DEFAULT current_setting('role'));
GRANT ALL ON ran TO PUBLIC;
CREATE FUNCTION work(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.ran VALUES ('function', n);
	PERFORM queue_jobs.enqueue('follow', jsonb_build_object('n', n));
END
$$;
CREATE FUNCTION follow(n int) RETURNS void LANGUAGE sql AS $$INSERT INTO public.ran VALUES ('follow-up', n)$$;
CREATE PROCEDURE work_and_commit(n int) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.ran VALUES ('procedure', n);
	COMMIT;
	INSERT INTO public.ran VALUES ('procedure after COMMIT', n);
END
$$;
CREATE FUNCTION fails_once(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT j.attempt FROM queue_jobs.current_job() AS j) = 1 THEN
		PERFORM queue_jobs.retry_in('0 s');
		RAISE EXCEPTION 'the first attempt fails';
	END IF;
	INSERT INTO public.ran VALUES ('retry', n);
END
$$;
CREATE FUNCTION changes_role(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	SET ROLE other;
	INSERT INTO public.ran VALUES ('SET ROLE', n);
	RESET ROLE;
	INSERT INTO public.ran VALUES ('RESET ROLE', n);
	SET ROLE other;
END
$$;
CREATE FUNCTION look(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
	SELECT jsonb_build_object('standby', pg_is_in_recovery(), 'session', session_user, 'current', current_user);
$$;
CREATE FUNCTION tell(n int, read jsonb) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.ran VALUES ('read', n, read ->> 'session', read ->> 'current', CASE WHEN (read ->> 'standby')::boolean THEN 'none' ELSE 'not on the replica' END);
$$;
SELECT queue_jobs.define_worker('work', 'public.work');
SELECT queue_jobs.define_worker('follow', 'public.follow');
SELECT queue_jobs.define_worker('work and commit', 'public.work_and_commit');
SELECT queue_jobs.define_worker('fails once', 'public.fails_once');
SELECT queue_jobs.define_worker('changes role', 'public.changes_role');
SELECT queue_jobs.define_worker('tell', 'public.tell', read_handler => 'public.look', data_consistency => 'sticky');
CREATE TABLE record (id int PRIMARY KEY, owner name, done boolean NOT NULL DEFAULT false);
GRANT ALL ON record TO PUBLIC;
CREATE FUNCTION heal(n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.ran VALUES ('healed', n);
	UPDATE public.record SET done = true WHERE id = n;
$$;
GRANT queue_jobs_define TO alice;
SET SESSION AUTHORIZATION alice;
SELECT queue_jobs.define_worker('heal', 'public.heal', record => 'public.record', record_key => 'n', pending => 'NOT done', heal_every => '1 s');
SQL

$node->backup('backup');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'backup', has_streaming => 1);
$replica->start;
$node->safe_psql('postgres', "SELECT queue_jobs.add_replica('replica', 'host=" . $replica->host . ' port=' . $replica->port . "')");

# What the settings would do to the test's own sessions is no matter here: a client's options prevail.
my %session = (
	role => 'none',
	statement_timeout => 0,
	lock_timeout => 0,
	idle_in_transaction_session_timeout => 0,
	idle_session_timeout => 0,
	exit_on_error => 'off',
	search_path => 'public',
	default_transaction_read_only => 'off',
	default_transaction_isolation => 'read\ committed',
	standard_conforming_strings => 'on',
	datestyle => 'ISO',
	timezone => 'UTC',
	client_encoding => 'UTF8',
	row_security => 'on',
	restrict_nonsystem_relation_kind => '',
	transaction_timeout => 0,
	jit => 'off',
	debug_parallel_query => 'off',
	force_parallel_mode => 'off',
);
my $known = $node->safe_psql('postgres', q{SELECT string_agg(name, ' ') FROM pg_settings});
my %known = map { $_ => 1 } 'role', split / /, lc $known;
$ENV{PGOPTIONS} = join ' ', map { $known{$_} ? "-c $_=$session{$_}" : () } sort keys %session;

my $n = 0;

# Everything that the engine runs as alice, once, by processes that have these settings.
sub runs_as_alice
{
	my ($settings) = @_;

	$node->safe_psql('postgres', $settings);
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^queue_jobs'});
	$node->safe_psql('template1', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^queue_jobs'});
	$n++;
	$node->safe_psql('postgres', "TRUNCATE ran; INSERT INTO record VALUES ($n, 'alice')");
	my @jobs;
	my $before = $node->safe_psql('postgres', q{SELECT nextval('queue_jobs.job_id')});
	# What it reads from the replica is to be there: a job starts without, if its worker is sticky.
	$node->safe_psql('postgres', q{SELECT queue_jobs.pause('tell')});
	for my $worker ('work', 'work and commit', 'fails once', 'changes role', 'tell')
	{
		my $delay = $worker eq 'work' ? '200 ms' : '0';
		push @jobs, $node->safe_psql('postgres',
			qq{SET SESSION AUTHORIZATION alice; SELECT queue_jobs.enqueue('$worker', '{"n": $n}', delay => '$delay')});
	}
	$node->safe_psql('postgres', <<"SQL");
SET SESSION AUTHORIZATION alice;
SELECT queue_jobs.schedule('ticks', 'every 1 second', 'follow', '{"n": -$n}');
SELECT queue_jobs.schedule('commands', 'every 1 second', command => \$\$INSERT INTO public.ran VALUES ('command', $n)\$\$);
SQL
	wait_for_replay($node, $replica);
	$node->safe_psql('postgres', q{SELECT queue_jobs.resume('tell')});
	wait_for_job($node, $_, 'completed') foreach @jobs;
	wait_until($node, "SELECT count(*) = 9 FROM (SELECT DISTINCT what, sign(n) FROM ran WHERE what NOT IN ('SET ROLE', 'RESET ROLE')) r");
	$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule});
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state NOT IN ('completed', 'dead', 'cancelled')});
	is($node->safe_psql('postgres', q{SELECT DISTINCT what, session, "current" FROM ran WHERE session <> 'alice' OR "current" <> 'alice' OR role <> 'none' ORDER BY 1}),
		'SET ROLE|alice|other', "$settings: each ran as alice");
	is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT owner, ' ') FROM queue_jobs.job WHERE id > } . $before), 'alice', '… and so did what they enqueued');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE (state = 'dead' OR (state <> 'completed' AND worker <> 'queue_jobs.heal')) AND id > } . $before), '0', '… and none has failed for good');
	return;
}

runs_as_alice('SELECT 1');

# ---- another role ----

for my $scope ('DATABASE postgres', 'ROLE alice', 'ROLE alice IN DATABASE postgres')
{
	runs_as_alice("ALTER $scope SET role = other");
	$node->safe_psql('postgres', "ALTER $scope RESET role");
}
runs_as_alice('ALTER DATABASE postgres SET session_authorization = other');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET session_authorization');
runs_as_alice("ALTER ROLE $superuser SET role = other");
runs_as_alice("ALTER ROLE $superuser SET session_authorization = other");
$node->safe_psql('postgres', "ALTER ROLE $superuser RESET ALL");

# ---- whatever else can be set for a database, or for all roles ----

my %settings = (
	array_nulls => 'off',
	backslash_quote => 'off',
	bytea_output => 'escape',
	client_encoding => 'LATIN1',
	datestyle => 'SQL, DMY',
	debug_parallel_query => 'on',
	default_transaction_deferrable => 'on',
	default_transaction_isolation => 'serializable',
	default_transaction_read_only => 'on',
	enable_bitmapscan => 'off',
	enable_indexonlyscan => 'off',
	enable_indexscan => 'off',
	enable_nestloop => 'off',
	enable_partition_pruning => 'off',
	enable_seqscan => 'off',
	exit_on_error => 'on',
	extra_float_digits => '-15',
	force_parallel_mode => 'on',
	idle_in_transaction_session_timeout => '1ms',
	idle_session_timeout => '1ms',
	intervalstyle => 'sql_standard',
	jit_above_cost => 0,
	lock_timeout => '1ms',
	log_statement => 'all',
	maintenance_work_mem => '1MB',
	parallel_setup_cost => 0,
	parallel_tuple_cost => 0,
	plan_cache_mode => 'force_generic_plan',
	'queue_jobs.context' => '{"of": "the database"}',
	quote_all_identifiers => 'on',
	restrict_nonsystem_relation_kind => 'view, foreign-table',
	row_security => 'off',
	search_path => 'nowhere',
	session_replication_role => 'replica',
	standard_conforming_strings => 'off',
	statement_timeout => '1ms',
	temp_file_limit => 0,
	timezone => 'Asia/Kathmandu',
	transform_null_equals => 'on',
	track_counts => 'off',
	work_mem => '64kB',
	xmloption => 'document',
);
# PostgreSQL 19 refuses standard_conforming_strings = off.
delete $settings{standard_conforming_strings} if $node->psql('postgres', 'SET standard_conforming_strings = off') != 0;
for my $scope ('DATABASE postgres', 'ROLE ALL')
{
	my @set = map { $known{$_} ? "ALTER $scope SET $_ = '" . $settings{$_} =~ s/'/''/gr . "'" : () } sort keys %settings;
	$node->safe_psql('template1', join(";\n", @set));
	runs_as_alice("SELECT 'all at once for $scope'");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE schedule IS NOT NULL AND context IS NOT NULL}), '0', '… ticks have no context')
	  if $scope eq 'ROLE ALL';
	$node->safe_psql('template1', "ALTER $scope RESET ALL");
}
# (By itself: a parallel worker, which debug_parallel_query has PostgreSQL start for each query, heeds the database's own value of it.)
if ($known{transaction_timeout})
{
	runs_as_alice("ALTER DATABASE postgres SET transaction_timeout = '1ms'");
	$node->safe_psql('template1', 'ALTER DATABASE postgres RESET transaction_timeout');
}
is(log_count($node, 'background worker "queue_jobs \w+" \(PID \d+\) exited with exit code 1'), log_count($node, 'terminating background worker "queue_jobs \w+"'),
	'no process has failed');

$replica->stop;
$node->stop;
done_testing();
