# Deduplication under load: 32 sessions in all isolation levels, 100 keys, random commits and rollbacks, executors at work,
# some of them killed, and some sessions as well.
# Afterwards every committed change has been seen by a run that started after its commit, and no two runs of an
# until_executed key overlapped. QUEUE_JOBS_STRESS_SECONDS makes it longer than ten seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} // 10;
my $node = new_node('dedup_stress', conf => <<'CONF');
max_connections = 100
synchronous_commit = off
queue_jobs.max_executors = 6
queue_jobs.max_executors_per_database = 6
CONF

# A run marks the changes of its key that it sees. One that commits after the run began is not seen by it, and needs
# another one: that is what deduplication could lose.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE change (id bigserial PRIMARY KEY, worker text, key int, seen_by bigint);
CREATE INDEX ON change (worker, key) WHERE seen_by IS NULL;
CREATE TABLE run (worker text, key int, job bigint, began timestamptz, ended timestamptz);
CREATE FUNCTION refresh(key int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	UPDATE change c SET seen_by = job.id WHERE c.worker = job.worker AND c.key = refresh.key AND c.seen_by IS NULL;
	IF random() < 0.3 THEN
		PERFORM pg_sleep(random() * 0.01);
	END IF;
	INSERT INTO run VALUES (job.worker, refresh.key, job.id, began, clock_timestamp());
END
$$;
CREATE FUNCTION soon(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '10 ms' $$;
SELECT queue_jobs.define_worker('executing', 'public.refresh', idempotent => true, retry_backoff => 'public.soon');
SELECT queue_jobs.define_worker('again', 'public.refresh', idempotent => true, retry_backoff => 'public.soon',
	deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.define_worker('once', 'public.refresh', idempotent => true, retry_backoff => 'public.soon',
	deduplicate => 'until_executed');
SQL

# Two keys a transaction, in any order; a third of the transactions are rolled back, some only to a savepoint. There are
# 100 keys at a time, and others every half second: a change that is lost must not be seen by a later run of its key.
my $script = $node->basedir . '/stress.sql';
append_to_file($script, <<'SQL');
\set a random(1, 100)
\set b random(1, 100)
\set how random(1, 9)
\set which random(1, 3)
\set level random(1, 3)
\if :level = 1
BEGIN;
\elif :level = 2
BEGIN ISOLATION LEVEL REPEATABLE READ;
\else
BEGIN ISOLATION LEVEL SERIALIZABLE;
\endif
SELECT CASE :which WHEN 1 THEN 'executing' WHEN 2 THEN 'again' ELSE 'once' END AS worker,
	(extract(epoch FROM clock_timestamp()) * 2)::bigint % 1000000 * 100 AS first \gset
INSERT INTO change (worker, key) VALUES (:'worker', :first + :a), (:'worker', :first + :b);
SELECT queue_jobs.enqueue(:'worker', jsonb_build_object('key', :first + :a));
\if :how = 1
SAVEPOINT s;
SELECT queue_jobs.enqueue(:'worker', jsonb_build_object('key', :first + :b));
ROLLBACK TO s;
\endif
SELECT queue_jobs.enqueue(:'worker', jsonb_build_object('key', :first + :b));
\if :how >= 7
ROLLBACK;
\else
COMMIT;
\endif
SQL
my $sql = slurp_file($script);
$sql =~ s/:'worker'/':worker'/g;    # pgbench has no quoting of its own
unlink $script;
append_to_file($script, $sql);

my ($out, $err) = ('', '');
my $load = IPC::Run::start(
	[ $node->installed_command('pgbench'), '-n', '-M', 'simple', '-c', 32, '-j', 2, '-T', $seconds,
		'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$out, '2>', \$err);

# Meanwhile executors are told to go, or interrupted, in the middle of what they do; sessions end in the middle of a transaction.
my $end = time + $seconds - 2;
while (time < $end)
{
	my $session = in_background($node);
	my $ended = $session->pid;
	$session->query(q{BEGIN; INSERT INTO change (worker, key) SELECT 'again', key FROM generate_series(1, 100, 7) key;
		SELECT count(queue_jobs.enqueue('again', jsonb_build_object('key', key))) FROM generate_series(1, 100, 7) key});
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($ended, 10000)");
	$session->quit;

	my @pids = executor_pids($node, 'postgres');
	next unless @pids;
	my $pid = $pids[ int(rand(@pids)) ];
	my $how = rand() < 0.5 ? 'pg_terminate_backend' : 'pg_cancel_backend';
	$node->safe_psql('postgres', "SELECT $how($pid), pg_sleep(0.2)");
}
$load->finish;
is($err =~ /ERROR|FATAL/ ? $err : '', '', 'no transaction failed');

wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE state IN ('available', 'executing', 'retryable', 'scheduled'))});
is($node->safe_psql('postgres', q{SELECT worker, key, count(*) FROM change WHERE seen_by IS NULL AND worker <> 'once' GROUP BY 1, 2}),
	'', 'every committed change was seen by a run');
is( $node->safe_psql('postgres', q{
	SELECT worker, key, count(*) FROM (SELECT *, lag(ended) OVER (PARTITION BY worker, key ORDER BY began) AS before FROM run) r
	 WHERE worker IN ('again', 'once') AND began < before GROUP BY 1, 2}),
	'', 'no two runs of an until_executed key overlapped');
is(log_count($node, 'deadlock detected'), 0, 'no deadlock in the log');
is(log_count($node, 'PANIC|terminated by signal'), 0, 'no process crashed');
wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
pass('no hold is left');
note($node->safe_psql('postgres',
	q{SELECT worker, count(*) AS changes, (SELECT count(*) FROM run r WHERE r.worker = c.worker) AS runs FROM change c GROUP BY 1 ORDER BY 1}));
$node->stop;
done_testing();
