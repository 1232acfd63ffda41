# The view queue counts by counters, and these are right after any commit, rollback and savepoint, a prepared transaction, writes by SQL, a crash and a restart.
# promtool takes the view metric.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('metrics', conf => "restart_after_crash = on\nautovacuum = off");

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION shaky(n int, k int DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF n % 3 = 0 THEN
		PERFORM queue_jobs.retry_in('1 day');
		RAISE 'no';
	ELSIF n % 3 = 1 THEN
		PERFORM queue_jobs.snooze_me('1 day');
	END IF;
END $$;
SELECT queue_jobs.define_worker('shaky', 'public.shaky'), queue_jobs.define_worker('out'), queue_jobs.define_worker('keyed', idempotent => true),
       queue_jobs.define_worker('limited', concurrency_key => 'k', concurrency_limit => 1);

-- What is done to jobs, at random, some of it undone by a savepoint or a rollback.
CREATE FUNCTION change_some() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	which constant int := floor(random() * 10);
	w constant text := (ARRAY['out', 'keyed', 'limited', 'shaky'])[ceil(random() * 4)];
	n constant int := floor(random() * 50);
	args constant jsonb := jsonb_build_object('n', n, 'k', n % 3);
BEGIN
	IF which <= 2 THEN
		PERFORM queue_jobs.enqueue(w, args, priority => n % 3, delay => CASE WHEN n % 4 = 0 THEN interval '1 day' END, queue => CASE WHEN n % 5 = 0 THEN 'other' END,
		                           expires_in => CASE n % 7 WHEN 0 THEN interval '1 ms' WHEN 1 THEN interval '1 day' END);
	ELSIF which = 3 THEN
		PERFORM queue_jobs.enqueue_many(w, ARRAY[args, args, jsonb_build_object('n', n + 1)]);
	ELSIF which = 4 THEN
		PERFORM CASE floor(random() * 4) WHEN 0 THEN queue_jobs.complete(id, attempt) WHEN 1 THEN queue_jobs.fail(id, attempt, 'no', retry_in => '1 day')
		        WHEN 2 THEN queue_jobs.snooze(id, attempt, '1 day') END FROM queue_jobs.claim('me', max_jobs => 3, lease => '1 day');
	ELSIF which = 5 THEN
		PERFORM queue_jobs.cancel_jobs(w, states => '{scheduled,available,retryable}', max_jobs => 2);
	ELSIF which = 6 THEN
		PERFORM queue_jobs.retry_jobs(w, max_jobs => 2);
	ELSIF which = 7 THEN
		PERFORM queue_jobs.change_job(id, priority => n, run_at => CASE WHEN n % 2 = 0 THEN now() + interval '1 day' ELSE now() END) FROM queue_jobs.search_jobs(w, states => '{scheduled,available}', max_jobs => 1);
	ELSIF which = 8 THEN
		PERFORM queue_jobs.enqueue(w, args, after => ARRAY(SELECT id FROM queue_jobs.search_jobs(w, states => '{scheduled,available}', max_jobs => 2)), if_dead => 'cancel');
	ELSE
		PERFORM queue_jobs.migrate_queue('other', w);
	END IF;
END $$;
CREATE PROCEDURE churn(rounds int) LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
	FOR i IN 1 .. rounds LOOP
		FOR k IN 1 .. 3 LOOP
			BEGIN
				PERFORM change_some();
				IF random() < 0.3 THEN
					RAISE division_by_zero;
				END IF;
			EXCEPTION
				WHEN division_by_zero OR deadlock_detected OR object_not_in_prerequisite_state OR undefined_object THEN NULL;
			END;
		END LOOP;
		IF random() < 0.2 THEN
			PERFORM * FROM queue_jobs.queue;
		END IF;
	END LOOP;
END $$;

-- How the view differs from the rows, as the view job has them.
CREATE VIEW difference AS
WITH counted AS (SELECT queue, scheduled, available, executing, retryable, waiting FROM queue_jobs.queue WHERE scheduled + available + executing + retryable + waiting > 0),
     rows AS (SELECT queue, count(*) FILTER (WHERE state = 'scheduled') AS scheduled, count(*) FILTER (WHERE state = 'available') AS available,
                     count(*) FILTER (WHERE state = 'executing') AS executing, count(*) FILTER (WHERE state = 'retryable') AS retryable, count(*) FILTER (WHERE state = 'waiting') AS waiting
                FROM queue_jobs.job WHERE state IN ('scheduled', 'available', 'executing', 'retryable', 'waiting') GROUP BY queue)
SELECT 'counted' AS what, * FROM (TABLE counted EXCEPT TABLE rows) c
UNION ALL
SELECT 'rows', * FROM (TABLE rows EXCEPT TABLE counted) r;

-- How often the view reads the whole table.
CREATE FUNCTION reads() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM * FROM queue_jobs.queue;
	RETURN (SELECT seq_scan FROM pg_stat_xact_all_tables WHERE relid = 'queue_jobs.live_job'::regclass);
END $$;
SQL

# Several sessions at it, each transaction by itself, some of them undone.
sub churn
{
	my ($rounds) = @_;
	my @sessions = map { in_background($node) } 1 .. 3;

	foreach my $session (@sessions)
	{
		$session->send("BEGIN; CALL churn(2); ROLLBACK;\n" . ("CALL churn(2);\n" x $rounds));
	}
	$_->result foreach @sessions;
	$_->quit foreach @sessions;
	return;
}

# Waits until nothing changes any more: what executors run has come to its end, and what a crash has put back, too.
sub is_exact
{
	my ($what) = @_;

	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'shaky' AND (state IN ('available', 'executing') OR run_at < now() + interval '1 h' AND state = 'retryable')},
		retry_crashed => 1);
	ok(wait_until($node, 'SELECT count(*) = 0 FROM difference'), "$what: the view has what the rows have");
	is($node->safe_psql('postgres', 'SELECT reads()'), '0', '… without reading them');
	return;
}

