# Jobs in 1,000 queues: which goes first is as if they were in one, and a claim reads as much as beside 10 queues. Counted in
# buffers, not in time. A new queue costs what it costs beside few, and with more lanes than there is room for hints all jobs are done.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('lanes', conf => "autovacuum = off\nqueue_jobs.idle_timeout = '500ms'\nqueue_jobs.max_executors = 1\n");
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ran (id bigint GENERATED ALWAYS AS IDENTITY, queue text);
CREATE FUNCTION runs(queue text) RETURNS void LANGUAGE sql AS 'INSERT INTO ran (queue) VALUES ($1)';
SELECT queue_jobs.define_worker('claimed');
SELECT queue_jobs.define_worker('executed', 'public.runs', keep_completed => '0');
SQL

# So many jobs, in turn in so many queues.
sub enqueue
{
	my ($worker, $queues, $jobs) = @_;

	$node->safe_psql('postgres', "SELECT count(queue_jobs.enqueue('$worker', jsonb_build_object('queue', 'q' || i % $queues), queue => 'q' || i % $queues))
		FROM generate_series(1, $jobs) i");
	return;
}

# What a claim reads that is not its session's first. (That one finds out which lanes there are.)
sub buffers
{
	my $plan = $node->safe_psql('postgres', "SELECT FROM queue_jobs.claim('c', '{*}');
		EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM queue_jobs.claim('c', '{*}', 10)");
	my ($execution) = split /Planning:/, $plan;

	return ($execution =~ /shared hit=(\d+)/ ? $1 : 0) + ($execution =~ /\bread=(\d+)/ ? $1 : 0);
}

my %buffers;
foreach my $queues (10, 1000)
{
	enqueue('claimed', $queues, 5000);
	my $first = $node->safe_psql('postgres', q{SELECT min(id) FROM queue_jobs.job WHERE state = 'available'});

	is($node->safe_psql('postgres', "SELECT min(id) - $first, max(id) - $first, count(*) FROM queue_jobs.claim('c', '{*}', 30)"), '0|29|30',
		"the oldest come first out of $queues queues");
	$buffers{$queues} = buffers();
	$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
}
note("a claim of 10 jobs: $buffers{10} buffers beside 10 queues, $buffers{1000} beside 1000");
cmp_ok($buffers{1000}, '<', 100 + $buffers{10}, 'a claim of 10 jobs: as much beside 1000 queues as beside 10');

# Another session's, of before the first, and its own: both are found by a session that knows the lanes.
enqueue('claimed', 1000, 2000);
my $session = in_background($node);
my $claim = q{SELECT string_agg(queue, ',' ORDER BY id) FROM queue_jobs.claim('c', '{*}', 2)};
is($session->query($claim), 'q1,q2', 'the oldest');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('claimed', queue => 'q700', priority => -1)});
is($session->query($claim), 'q3,q700', 'what another session has enqueued meanwhile goes first');
$session->query('BEGIN');
$session->query(q{SELECT queue_jobs.enqueue('claimed', queue => 'q800', priority => -1)});
is($session->query($claim), 'q4,q800', 'what the transaction itself has enqueued, too');
$session->query('ROLLBACK');
is($session->query($claim), 'q4,q5', 'what it took is free again, what it enqueued is not there');
$session->quit;

# An executor gives each queue its turn.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('q' || i) FROM generate_series(0, 99) i});
enqueue('executed', 100, 500);
$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.resume('q' || i) FROM generate_series(0, 99) i; COMMIT});
wait_until($node, 'SELECT count(*) = 500 FROM ran');
is($node->safe_psql('postgres', q{SELECT DISTINCT count(DISTINCT queue) FROM ran GROUP BY (id - 1) / 100}), '100', 'the queues take turns');

# Four lanes of one queue, of which nothing is known after a restart, with a long job each: who takes the first calls for the others.
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors = 4');
$node->restart;
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE gate (n int);
CREATE FUNCTION waits(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM gate) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END
$$;
SELECT queue_jobs.pause('long');
SELECT queue_jobs.define_worker('long' || i, 'public.waits', queue => 'long') FROM generate_series(1, 4) i;
SELECT queue_jobs.enqueue('long' || i) FROM unnest(ARRAY[4, 3, 2, 1]) i;
SQL
$node->restart;
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('long')});
wait_until($node, q{SELECT count(*) = 4 FROM queue_jobs.job WHERE state = 'executing' AND worker LIKE 'long%'});
pass('all four run at once');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (1)');
wait_until($node, q{SELECT count(*) = 4 FROM queue_jobs.job WHERE state = 'completed' AND worker LIKE 'long%'});
$node->stop;

