# A storm of cancel(), discard(), retry(), change_job() and pause() on functions and procedures, some of which put their jobs back, whose executors are
# terminated and killed meanwhile, and on jobs that sessions claim, complete and put back: no handler comes to its end, and no claimant completes or puts
# back a job, after a cancel() or discard() of it had committed and said so, unless retry() came after that. QUEUE_JOBS_STRESS_SECONDS makes it longer
# than eight seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} || 8;
my $node = new_node('storm', conf => "restart_after_crash = on\nlog_statement = none\nqueue_jobs.max_executors = 4\nqueue_jobs.idle_timeout = '1h'");

# A handler notes the time of its end, and can be interrupted once more after it has looked at the clock; so does one that then puts its job back. What is
# done to a job is noted before it is done, and its answer when that has been committed.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (job bigint, at timestamptz, how text);
CREATE TABLE steered (n bigserial PRIMARY KEY, job bigint, action text, said boolean, begun timestamptz DEFAULT clock_timestamp(), acknowledged timestamptz);
CREATE INDEX ON steered (job);
CREATE FUNCTION ended(target bigint) RETURNS boolean LANGUAGE sql AS $$
	SELECT EXISTS (SELECT FROM steered WHERE job = target AND action IN ('cancel', 'discard') AND said)
$$;
CREATE FUNCTION end_of_handler() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	at constant timestamptz := clock_timestamp();
	how constant text := (ARRAY['ends', 'ends', 'snooze', 'continue'])[1 + floor(random() * 4)];
BEGIN
	PERFORM pg_sleep(0.001);
	INSERT INTO done VALUES ((queue_jobs.current_job()).id, at, how);
	CASE how
		WHEN 'snooze' THEN PERFORM queue_jobs.snooze_me(random() * interval '20 ms');
		WHEN 'continue' THEN PERFORM queue_jobs.continue_at('1');
		ELSE
	END CASE;
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
SELECT queue_jobs.define_worker('function', 'public.in_one'), queue_jobs.define_worker('procedure', 'public.in_pieces'), queue_jobs.define_worker('claimed');
-- A claimant works, and says what comes of it, in one transaction or in two.
CREATE PROCEDURE claimant(seconds float8) LANGUAGE plpgsql AS $$
DECLARE
	until constant timestamptz := clock_timestamp() + seconds * interval '1 s';
	mine record;
	before timestamptz;
	how text;
BEGIN
	WHILE clock_timestamp() < until LOOP
		SELECT id, attempt INTO mine FROM queue_jobs.claim('storm', '{claimed}', lease => '1 h');
		IF mine.id IS NULL THEN
			COMMIT;
			PERFORM pg_sleep(0.005);
			CONTINUE;
		END IF;
		IF random() < 0.5 THEN
			COMMIT;
		END IF;
		PERFORM pg_sleep(random() * 0.02);
		before := clock_timestamp();
		how := (ARRAY['completes', 'puts back', 'fails'])[1 + floor(random() * 3)];
		BEGIN
			CASE how
				WHEN 'completes' THEN PERFORM queue_jobs.complete(mine.id, mine.attempt);
				WHEN 'puts back' THEN PERFORM queue_jobs.snooze(mine.id, mine.attempt, random() * interval '20 ms');
				ELSE PERFORM queue_jobs.fail(mine.id, mine.attempt, 'storm', retry_in => random() * interval '20 ms');
			END CASE;
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			how := NULL;	-- it has been cancelled
		END;
		IF how IS NOT NULL THEN
			INSERT INTO done VALUES (mine.id, before, how);
		END IF;
		COMMIT;
	END LOOP;
END
$$;
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
			PERFORM queue_jobs.enqueue(worker) FROM unnest('{function,procedure,procedure,claimed}'::text[]) worker;
		END IF;
		what := (ARRAY['cancel', 'cancel', 'cancel', 'discard', 'discard', 'retry', 'retry', 'change', 'pause', 'resume', 'resume', 'terminate'])[1 + floor(random() * 12)];
		-- Several sessions at one job at once: that which has run for longest, if there is one. A cancel() that was lost shows if no session cancels that job again.
		target := (SELECT job_id FROM queue_jobs.running_jobs() WHERE random() < 0.7 AND NOT ended(job_id) ORDER BY started_at LIMIT 1);
		IF target IS NULL THEN
			target := (SELECT id FROM (SELECT id FROM queue_jobs.live_job WHERE NOT ended(id) UNION ALL SELECT id FROM queue_jobs.dead_job WHERE random() < 0.2) j ORDER BY random() LIMIT 1);
		END IF;
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
		IF random() < 0.2 THEN
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
		my @sessions = map { in_background($node) } 1 .. 6;
		$_->send("CALL storm($round)") foreach @sessions[ 0 .. 3 ];
		$_->send("CALL claimant($round)") foreach @sessions[ 4 .. 5 ];
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
$node->safe_psql('postgres', q{SELECT count(queue_jobs.cancel(l.id)) FROM queue_jobs.live_job l JOIN queue_jobs.lane n ON n.id = l.lane WHERE n.worker = 'claimed'});
wait_until($node, 'SELECT NOT EXISTS (SELECT FROM queue_jobs.live_job)', retry_crashed => 1);

note($node->safe_psql('postgres', q{SELECT string_agg(format('%s %s: %s', action, said, count), ', ') FROM (SELECT action, said, count(*) FROM steered GROUP BY 1, 2 ORDER BY 1, 2) s}));
note($node->safe_psql('postgres', q{SELECT string_agg(format('%s: %s', how, count), ', ') FROM (SELECT how, count(*) FROM done GROUP BY 1 ORDER BY 1) d}));
is($node->safe_psql('postgres', q{
	SELECT job, action, acknowledged, at, how FROM steered ended JOIN done USING (job) WHERE action IN ('cancel', 'discard') AND said AND acknowledged < at
	AND NOT EXISTS (SELECT FROM steered s WHERE s.job = ended.job AND s.action = 'retry' AND s.said IS NOT false AND coalesce(s.acknowledged, 'infinity') > ended.begun)}),
	'', 'no handler came to its end, and no claimant said what comes of a job, after that had been cancelled');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM steered WHERE action IN ('cancel', 'discard') AND said}), '>', 0, 'jobs were cancelled');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT how) FROM done'), 6, 'others came to their end, or were put back');
$node->stop;
done_testing();
