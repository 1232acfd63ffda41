# Batches and workflows: what follows from the last member's end comes though its scheduler is killed, its server stopped, or its standby
# promoted before that; a restored copy goes on with both; signals that come as the wait for them ends; and beside an old snapshot
# neither a slice nor a member reads more than the ones before it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

# The scheduler stays, so that a test can stop it between two of its looks.
my $node = new_node('faults', init => [ allows_streaming => 1 ], conf => "restart_after_crash = on\nautovacuum = off\nqueue_jobs.idle_timeout = '10min'");

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

sql(<<'SQL');
CREATE TABLE called (worker text, batch bigint, job bigint);
CREATE FUNCTION call_back(batch bigint, job bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS
$$ INSERT INTO public.called SELECT worker, $1, $2 FROM queue_jobs.current_job() $$;
CREATE TABLE ran (job bigint, payload jsonb);
CREATE FUNCTION step(results jsonb DEFAULT NULL) RETURNS int LANGUAGE sql AS
$$ INSERT INTO public.ran SELECT id, $1 FROM queue_jobs.current_job(); SELECT 7 $$;
-- Waits once, for so many milliseconds.
CREATE FUNCTION asks(ms int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM public.ran WHERE job = (queue_jobs.current_job()).id) THEN
		PERFORM queue_jobs.wait_for_signal('go', ms * interval '1 ms');
	END IF;
	INSERT INTO public.ran SELECT id, queue_jobs.signal_payload('go') FROM queue_jobs.current_job();
END
$$;
CREATE FUNCTION slices(upto int, cursor jsonb DEFAULT '0') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF cursor::int < upto THEN
		PERFORM queue_jobs.continue_at(to_jsonb(cursor::int + 1));
	END IF;
END
$$;
-- A member that adds the next one.
CREATE FUNCTION link(n int) RETURNS void LANGUAGE sql AS
$$ SELECT queue_jobs.enqueue('link', jsonb_build_object('n', n - 1), batch => queue_jobs.current_batch()) WHERE n > 1 $$;
SELECT queue_jobs.define_worker(w, 'public.' || h) FROM (VALUES ('ended', 'call_back'), ('succeeded', 'call_back'), ('died', 'call_back'), ('step', 'step'),
	('asks', 'asks'), ('slices', 'slices'), ('link', 'link'), ('by_hand', NULL)) AS d (w, h);
CREATE FUNCTION make_batch(members int, open boolean DEFAULT false) RETURNS bigint LANGUAGE sql AS $$
	WITH b AS MATERIALIZED (SELECT queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended', on_dead => 'died', open => $2) AS id),
	     m AS MATERIALIZED (SELECT count(queue_jobs.enqueue('by_hand', jsonb_build_object('n', n), batch => b.id)) FROM b, generate_series(1, $1) n)
	SELECT id FROM b, m
$$;
-- Done by hand, then by an executor.
CREATE FUNCTION make_workflow() RETURNS bigint LANGUAGE sql AS $$
SELECT max(job) FROM queue_jobs.enqueue_workflow('w', '[{"step": "hand", "worker": "by_hand"}, {"step": "next", "worker": "step", "after": ["hand"]}]',
	on_success => 'succeeded', on_ended => 'ended')
$$;
SQL

# ---- between the last member's commit and the callback ----

# Members end while the scheduler is stopped. Returns how often it is called back by then.
sub end_beside_stopped_scheduler
{
	my ($batch) = @_;
	my $pid = stop_scheduler($node);
	sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('hand', '{by_hand}', 10)});
	is(sql("SELECT count(*) FROM called WHERE batch >= $batch"), 0, 'it has not looked yet');
	return $pid;
}

sub comes_once
{
	my ($name, $batch, $step) = @_;

	wait_until($node, "SELECT count(*) = 2 FROM queue_jobs.batch WHERE id >= $batch AND state = 'succeeded'");
	wait_until($node, "SELECT count(*) = 4 FROM called WHERE batch >= $batch");
	is(sql("SELECT string_agg(worker, ' ' ORDER BY batch, worker) FROM called WHERE batch >= $batch"), 'ended succeeded ended succeeded', "$name: each callback came once");
	is(sql("SELECT payload FROM ran WHERE job = $step"), '{"hand": null}', "$name: the next step ran once");
	return;
}

# Two batches, of members and of a workflow: the ids of the first and of the last step.
sub begin_both
{
	my $batch = sql('SELECT make_batch(3)');
	return ($batch, sql('SELECT make_workflow()'));
}

my ($batch, $step) = begin_both();
my $pid = end_beside_stopped_scheduler($batch);
kill 'KILL', $pid;
comes_once('scheduler killed', $batch, $step);

($batch, $step) = begin_both();
end_beside_stopped_scheduler($batch);
$node->stop('immediate');
$node->start;
comes_once('immediate stop', $batch, $step);

$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
($batch, $step) = begin_both();
end_beside_stopped_scheduler($batch);
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
$node = $standby;
comes_once('promotion', $batch, $step);

# ---- a restored copy ----

