# Long jobs: their slices and steps are done once each, whatever is killed and when; a shutdown ends a procedure between two checkpoints;
# others have their turn between two slices. And what is enqueued when a job dies, or is not started in time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

# One executor, so that what runs after what is certain.
my $node = new_node('long_jobs', conf => "restart_after_crash = on\nqueue_jobs.max_executors = 1\nqueue_jobs.idle_timeout = '1h'");

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

sql(<<'SQL');
CREATE TABLE done (at serial, job bigint, n int);
CREATE TABLE gate (job bigint, n int);
-- Every fiftieth waits until the test lets it go on.
CREATE FUNCTION note(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	current bigint := (SELECT id FROM queue_jobs.current_job());
BEGIN
	INSERT INTO done (job, n) VALUES (current, note.n);
	WHILE note.n > 0 AND note.n % 50 = 0 AND NOT EXISTS (SELECT FROM gate WHERE gate.job = current AND gate.n = note.n) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END
$$;

CREATE FUNCTION in_slices(upto int, cursor jsonb DEFAULT '0') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM note(cursor::int);
	IF cursor::int < upto THEN
		PERFORM queue_jobs.continue_at(to_jsonb(cursor::int + 1));
	END IF;
END
$$;
CREATE PROCEDURE by_checkpoints(upto int, cursor jsonb DEFAULT '0') LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN cursor::int .. upto LOOP
		PERFORM note(n);
		CALL queue_jobs.checkpoint(to_jsonb(n + 1));
	END LOOP;
END
$$;
CREATE PROCEDURE in_steps(upto int) LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN 0 .. upto LOOP
		PERFORM queue_jobs.step('step ' || n, 'SELECT note($1::int)', to_jsonb(n));
		COMMIT;
	END LOOP;
END
$$;
CREATE FUNCTION takes_turns(upto int, cursor jsonb DEFAULT '0') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM note(cursor::int);
	IF cursor::int < upto THEN
		PERFORM queue_jobs.enqueue('takes_turns', '{"upto": -1}'), queue_jobs.continue_at(to_jsonb(cursor::int + 1));
	END IF;
END
$$;
SELECT queue_jobs.define_worker(w, 'public.' || w) FROM unnest('{in_slices,by_checkpoints,in_steps,takes_turns}'::text[]) AS w;
SQL

# ---- turns ----

my $id = sql(q{SELECT queue_jobs.enqueue('takes_turns', '{"upto": 3}')});
wait_until($node, q{SELECT count(*) = 4 FROM queue_jobs.job WHERE worker = 'takes_turns' AND state = 'completed'});
is(sql("SELECT string_agg(CASE job WHEN $id THEN 'slice' ELSE 'other' END, ' ' ORDER BY at) FROM done"),
	'slice other slice other slice other slice', 'a job of its queue has its turn between two slices');

# ---- kill -9 ----

# Of a row for each n up to that there is one.
sub is_done_once
{
	my ($job, $upto, $name) = @_;

	is(sql("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM done WHERE job = $job"), ($upto + 1) . '|' . ($upto + 1) . "|0|$upto", $name);
	return;
}

# Enqueues a job; and meets it in the middle, where it waits.
sub enqueue
{
	my ($worker, $upto) = @_;

	return sql("SELECT queue_jobs.enqueue('$worker', '{\"upto\": $upto}')");
}

sub meet
{
	my ($job, $n) = @_;

	wait_until($node, "SELECT EXISTS (SELECT FROM done WHERE job = $job AND n = $n - 1) AND EXISTS (SELECT FROM queue_jobs.running_jobs() JOIN pg_stat_activity USING (pid) WHERE job_id = $job AND wait_event = 'PgSleep')",
		retry_crashed => 1);
	return;
}

sub let_go
{
	my ($job, $n) = @_;

	sql("INSERT INTO gate VALUES ($job, $n)");
	return;
}

# The server has come back when it returns.
sub crash
{
	my @pids = executor_pids($node);

	kill 'KILL', @pids;
	wait_until($node, 'SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid IN (' . join(', ', 0, @pids) . '))');
	return;
}

# In the middle; in slices four times, which is more than a job survives that does not get on meanwhile.
my $upto = 220;
for my $worker (qw(in_slices by_checkpoints in_steps))
{
	my $job = enqueue($worker, $upto);
	for my $n (50, 100, 150, 200)
	{
		meet($job, $n);
		if ($n <= 100 || $worker eq 'in_slices')
		{
			crash();
			meet($job, $n);
		}
		let_go($job, $n);
	}
	wait_for_job($node, $job, 'completed', retry_crashed => 1);
	is_done_once($job, $upto, "$worker: done once each, through crashes of the server");
}

# ---- shutdown ----

# A checkpoint is what the next start goes on from; none of this is a failure.
my $job = enqueue('by_checkpoints', $upto);
for my $n (50, 100, 150, 200)
{
	meet($job, $n);
	$node->restart if $n <= 100;
	let_go($job, $n);
}
wait_for_job($node, $job, 'completed');
is_done_once($job, $upto, 'by_checkpoints: done once each, through shutdowns');
is(sql("SELECT attempt, errors IS NULL, cursor FROM queue_jobs.job WHERE id = $job"), '1|t|' . ($upto + 1), '… and nothing is charged');

# ---- on_dead ----

sql(<<'SQL');
CREATE TABLE told (worker text, args jsonb, error text);
CREATE FUNCTION tell(worker text, args jsonb, error text) RETURNS void LANGUAGE sql AS 'INSERT INTO told VALUES (worker, args, error)';
CREATE FUNCTION poison() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60); END$$;
SELECT queue_jobs.define_worker('tell', 'public.tell');
SELECT queue_jobs.define_worker('poison', 'public.poison', on_dead => 'tell');
SELECT queue_jobs.define_worker('claimed', on_dead => 'tell', on_expired => 'tell');
SQL
$job = sql(q{SELECT queue_jobs.enqueue('poison', '{"by": "crashes"}')});
wait_for_job($node, $job, 'dead', retry_crashed => 1);
wait_until($node, q{SELECT count(*) = 1 FROM told WHERE worker = 'poison' AND args = '{"by": "crashes"}' AND error <> ''});
pass('on_dead: a job that has crashed three times');