# Hints for 64 lanes in all: those of databases that have been dropped are given to others. (The counts are in the hints.)
$node = new_node('hints', extension => 0, conf => "queue_jobs.max_lanes = 64\n");
foreach my $round (1 .. 4)
{
	my $db = "short$round";

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, <<'SQL');
CREATE EXTENSION queue_jobs;
SELECT queue_jobs.define_worker('held', idempotent => true);
SELECT queue_jobs.enqueue('held', queue => 'q' || i) FROM generate_series(1, 40) i, generate_series(1, 2);
SQL
	is($node->safe_psql($db, q{SELECT count(*), sum(dropped) FROM queue_jobs_internal.lane_duplicates()}), '40|40', "database $round: each of 40 lanes has its hint");
	$node->safe_psql('postgres', "DROP DATABASE $db");
}
$node->stop;

# A new lane calls no session: no session reads the others for its sake, neither who adds it nor who enqueues and claims beside.
$node = new_node('new_lane', conf => "autovacuum = off\nqueue_jobs.idle_timeout = '200ms'\n");
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('claimed');
SELECT count(queue_jobs.enqueue('claimed', queue => 'q' || i)) FROM generate_series(1, 5000) i;
VACUUM ANALYZE queue_jobs.lane;
SQL
my %session = map { $_ => in_background($node) } qw(adding beside);
foreach my $name (sort keys %session)
{
	$session{$name}->query(q{SELECT count(*) FROM queue_jobs.claim('c', '{*}', 1)});
	$session{$name}->query(q{SELECT queue_jobs.enqueue('claimed', queue => 'q1')});
}
# What a statement reads of the table of lanes and its indexes. (The server counts from what it has last reported.)
my $read = sub
{
	my ($name, $sql) = @_;
	my $of_lanes = q{SELECT sum(pg_stat_get_xact_blocks_fetched(c.oid)) + sum(pg_stat_get_xact_tuples_returned(c.oid))
		FROM pg_class c WHERE c.relname IN ('lane', 'lane_pkey', 'lane_content') AND relnamespace = 'queue_jobs'::regnamespace};

	$session{$name}->query('BEGIN');
	my $before = $session{$name}->query($of_lanes);
	$session{$name}->query($sql);
	my $after = $session{$name}->query($of_lanes);
	$session{$name}->query('COMMIT');
	return $after - $before;
};
cmp_ok($read->('adding', q{SELECT queue_jobs.enqueue('claimed', queue => 'new1')}), '<', 60, 'a new lane beside 5000: it is looked up');
cmp_ok($read->('beside', q{SELECT queue_jobs.enqueue('claimed', queue => 'q1')}), '<', 10, 'a job in an old lane, after that');
cmp_ok($read->('beside', q{SELECT count(*) FROM queue_jobs.claim('c', '{*}', 1)}), '<', 30, 'a claim, after that');
$_->quit foreach values %session;
$node->stop;