$batch = sql('SELECT make_batch(3)');
my $open = sql('SELECT make_batch(1, open => true)');
$step = sql('SELECT make_workflow()');
sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('hand', '{by_hand}')});
sql(q{SELECT queue_jobs.fail(id, attempt, 'dies', final => true) FROM queue_jobs.claim('hand', '{by_hand}')});
my $asks = sql(q{SELECT queue_jobs.enqueue('asks', '{"ms": 86400000}')});
wait_until($node, "SELECT (SELECT count(*) = 1 FROM called WHERE batch = $batch) AND state = 'waiting' FROM queue_jobs.job WHERE id = $asks");
my $batches = "SELECT id, name, state, jobs, remaining, completed, dead FROM queue_jobs.batch ORDER BY id";
my $before = sql($batches);
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--single-transaction', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is($node->safe_psql('restored', $batches), $before, 'restored batches stand as they stood');
$node->safe_psql('restored', "SELECT count(queue_jobs.complete(id, attempt, '5')) FROM queue_jobs.claim('hand', '{by_hand}', 10); SELECT queue_jobs.close_batch($open); SELECT queue_jobs.signal($asks, 'go')");
wait_until($node, "SELECT count(*) FILTER (WHERE state = 'ended') = 1 AND count(*) FILTER (WHERE state = 'succeeded') = 2 FROM queue_jobs.batch WHERE id >= $batch", db => 'restored');
wait_until($node, "SELECT count(*) = 6 FROM called WHERE batch >= $batch", db => 'restored');
is($node->safe_psql('restored', "SELECT string_agg(worker, ' ' ORDER BY batch, worker) FROM called WHERE batch >= $batch"), 'died ended ended succeeded ended succeeded',
	'each callback comes once, and none that came before the dump comes again');
is($node->safe_psql('restored', "SELECT payload FROM ran WHERE job = $step"), '{"hand": 5}', 'a restored step goes on with the results of the one before it');
wait_for_job($node, $asks, 'completed', db => 'restored');
wait_until($node, "SELECT count(*) = 1 FROM (SELECT queue_jobs.retry_batch($batch)) r", db => 'restored');
$node->safe_psql('restored', q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('hand', '{by_hand}', 10)});
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $batch", db => 'restored');
pass('a member that died before the dump is retried after the restore');
sql('DROP DATABASE restored WITH (FORCE)');

# ---- signals that come as the wait for them ends ----

sql(<<'SQL');
SELECT count(queue_jobs.enqueue('asks', jsonb_build_object('ms', n % 40))) FROM generate_series(1, 200) n;
DO $$
DECLARE
	asking bigint;
BEGIN
	FOR asking IN SELECT id FROM queue_jobs.job WHERE worker = 'asks' AND state <> 'completed' ORDER BY args -> 'ms' LOOP
		PERFORM queue_jobs.signal(asking, 'go');
		COMMIT;
	END LOOP;
END
$$;
SQL
wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'asks' AND state <> 'completed' AND id <> $asks)");
is(sql("SELECT count(*) FROM (SELECT job FROM ran JOIN queue_jobs.job j ON j.id = job WHERE worker = 'asks' AND j.id <> $asks GROUP BY job HAVING count(*) <> 2) r"), 0,
	'each job ran once before its signal or timeout, and once after');

# ---- beside an old snapshot ----

$node->append_conf('postgresql.conf', "queue_jobs.idle_timeout = '500ms'");
$node->reload;
my $holder = in_background($node);
$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id();');

# How many blocks are read for each of so many slices, or members: all of ours count, and what processes have read is known when they leave.
sub blocks_for_each
{
	my ($enqueue, $count) = @_;
	my $fetched = q{SELECT sum(pg_stat_get_blocks_fetched(c.oid)) FROM pg_class c WHERE relnamespace = 'queue_jobs'::regnamespace AND relkind IN ('r', 'i')};

	wait_for_no_processes($node, 'postgres');
	my $before = sql($fetched);
	my $id = sql($enqueue);
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.live_job WHERE id >= $id OR batch >= $id)");
	wait_for_no_processes($node, 'postgres');
	return (sql($fetched) - $before) / $count;
}

# (Their ids are not compared with each other: in each case all that is new is waited for.)
for my $kind ('slices', 'members that add the next one', 'steps')
{
	my %enqueue = (
		'slices' => q{SELECT queue_jobs.enqueue('slices', '{"upto": %d}')},
		'members that add the next one' => q{SELECT queue_jobs.enqueue('link', '{"n": %d}', batch => queue_jobs.new_batch())},
		'steps' => q{SELECT min(job) FROM queue_jobs.enqueue_workflow('w', (SELECT jsonb_agg(jsonb_build_object('step', 's' || n, 'worker', 'step')
			|| CASE WHEN n = 1 THEN '{}' ELSE jsonb_build_object('after', jsonb_build_array('s' || n - 1)) END) FROM generate_series(1, %d) n))});
	my $few = blocks_for_each(sprintf($enqueue{$kind}, 250), 250);
	my $many = blocks_for_each(sprintf($enqueue{$kind}, 1000), 1000);
	note("$kind: $few blocks for each of 250, $many of 1000");
	cmp_ok($many, '<', 1.5 * $few + 50, "$kind: the later ones read no more than the first");
}
$holder->quit;

$node->stop;
done_testing();