is($node->safe_psql('postgres', 'SELECT reads()'), '1', 'the first look after a start reads the table');
churn(15);
is_exact('load');

# A transaction sees what it has changed itself.
is($node->safe_psql('postgres', q{BEGIN; SELECT FROM queue_jobs.enqueue('out'); SELECT count(*) FROM difference; SAVEPOINT s; SELECT FROM queue_jobs.cancel_jobs('out'); ROLLBACK TO s; SELECT count(*) FROM difference; ROLLBACK}), "0\n0", 'within a transaction');
is_exact('after its rollback');

$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.enqueue_many('out', '{1,2,3}'); PREPARE TRANSACTION 'jobs'});
is_exact('a prepared transaction');
$node->safe_psql('postgres', q{COMMIT PREPARED 'jobs'});
is_exact('its end');

$node->safe_psql('postgres', q{DELETE FROM queue_jobs.live_job WHERE id IN (SELECT id FROM queue_jobs.live_job ORDER BY id LIMIT 3)});
is_exact('writes by SQL');

# A crash in the middle, and restarts.
my $session = in_background($node);
my $pid = $session->pid;
$session->send('CALL churn(1000000)');
wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND backend_xid IS NOT NULL");
kill 'KILL', $pid;
eval { $session->quit };
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
churn(5);
is_exact('a crash, and some load');
$node->stop('immediate');
$node->start;
is_exact('an immediate stop');
$node->restart;
churn(5);
is_exact('a restart, and load');

# Expired jobs are no longer available, though no process has ended them yet; the oldest of those that are stands behind them.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.pause('expiring'), queue_jobs.define_worker('expiring', 'public.shaky', idempotent => true);
SELECT count(queue_jobs.enqueue('expiring', jsonb_build_object('n', n), run_at => now() - interval '1 h', expires_in => '1 s')) FROM generate_series(1, 1500) AS n;
SELECT count(queue_jobs.enqueue('expiring', jsonb_build_object('n', -n), run_at => now() - interval '1 min', expires_in => '1 day')) FROM generate_series(1, 1500) AS n;
SELECT count(queue_jobs.enqueue('expiring', jsonb_build_object('n', 2000 + n), delay => '1 h', expires_in => '1 s')) FROM generate_series(1, 10) AS n;
SQL
is_exact('expired jobs');
is($node->safe_psql('postgres', q{SELECT available, scheduled, now() - oldest_available < interval '30 min' FROM queue_jobs.queue WHERE queue = 'expiring'}), '1500|10|t', 'of these');
$node->restart;
is($node->safe_psql('postgres', q{SELECT available, scheduled, now() - oldest_available < interval '30 min' FROM queue_jobs.queue WHERE queue = 'expiring'}), '1500|10|t', '… counted at the start, too');

