# A storm of cancel(), discard(), retry(), change_job() and pause() on functions and procedures, whose executors are terminated and killed meanwhile:
# no handler comes to its end after a cancel() or discard() of its job had committed and said so, unless retry() came after that.
# QUEUE_JOBS_STRESS_SECONDS makes it longer than eight seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} || 8;
my $node = new_node('storm', conf => "restart_after_crash = on\nlog_statement = none\nqueue_jobs.max_executors = 4\nqueue_jobs.idle_timeout = '1h'");

# A handler notes the time of its end, and can be interrupted once more after it has looked at the clock. What is done to a job is noted before it is
# done, and its answer when that has been committed.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (job bigint, at timestamptz);
CREATE TABLE steered (n bigserial PRIMARY KEY, job bigint, action text, said boolean, begun timestamptz DEFAULT clock_timestamp(), acknowledged timestamptz);
CREATE FUNCTION end_of_handler() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	at constant timestamptz := clock_timestamp();
BEGIN
	PERFORM pg_sleep(0.001);
	INSERT INTO done VALUES ((queue_jobs.current_job()).id, at);
END
$$;
CREATE FUNCTION in_one(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(random() * 0.02);
	PERFORM end_of_handler();
END
$$;
CREATE PROCEDURE in_pieces(args jsonb) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		PERFORM pg_sleep(random() * 0.01);
		COMMIT;
	END LOOP;
	CALL queue_jobs.checkpoint('{}');
	PERFORM end_of_handler();
END
$$;
SELECT queue_jobs.define_worker('function', 'public.in_one'), queue_jobs.define_worker('procedure', 'public.in_pieces');
CREATE PROCEDURE storm(seconds float8) LANGUAGE plpgsql AS $$
DECLARE
	until constant timestamptz := clock_timestamp() + seconds * interval '1 s';
	target bigint;
	what text;
	note bigint;
	answer boolean;
BEGIN
	WHILE clock_timestamp() < until LOOP
		IF (SELECT count(*) FROM (SELECT FROM queue_jobs.live_job LIMIT 12) l) < 12 THEN
			PERFORM queue_jobs.enqueue(worker) FROM unnest('{function,procedure}'::text[]) worker;
		END IF;
		what := (ARRAY['cancel', 'cancel', 'cancel', 'discard', 'discard', 'retry', 'retry', 'change', 'pause', 'resume', 'resume', 'terminate'])[1 + floor(random() * 12)];
		target := (SELECT id FROM (SELECT id FROM queue_jobs.live_job UNION ALL SELECT id FROM queue_jobs.dead_job) j ORDER BY random() LIMIT 1);
		INSERT INTO steered (job, action) VALUES (target, what) RETURNING n INTO note;
		COMMIT;
		answer := NULL;
		CASE what
			WHEN 'cancel' THEN answer := queue_jobs.cancel(target);
			WHEN 'discard' THEN answer := queue_jobs.discard(target);
			WHEN 'retry' THEN answer := queue_jobs.retry(target);
			WHEN 'change' THEN answer := queue_jobs.change_job(target, priority => floor(random() * 3)::int);
			WHEN 'pause' THEN PERFORM queue_jobs.pause('procedure');
			WHEN 'resume' THEN PERFORM queue_jobs.resume('procedure');
			ELSE PERFORM pg_terminate_backend(pid) FROM queue_jobs.running_jobs() WHERE job_id = target AND random() < 0.3;
		END CASE;
		IF random() < 0.3 THEN
			PERFORM pg_sleep(random() * 0.01);	-- with the row, while others ask
		END IF;
		IF random() < 0.1 THEN
			ROLLBACK;
			answer := false;
		END IF;
		COMMIT;
		UPDATE steered SET said = answer, acknowledged = clock_timestamp() WHERE n = note;
		COMMIT;
	END LOOP;
END
$$;
SQL

my $end = time + $seconds;
my $crashes = 0;
while (time < $end)
{
	my $round = $seconds / 4 < 10 ? $seconds / 4 : 10;

	eval {
		my @sessions = map { in_background($node) } 1 .. 4;
		$_->send("CALL storm($round)") foreach @sessions;
		select undef, undef, undef, $round / 2;
		if ($crashes++ % 2)
		{
			my ($pid) = executor_pids($node);
			kill 'KILL', $pid if defined $pid;
		}
		$_->result foreach @sessions;
		$_->quit foreach @sessions;
	};
	wait_until($node, 'SELECT true');
}
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('procedure')});
wait_until($node, 'SELECT NOT EXISTS (SELECT FROM queue_jobs.live_job)', retry_crashed => 1);

note($node->safe_psql('postgres', q{SELECT string_agg(format('%s %s: %s', action, said, count), ', ') FROM (SELECT action, said, count(*) FROM steered GROUP BY 1, 2 ORDER BY 1, 2) s}));
note($node->safe_psql('postgres', 'SELECT count(*) FROM done') . ' jobs done');
is($node->safe_psql('postgres', q{
	SELECT job, action, acknowledged, at FROM steered ended JOIN done USING (job) WHERE action IN ('cancel', 'discard') AND said AND acknowledged < at
	AND NOT EXISTS (SELECT FROM steered s WHERE s.job = ended.job AND s.action = 'retry' AND s.said IS NOT false AND coalesce(s.acknowledged, 'infinity') > ended.begun)}),
	'', 'no handler came to its end after its job had been cancelled');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM steered WHERE action IN ('cancel', 'discard') AND said}), '>', 0, 'jobs were cancelled');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM done'), '>', 0, 'others came to their end');
$node->stop;
done_testing();