# A claimant's session is lost in the middle of its transaction.
$job = sql(q{SELECT queue_jobs.enqueue('claimed', '{"by": "lost claims"}')});
for my $time (1 .. 3)
{
	my $session = in_background($node);
	my $pid = $session->pid;

	$session->query(q{BEGIN; SELECT id FROM queue_jobs.claim('me', '{claimed}')});
	$session->kill_client;
	wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
}
wait_for_job($node, $job, 'dead');
wait_until($node, q{SELECT count(*) = 1 FROM told WHERE worker = 'claimed' AND args = '{"by": "lost claims"}' AND error <> ''});
pass('on_dead: a job whose claims were lost three times');

# One that no claimant takes in time.
$job = sql(q{SELECT queue_jobs.enqueue('claimed', '{"by": "time"}', run_at => now() - interval '1 h', expires_in => '1 min')});
is(sql(q{SELECT count(*) FROM queue_jobs.claim('me', '{claimed}')}), '0', 'an expired job is not claimed');
wait_until($node, q{SELECT count(*) = 1 FROM told WHERE args = '{"by": "time"}' AND error IS NULL});
pass('on_expired: a job that no claimant took in time');
$job = sql(q{SELECT queue_jobs.enqueue('claimed', '{"by": "restart"}', expires_in => '1 s')});
$node->restart;
wait_until($node, q{SELECT count(*) = 1 FROM told WHERE args = '{"by": "restart"}' AND error IS NULL});
pass('on_expired: also over a restart, which no claim follows');

# ---- named points ----

SKIP:
{
	skip 'built without test points (make test has them)', 1 unless $ENV{TEST_POINTS};
	use_points($node);

	# Killed at each point between the handler's return and the commit, and around a checkpoint's commit.
	my %at = (in_slices => [qw(run_begins handler_returned end_written end_committed)], by_checkpoints => [qw(checkpoint_written checkpoint_committed)]);
	for my $worker (sort keys %at)
	{
		for my $point (@{ $at{$worker} })
		{
			my $job = enqueue($worker, 60);

			meet($job, 50);
			arm($point, 'kill');
			# The executor may see the row, and take the server down, before this has its answer.
			eval { let_go($job, 50) };
			wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_ls_dir('queue_jobs.points'))");
			wait_for_job($node, $job, 'completed', retry_crashed => 1);
			is_done_once($job, 60, "$worker: done once each, killed at $point");
		}
	}
}

$node->stop;
done_testing();
