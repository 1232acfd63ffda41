# A session holds a snapshot for long, and nothing that jobs leave behind can be removed: what a claim, an enqueue and a run
# read must not grow with it. Nor does what a transaction reads that steers one job over and over. Counted in buffers, not in time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('dead', conf => "autovacuum = off\nsynchronous_commit = off\nqueue_jobs.synchronous_commit = off\nqueue_jobs.idle_timeout = '500ms'\n");
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ran ();
CREATE FUNCTION runs(args jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO ran DEFAULT VALUES';
SELECT queue_jobs.define_worker('claimed');
SELECT queue_jobs.define_worker('one_key', idempotent => true);
SELECT queue_jobs.define_worker('one_run', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('executed', 'public.runs', keep_completed => '0');
SQL

# What a statement reads, as the server counts it.
sub buffers
{
	my ($statement) = @_;
	my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $statement");
	my ($execution) = split /Planning:/, $plan;
	my ($hit) = $execution =~ /shared hit=(\d+)/;
	my ($read) = $execution =~ /\bread=(\d+)/;

	return ($hit // 0) + ($read // 0);
}

# One job after the other comes and goes, in one transaction each.
sub cycles
{
	my ($worker, $count) = @_;
	my $script = $node->basedir . "/$worker.sql";

	unlink $script;
	append_to_file($script, "SELECT queue_jobs.enqueue('$worker');\nSELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{$worker}');\n");
	$node->command_ok([ 'pgbench', '-n', '-M', 'prepared', '-c', 1, '-t', $count, '-f', $script, 'postgres' ], "$count jobs of $worker");
	return;
}

# What executors read of the table and its index for each of so many runs; it is told when they have left.
sub blocks_read
{
	my ($count) = @_;
	my $fetched = q{SELECT pg_stat_get_blocks_fetched('queue_jobs.live_job'::regclass) + pg_stat_get_blocks_fetched('queue_jobs.live_job_ready'::regclass)};
	my $ran = $node->safe_psql('postgres', 'SELECT count(*) FROM ran');
	my $before = $node->safe_psql('postgres', $fetched);

	$node->safe_psql('postgres', 'DO $$ BEGIN FOR i IN 1 .. ' . $count . q{ LOOP PERFORM queue_jobs.enqueue('executed'); COMMIT; END LOOP; END $$});
	# (Not by the view, which would read the table, and be counted, too.)
	wait_until($node, "SELECT count(*) = $ran + $count FROM ran");
	wait_for_no_processes($node, 'postgres');
	return int(($node->safe_psql('postgres', $fetched) - $before) / $count);
}

# Fewer than a walk over the leaves of 6000 entries would read, dead or not.
my $more = 15;

my $holder = in_background($node);
$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');

my %reads;
my %runs;
foreach my $dead (300, 6000)
{
	blocks_read($dead);
	$runs{$dead} = blocks_read(50);
	foreach my $worker ('claimed', 'one_key', 'one_run')
	{
		cycles($worker, $dead);
		$reads{"enqueue, $worker"}{$dead} = buffers("SELECT queue_jobs.enqueue('$worker')");
		$reads{"claim, $worker"}{$dead} = buffers("SELECT * FROM queue_jobs.claim('c', '{$worker}', 1, '1 day')");
		$reads{"claim in vain, $worker"}{$dead} = buffers("SELECT * FROM queue_jobs.claim('c', '{$worker}')");
		my $id = $node->safe_psql('postgres', 'SELECT max(id) FROM queue_jobs.job');
		$reads{"complete, $worker"}{$dead} = buffers("SELECT queue_jobs.complete($id, 1)");
	}
}
note("a run: $runs{300} buffers beside 300 dead, $runs{6000} beside 6300");
cmp_ok($runs{6000}, '<', $more + $runs{300}, 'a run by an executor: as much beside 6300 dead rows as beside 300');
foreach my $what (sort keys %reads)
{
	note("$what: $reads{$what}{300} buffers beside 300 dead, $reads{$what}{6000} beside 6300");
	cmp_ok($reads{$what}{6000}, '<', $more + $reads{$what}{300}, "$what: as much beside 6300 dead rows as beside 300");
}
$holder->quit;

# ---- one job that is steered over and over in one transaction, or in savepoints of it: four times as often reads four times as much ----

$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('in order', concurrency_key => 'n', concurrency_limit => 1);
CREATE FUNCTION steer(job bigint, times int, undone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		BEGIN
			PERFORM queue_jobs.cancel(job);
			IF undone AND i % 2 = 0 THEN
				RAISE EXCEPTION 'undone';
			END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
		PERFORM queue_jobs.retry(job);
	END LOOP;
END
$$;
SQL
foreach my $worker ('claimed', 'one_key', 'in order')
{
	my $id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', '{\"n\": 100000}', delay => '1 hour')");

	foreach my $calls (
		'queue_jobs.cancel(ID), queue_jobs.retry(ID)', 'queue_jobs.discard(ID), queue_jobs.retry(ID)',
		q{queue_jobs.change_job(ID, run_at => now() + n * interval '1 min')}, 'queue_jobs.change_job(ID, priority => n)',
		'steer(ID, TIMES, false)', 'steer(ID, TIMES, true)')
	{
		my %times;
		foreach my $times (300, 1200)
		{
			my $rows = $calls =~ /TIMES/ ? 1 : $times;
			$times{$times} = buffers('SELECT ' . $calls =~ s/ID/$id/gr =~ s/TIMES/$times/r . " FROM generate_series(1, $rows) n");
		}
		note("$calls, $worker: $times{300} buffers for 300 times, $times{1200} for 1200");
		cmp_ok($times{1200}, '<', 6 * $times{300}, "$worker: $calls");
	}
}
$node->stop;
done_testing();
