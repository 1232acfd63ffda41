# A procedure that commits on its way: at least once. What it committed stays, whatever stops it, and it runs again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('procedure', conf => 'restart_after_crash = on');
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE step (n int, step int, attempt int, role name DEFAULT session_user);
CREATE PROCEDURE stepwise(n int) LANGUAGE plpgsql AS $$
DECLARE
	mine int := (SELECT attempt FROM queue_jobs.current_job());
BEGIN
	INSERT INTO step (n, step, attempt) VALUES (n, 1, mine);
	COMMIT;
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n = stepwise.n) LOOP
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP;
	INSERT INTO step (n, step, attempt) VALUES (n, 2, mine);
	COMMIT;
	IF n < 0 THEN
		INSERT INTO step (n, step, attempt) VALUES (n, 3, mine);
		RAISE 'negative';
	END IF;
END
$$;
SELECT queue_jobs.define_worker('stepwise', 'public.stepwise');
SQL

sub start_job
{
	my ($n) = @_;

	my $id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('stepwise', jsonb_build_object('n', $n))");
	wait_until($node, "SELECT count(*) = 1 FROM step WHERE n = $n");
	return $id;
}

# Undisturbed.
my $id = start_job(1);
is($node->safe_psql('postgres', "SELECT state, attempt, executor_pid IS NOT NULL, claimant FROM queue_jobs.job WHERE id = $id"),
	'executing|1|t|', 'a job whose handler commits is executing');
is($node->safe_psql('postgres', "SELECT queue_jobs.remove_jobs('stepwise')"), '0', '… and not removed');
my ($status, $out, $err) = $node->psql('postgres', "SELECT queue_jobs.complete($id, 1)");
like($err, qr/not claimed/, '… nor to be completed from outside');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (1)');
wait_for_job($node, $id, 'completed');
is($node->safe_psql('postgres', 'SELECT step, attempt FROM step WHERE n = 1 ORDER BY 1'), "1|1\n2|1", 'it ran once');

# Fails after it has committed.
$id = start_job(-1);
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (-1)');
wait_for_job($node, $id, 'retryable');
is($node->safe_psql('postgres', "SELECT least(attempt, 1), last_error FROM queue_jobs.job WHERE id = $id"), '1|negative', 'a failure is a failure');
is($node->safe_psql('postgres', 'SELECT step FROM step WHERE n = -1 ORDER BY 1'), "1\n2", 'what it committed stays');

# Stopped in the middle.
my $n = 10;
for my $how (qw(pg_terminate_backend pg_cancel_backend))
{
	$n++;
	$id = start_job($n);
	$node->safe_psql('postgres', "SELECT $how(executor_pid) FROM queue_jobs.job WHERE id = $id");
	my $since = time;
	wait_until($node, "SELECT count(*) = 2 FROM step WHERE n = $n");
	cmp_ok(time - $since, '<', 55, "$how: it starts again at once");
	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
	wait_for_job($node, $id, 'completed');
	is($node->safe_psql('postgres', "SELECT string_agg(step::text, ' ' ORDER BY step) FROM step WHERE n = $n"), '1 1 2', "$how: it runs again");
}
is($node->safe_psql('postgres', "SELECT attempt, errors IS NULL FROM queue_jobs.job WHERE id = $id"), '1|t', '… and is not charged');

# cancel().
$id = start_job(20);
is($node->safe_psql('postgres', "SELECT queue_jobs.cancel($id)"), 't', 'cancel()');
wait_for_job($node, $id, 'cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM step WHERE n = 20'), '1', '… stops it, what it committed stays');

# Timeout.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('short', 'public.stepwise', timeout => '300 ms', max_retries => 0)});
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('short', '{"n": 21}')});
wait_for_job($node, $id, 'dead');
like($node->safe_psql('postgres', "SELECT last_error FROM queue_jobs.job WHERE id = $id"), qr/timeout/, 'a timeout stops it, too');

# kill -9, and an immediate stop. (What was committed last may be lost by them, for commits are asynchronous.)
$id = start_job(30);
my $other = start_job(31);
my $pid = $node->safe_psql('postgres', "SELECT executor_pid FROM queue_jobs.job WHERE id = $id");
my $started = $node->safe_psql('postgres', "SELECT started_at FROM queue_jobs.job WHERE id = $other");
kill 'KILL', $pid;
wait_until($node, "SELECT state = 'executing' AND started_at > '$started' FROM queue_jobs.job WHERE id = $other");
wait_until($node, "SELECT errors -> 0 ->> 'sqlstate' = '57P02' FROM queue_jobs.job WHERE id = $id");
pass('kill -9: the job is charged');
$node->safe_psql('postgres', "SELECT queue_jobs.retry($id)");
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (30), (31)');
wait_for_job($node, $_, 'completed') foreach ($id, $other);
is($node->safe_psql('postgres', "SELECT attempt FROM queue_jobs.job WHERE id IN ($id, $other) ORDER BY id"), "2\n1", '… and no other is');

$id = start_job(40);
$started = $node->safe_psql('postgres', "SELECT started_at FROM queue_jobs.job WHERE id = $id");
$node->stop('immediate');
$node->start;
wait_until($node, "SELECT state = 'executing' AND started_at > '$started' FROM queue_jobs.job WHERE id = $id");
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (40)');
wait_for_job($node, $id, 'completed');
is($node->safe_psql('postgres', "SELECT attempt FROM queue_jobs.job WHERE id = $id"), '1', 'an immediate stop: it runs again, and is not charged');

# DROP and back while it runs: the end of the run is written all the same, or the job waits; never lost.
$id = start_job(50);
$node->safe_psql('postgres', q{SELECT queue_jobs.drop_worker('stepwise')});
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (50)');
wait_for_job($node, $id, 'completed');
pass('its worker dropped while it runs');

$node->stop;
done_testing();