# Where there are many, a process counts them: a statement that is cancelled meanwhile, by a dashboard's timeout, loses nothing.
$node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.enqueue_many('out', ARRAY(SELECT jsonb_build_object('n', n, 'long', (SELECT string_agg(md5((n * 100 + i)::text), '') FROM generate_series(1, 50) AS i)) FROM generate_series(1, 50000) AS n))});
cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('queue_jobs.live_job')}), '>', 64 * 1024 * 1024, 'a table that is large');
$node->restart;
is($node->safe_psql('postgres', 'SELECT reads()'), '0', 'its first look reads no row in its session');
is_exact('a large table');

# The extension dropped, and made again: lanes have the same numbers.
$node->safe_psql('postgres', q{DROP EXTENSION queue_jobs CASCADE; CREATE EXTENSION queue_jobs; SELECT queue_jobs.define_worker('out')});
is($node->safe_psql('postgres', q{SELECT queue, scheduled + available + executing + retryable FROM queue_jobs.queue}), 'out|0', 'a new extension has no jobs');

# Rows that the plan of health() reads: twice as many beside twice as many workers whose jobs are late, not four times.
sub read_by_health
{
	my ($workers) = @_;

	$node->safe_psql('postgres', qq{SELECT count(queue_jobs.define_worker('late ' || n)), count(queue_jobs.enqueue('late ' || n, run_at => '1900-01-01')) FROM generate_series(1, $workers) n});
	$node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('none', '{nothing}')});
	return $node->safe_psql('postgres', q{
CREATE OR REPLACE FUNCTION rows_read() RETURNS numeric LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || substring(pg_get_function_sqlbody('queue_jobs.health'::regproc) FROM '^BEGIN ATOMIC\s(.*);\s*END$') INTO plan;
	RETURN (WITH RECURSIVE node AS (
		SELECT plan -> 0 -> 'Plan' AS n UNION ALL SELECT p FROM node, json_array_elements(n -> 'Plans') p)
	SELECT sum((n ->> 'Actual Loops')::numeric * ((n ->> 'Actual Rows')::numeric + coalesce((n ->> 'Rows Removed by Filter')::numeric, 0) + coalesce((n ->> 'Rows Removed by Join Filter')::numeric, 0))) FROM node);
END $$;
SELECT rows_read()});
}

my @read = map { read_by_health($_) } 300, 600;
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.metric WHERE name = 'queue_jobs_oldest_available_seconds' AND value > 3e9}), 600, 'jobs of 600 workers are late');
cmp_ok($read[1], '<', 3 * $read[0], 'and health() reads twice the rows that it reads beside 300');

SKIP:
{
	skip 'no promtool (Debian: prometheus)', 1 unless run_quietly('promtool', '--version');
	$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('quoted "\" worker', urgency => 'high', max_running_jobs => 2)});
	my $text = $node->safe_psql('postgres', <<'SQL');
WITH m AS (SELECT CASE WHEN type = 'histogram' THEN regexp_replace(name, '_(bucket|sum|count)$', '') ELSE name END AS family, * FROM queue_jobs.metric)
SELECT string_agg(text, '' ORDER BY family)
  FROM (SELECT family, format(E'# HELP %s %s\n# TYPE %1$s %3$s\n', family, min(help), min(type)) ||
               string_agg(format(E'%s{%s} %s\n', name, (SELECT string_agg(format('%s="%s"', key, replace(replace(l.value, '\', '\\'), '"', '\"')), ',' ORDER BY key) FROM jsonb_each_text(labels) l), value), ''
                          ORDER BY (labels - 'le')::text, name, replace(labels ->> 'le', '+Inf', 'Infinity')::float8) AS text
          FROM m GROUP BY family) f
SQL
	my ($out, $err) = ('', '');
	my $accepted = IPC::Run::run([ 'promtool', 'check', 'metrics' ], '<', \"$text\n", '>', \$out, '2>', \$err);
	ok($accepted && $err eq '', 'promtool finds nothing wrong with the metrics') or diag $out . $err;
}

$node->stop;
done_testing();
