# Extensions that look at each statement with its parameters: auto_explain (which reads them on 16 and later), and pgaudit where it is installed.
# Jobs run, whatever their args and however the jobs before them ended.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $jobs = 200;
my ($stdout, $stderr) = run_command([ 'pg_config', '--pkglibdir' ]);
my $audit = -e "$stdout/pgaudit.so";
my $node = new_node('auditing', conf => "queue_jobs.idle_timeout = '300ms'\nsession_preload_libraries = 'auto_explain'\n");
my $later = $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int >= 160000}) eq 't';
$node->append_conf('postgresql.conf', "auto_explain.log_min_duration = 0\n" . ($later ? "auto_explain.log_parameter_max_length = -1\n" : ''));

sub look
{
	my ($libraries) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'\n");
	$node->restart;
	$node->safe_psql('postgres', <<'SQL');
DROP EXTENSION IF EXISTS queue_jobs;
DROP TABLE IF EXISTS record, indexed;
CREATE EXTENSION queue_jobs;
CREATE OR REPLACE FUNCTION sometimes(what text, n integer DEFAULT 1) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
	RETURN 1 / (n % 3);
END $$;
CREATE OR REPLACE PROCEDURE in_parts(what text) LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMPORARY TABLE part (n integer);
	COMMIT;
	DROP TABLE part;
END $$;
CREATE TABLE record (id integer PRIMARY KEY, done boolean NOT NULL DEFAULT false);
CREATE TABLE indexed (n integer);
INSERT INTO record VALUES (1);
CREATE OR REPLACE FUNCTION heal(n integer) RETURNS void LANGUAGE sql AS 'UPDATE record SET done = true WHERE id = n';
SELECT queue_jobs.define_worker('sometimes', 'public.sometimes', max_retries => 0), queue_jobs.define_worker('in parts', 'public.in_parts', max_retries => 0),
	queue_jobs.define_worker('outside');
SELECT queue_jobs.define_worker('heal', 'public.heal', record => 'record', record_key => 'n', pending => 'NOT done', heal_every => '1 s');
SELECT queue_jobs.schedule('index', 'every 1 second', command => 'CREATE INDEX CONCURRENTLY IF NOT EXISTS indexed_n ON indexed (n)');
SELECT queue_jobs.schedule('vacuum', 'every 1 second', command => 'VACUUM indexed');
SELECT queue_jobs.enqueue('outside');
SQL
	$node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('sometimes', jsonb_build_object('what', repeat('x', 7 * n)) || CASE WHEN n % 2 = 0 THEN jsonb_build_object('n', n) ELSE '{}' END),
		queue_jobs.enqueue('in parts', jsonb_build_object('what', repeat('x', 5 * n))) FROM generate_series(1, $jobs) n});
	wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker IN ('sometimes', 'in parts') AND finished_at IS NULL)});
	is($node->safe_psql('postgres', q{SELECT worker, state, last_error, count(*) FROM queue_jobs.job WHERE worker IN ('sometimes', 'in parts') GROUP BY 1, 2, 3 ORDER BY 1, 2}),
		"in parts|completed||$jobs\nsometimes|completed||" . ($jobs - int($jobs / 6)) . "\nsometimes|dead|division by zero|" . int($jobs / 6), "$libraries: each job ends as it should");
	wait_until($node, q{SELECT done FROM record});
	wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.schedule WHERE last_state = 'completed'});
	pass("$libraries: healing and schedules");
	is($node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{outside}'); SELECT state FROM queue_jobs.job WHERE worker = 'outside'}),
		"\ncompleted", "$libraries: claimed");
	$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule; SELECT queue_jobs.drop_worker('heal')});
	wait_for_no_processes($node);
}

look('queue_jobs');
SKIP:
{
	skip 'pgaudit is not installed', 6 if !$audit;
	$node->append_conf('postgresql.conf', "pgaudit.log = 'all'\npgaudit.log_catalog = on\npgaudit.log_parameter = on\n");
	look('pgaudit, queue_jobs');
	look('queue_jobs, pgaudit');
}
unlike(slurp_file($node->logfile), qr/was terminated by signal/, 'no process crashed');
$node->stop;
done_testing();
