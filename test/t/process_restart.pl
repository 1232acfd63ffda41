# Restarts and immediate stops under load: each job increments its own row exactly once, and an interruption charges
# nothing.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('restart', conf => 'checkpoint_timeout = 1h');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE counter (n int PRIMARY KEY, runs int NOT NULL DEFAULT 0);
CREATE FUNCTION increment(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.002);
	UPDATE counter SET runs = runs + 1 WHERE counter.n = increment.n;
END
$$;
SELECT queue_jobs.define_worker('increment', 'public.increment');
SQL

my $jobs = 0;

# Rows and jobs come in the same transactions, some at once, some a little later.
sub enqueue
{
	my ($count) = @_;

	$node->safe_psql('postgres', "
		WITH c AS (INSERT INTO counter SELECT generate_series($jobs + 1, $jobs + $count) RETURNING n)
		SELECT count(queue_jobs.enqueue('increment', jsonb_build_object('n', n),
			delay => CASE WHEN n % 10 = 0 THEN interval '500 ms' END)) FROM c");
	$jobs += $count;
	return;
}

# In the middle of the load, that is: some have run, some not.
sub in_the_middle
{
	wait_until($node, 'SELECT count(*) > 50 FROM counter WHERE runs > 0 AND n > (SELECT max(n) - 1000 FROM counter)');
	return;
}

for my $how (qw(fast immediate immediate fast))
{
	enqueue(1000);
	in_the_middle();
	$node->stop($how);
	$node->start;
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM counter WHERE runs > 1'), '==', 0, "stop $how: none ran twice");
}

wait_until($node, 'SELECT count(*) = 0 FROM counter WHERE runs = 0');
is($node->safe_psql('postgres', 'SELECT runs, count(*) FROM counter GROUP BY 1'), "1|$jobs", 'each job ran exactly once');
is( $node->safe_psql('postgres', 'SELECT state, attempt, count(*) FROM queue_jobs.job GROUP BY 1, 2'),
	"completed|1|$jobs", 'all are completed, with one attempt');
is(log_count($node, 'PANIC|TRAP|terminated by signal'), 0, 'no crash');

$node->stop;
done_testing();