# Room for the hints of 64 lanes, and 500 with jobs at once.
$node = new_node('full', conf => "queue_jobs.max_lanes = 64\nqueue_jobs.max_executors = 3\n");
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ran (worker text, args jsonb);
CREATE FUNCTION note(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO ran VALUES ($1->>'worker', $1)$$;
SELECT queue_jobs.define_worker('plain', 'public.note');
SELECT queue_jobs.define_worker('two_at_once', 'public.note', max_running_jobs => 2);
SELECT queue_jobs.define_worker('keyed', 'public.note', concurrency_key => 'key', concurrency_limit => 1);
SELECT queue_jobs.define_worker('once', 'public.note', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('claimed');
SQL
my $log = -s $node->logfile;
sub spread
{
	my ($worker, $jobs) = @_;

	$node->safe_psql('postgres', "SELECT count(queue_jobs.enqueue('$worker', jsonb_build_object('worker', '$worker', 'n', i, 'key', i % 10), queue => 'q' || i))
		FROM generate_series(1, $jobs) i");
	return;
}
spread('plain', 500);
wait_until($node, q{SELECT count(*) = 500 FROM ran WHERE worker = 'plain'});
pass('500 jobs of 500 lanes are done');
foreach my $worker ('two_at_once', 'keyed', 'once')
{
	spread($worker, 300);
	wait_until($node, "SELECT count(DISTINCT args->'n') = 300 FROM ran WHERE worker = '$worker'");
	pass("300 jobs of $worker in 300 lanes are done");
}
is(() = slurp_file($node->logfile, $log) =~ /LOG:  queue_jobs has no room for hints on all lanes that have jobs/g, 1, 'the log says once that there is no room');
is($node->safe_psql('postgres', q{SELECT ok, value FROM queue_jobs.health() WHERE name = 'lanes'}), 'f|more had jobs at once than there is room for', '… and health() does');

# One by one beside these, each awaited: who sleeps is woken though the lane has no hint yet.
foreach my $i (1 .. 20)
{
	$node->safe_psql('postgres', "SELECT queue_jobs.enqueue('plain', jsonb_build_object('worker', 'single', 'n', $i), queue => 'single$i')");
	wait_until($node, "SELECT count(*) = $i FROM ran WHERE worker = 'single'");
}
pass('jobs that come one by one are done');

# 2,000 lanes of a role whose jobs nobody takes are no concern of another role's: however many they are, its executor looks into as many at first as there is
# room for hints, or 256, and then into a part at a time. (It takes a job in the transaction in which the job runs.)
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE looks (scans bigint);
CREATE FUNCTION count_looks(args jsonb) RETURNS void LANGUAGE sql AS
$$INSERT INTO looks SELECT pg_stat_get_xact_numscans('queue_jobs.live_job_ready'::regclass)$$;
SELECT queue_jobs.define_worker('counting', 'public.count_looks');
SELECT queue_jobs.define_worker('left_alone');
CREATE ROLE other LOGIN;
GRANT queue_jobs_enqueue TO other;
GRANT INSERT ON looks TO other;
GRANT USAGE ON SCHEMA queue_jobs TO other;
SQL
# A lane of the other role has a hint, in which its duplicates are counted, as long as it has a job. (The job comes first: duplicates are not counted where there is no
# room for a hint, and only a job makes room.)
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('kept', idempotent => true); SET ROLE other; SELECT queue_jobs.enqueue('kept'); SELECT queue_jobs.enqueue('kept') FROM generate_series(1, 4)});
spread('left_alone', 2000);
is($node->safe_psql('postgres', q{SELECT dropped_duplicates FROM queue_jobs.worker WHERE name = 'kept'}), '4', "the hints of a role's many lanes give way to each other, and not those of another role");
foreach my $i (1 .. 10)
{
	$node->safe_psql('postgres', q{SET ROLE other; SELECT queue_jobs.enqueue('counting')});
	wait_until($node, "SELECT count(*) = $i FROM looks");
}
# (An executor that has just started looks until it has found a lane of its role.)
my $looks = $node->safe_psql('postgres', 'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY scans) FROM looks');
note("$looks looks into the index before a job begins, the median of ten");
cmp_ok($looks, '<', 1000, "another role's lanes, many more than there is room for, do not delay a job");

# A restart finds a job behind more lanes than there is room for, whose jobs wait for claimants.
sub restart_with
{
	my ($executors) = @_;

	$node->append_conf('postgresql.conf', "queue_jobs.max_executors = $executors\nqueue_jobs.idle_timeout = '1ms'");
	$node->restart;
	return;
}

restart_with(0);
$node->safe_psql('postgres', q{SET ROLE other; SELECT queue_jobs.enqueue('counting', queue => 'behind')});
restart_with(3);
wait_until($node, 'SELECT count(*) = 11 FROM looks');
pass('a job behind lanes that executors do not serve is done after a restart');

# A claim that goes through many lanes in vain keeps nothing open there: their index entries are there, their jobs are not.
$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.remove_jobs('left_alone'); COMMIT; SELECT queue_jobs.enqueue('left_alone', queue => 'q2001')});
my $through = in_background($node);
my $pid = $through->query('SELECT pg_backend_pid()');
is($through->query(q{SELECT count(*) FROM queue_jobs.claim('c', '{*}')}), '1', 'the job is found among 2001 lanes');
SKIP:
{
	skip 'no /proc here that says how much memory a process has had', 1 unless -r "/proc/$pid/status";
	my ($kilobytes) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m;
	note("the session has had $kilobytes kB");
	cmp_ok($kilobytes, '<', 40_000, 'lanes without jobs take little of the memory of a claim');
}
$through->quit;
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('left_alone')});

# Claimants, one that waits and one that comes anew for each claim.
spread('claimed', 300);
my $waiting = in_background($node);
my $claims = 0;
while ($claims < 300)
{
	$waiting->query(q{CALL queue_jobs.wait_for_jobs('{*}', '100 s')});
	$claims += $waiting->query(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('waits', '{*}', 7)});
	$claims += $node->safe_psql('postgres', q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('comes', '{*}', 5)});
}
is($claims, 300, '300 jobs of 300 lanes are claimed, each once');
is($waiting->query(q{SELECT count(*) FROM queue_jobs.claim('waits', '{*}', 7)}), '0', 'and no more');
$waiting->quit;

# After a crash no hint is there, and jobs of many lanes are.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('p' || i) FROM generate_series(1, 200) i});
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('plain', jsonb_build_object('worker', 'crash', 'n', i), queue => 'p' || i)) FROM generate_series(1, 200) i});
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('p' || i) FROM generate_series(1, 200) i});
wait_until($node, q{SELECT count(*) = 200 FROM ran WHERE worker = 'crash'});
pass('jobs of 200 lanes are done after a crash');
$node->stop;

done_testing();
