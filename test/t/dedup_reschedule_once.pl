# reschedule_once: what is dropped during a run makes exactly one more run, whenever processes die. A run that is undone is
# none, and starts again by itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('reschedule_once',
	# What has run is to stay so, through the stops: executors would commit asynchronously.
	conf => "restart_after_crash = on\ncheckpoint_timeout = 1h\nqueue_jobs.synchronous_commit = on");

# A run reads what there is to see when it begins, waits for its gate, and says what it had seen.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE note (key int, n int);
CREATE TABLE gate (key int, run int);
CREATE TABLE run (key int, seen int, job bigint DEFAULT (queue_jobs.current_job()).id);
CREATE FUNCTION follow(key int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	notes constant int := (SELECT count(*) FROM note WHERE note.key = follow.key);
	runs constant int := (SELECT count(*) FROM run WHERE run.key = follow.key);
BEGIN
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.key = follow.key AND gate.run = runs + 1) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO run VALUES (follow.key, notes);
END
$$;
CREATE FUNCTION at_once(int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$;
SELECT queue_jobs.define_worker('follow', 'public.follow', idempotent => true, deduplicate => 'until_executed',
	if_deduplicated => 'reschedule_once', retry_backoff => 'public.at_once', max_retries => 10);
SQL

my $key = 0;

# Starts the first run for a new key, and waits until it is at its gate.
sub begin
{
	$key++;
	$node->safe_psql('postgres', "SELECT queue_jobs.enqueue('follow', '{\"key\": $key}')");
	wait_at_gate();
	return;
}

sub wait_at_gate
{
	wait_until($node, "SELECT count(*) = 1 FROM queue_jobs.job j JOIN pg_stat_activity a ON a.pid = executor_pid
		WHERE args = '{\"key\": $key}' AND j.state = 'executing' AND wait_event = 'PgSleep'");
	return;
}

# So many transactions leave a note and return the id of a job that another session sees to.
sub drop_some
{
	my ($count) = @_;

	for (1 .. $count)
	{
		my $new = $node->safe_psql('postgres',
			"BEGIN; INSERT INTO note VALUES ($key, $_); SELECT queue_jobs.try_enqueue('follow', '{\"key\": $key}') IS NULL; COMMIT");
		die "not a duplicate" if $new ne 't';
	}
	return;
}

sub open_gate
{
	my ($run) = @_;

	$node->safe_psql('postgres', "INSERT INTO gate VALUES ($key, $run)");
	return;
}

# The second gate is open, too: so many runs there have been in the end, the last of which had seen so many notes.
sub check
{
	my ($runs, $seen, $name) = @_;

	$node->safe_psql('postgres', "INSERT INTO gate SELECT $key, generate_series(1, 9)");
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE args = '{\"key\": $key}' AND state IN ('available', 'executing', 'retryable', 'scheduled'))");
	is($node->safe_psql('postgres', "SELECT count(*), max(seen) FROM run WHERE key = $key"), "$runs|$seen", $name);
	return;
}

sub kill_executor
{
	my $pid = $node->safe_psql('postgres', "SELECT executor_pid FROM queue_jobs.job WHERE args = '{\"key\": $key}' AND state = 'executing'");
	kill 'KILL', $pid;
	wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
	return;
}

sub stop_server
{
	$node->stop('immediate');
	$node->start;
	return;
}

my %ends = (
	'kill -9' => \&kill_executor,
	'immediate stop' => \&stop_server,
	'pg_terminate_backend' => sub {
		$node->safe_psql('postgres', "SELECT pg_terminate_backend(executor_pid, 60000) FROM queue_jobs.job WHERE args = '{\"key\": $key}' AND state = 'executing'");
	});

begin();
check(1, 0, 'nothing dropped: no more run');
begin();
drop_some(1);
check(2, 1, 'one dropped: one more run');
begin();
drop_some(7);
check(2, 7, 'seven dropped: one more run');

for my $how (sort keys %ends)
{
	begin();
	$ends{$how}->();
	check(1, 0, "$how before anything was dropped: the run begins again, no other");

	begin();
	drop_some(3);
	$ends{$how}->();
	check(1, 3, "$how after three were dropped: the run begins again, and sees them; no other");

	# While the transaction that was told "duplicate" is open: the kill takes it along, all but pg_terminate_backend().
	begin();
	my $session = in_background($node);
	$session->query("BEGIN; INSERT INTO note VALUES ($key, 1); SELECT queue_jobs.try_enqueue('follow', '{\"key\": $key}')");
	$ends{$how}->();
	wait_at_gate();
	if ($how eq 'pg_terminate_backend')
	{
		$session->query('COMMIT');
		check(2, 1, "$how while one is dropped: one more run");
	}
	else
	{
		check(1, 0, "$how while one is dropped: that never was");
	}
	eval { $session->quit };

	# The run has ended, and the one that follows it has begun.
	begin();
	drop_some(3);
	open_gate(1);
	wait_until($node, "SELECT count(*) = 1 FROM run WHERE key = $key");
	wait_at_gate();
	$ends{$how}->();
	check(2, 3, "$how during the run that follows: it begins again, no other");

	# The same, and more is dropped during it.
	begin();
	drop_some(3);
	open_gate(1);
	wait_until($node, "SELECT count(*) = 1 FROM run WHERE key = $key");
	wait_at_gate();
	drop_some(2);
	$ends{$how}->();
	check(2, 5, "$how after more was dropped during the run that follows: it begins again, and sees it; no other");
}

# A run that fails: the retry would see what was dropped, so that there is one more run.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE failure (key int);
CREATE FUNCTION follow_or_fail(key int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.follow(key);
	IF EXISTS (SELECT FROM failure WHERE failure.key = follow_or_fail.key AND (queue_jobs.current_job()).attempt = 1)
		AND (SELECT count(*) = 1 FROM run WHERE run.key = follow_or_fail.key) THEN
		RAISE EXCEPTION 'the first run fails';
	END IF;
END
$$;
SELECT queue_jobs.define_worker('follow', 'public.follow_or_fail', idempotent => true, deduplicate => 'until_executed',
	if_deduplicated => 'reschedule_once', max_retries => 10);
SQL
begin();
drop_some(2);
my $first = $node->safe_psql('postgres', "INSERT INTO failure VALUES ($key); SELECT id FROM queue_jobs.job WHERE args = '{\"key\": $key}' AND state = 'executing'");
$node->safe_psql('postgres', "INSERT INTO gate SELECT $key, generate_series(1, 9)");
wait_until($node, "SELECT count(*) = 1 FROM run WHERE key = $key");
check(1, 2, 'a run that failed: the one that follows is its retry, too');
is($node->safe_psql('postgres', "SELECT state, jsonb_array_length(errors), result ? 'merged_into' FROM queue_jobs.job WHERE id = $first"),
	'cancelled|1|t', 'which was merged with it');

# What is dropped in the very moment that a run ends: its follow-up is passed by while the run still has the key, and is
# found nevertheless. Each key is used once, so that no other session brings it back to mind.
$node->safe_psql('postgres', <<'SQL');
ALTER DATABASE postgres SET synchronous_commit = off;
ALTER SYSTEM SET queue_jobs.synchronous_commit = off;
SELECT pg_reload_conf();
CREATE SEQUENCE key;
CREATE FUNCTION nothing(args jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT queue_jobs.define_worker('executed', 'public.nothing', idempotent => true, deduplicate => 'until_executed',
	if_deduplicated => 'reschedule_once', keep_completed => '0');
SELECT queue_jobs.define_worker('claimed', idempotent => true, deduplicate => 'until_executed',
	if_deduplicated => 'reschedule_once', keep_completed => '0');
SQL
my %scripts;
for my $worker ('executed', 'claimed')
{
	$scripts{$worker} = $node->basedir . "/$worker.sql";
	append_to_file($scripts{$worker}, "SELECT nextval('key') AS key \\gset\n"
		  . "SELECT queue_jobs.enqueue('$worker', jsonb_build_object('key', :key));\n" x 4);
}
$scripts{at_once} = $node->basedir . '/at_once.sql';
append_to_file($scripts{at_once}, <<'SQL');
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c' || :client_id, '{claimed}', 3);
SQL
$scripts{by_lease} = $node->basedir . '/by_lease.sql';
append_to_file($scripts{by_lease}, <<'SQL');
SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempt), '{}') AS attempts FROM queue_jobs.claim('c' || :client_id, '{claimed}', 2) \gset
SELECT queue_jobs.complete_many(':ids'::bigint[], ':attempts'::int[]);
SQL
$node->command_ok([ 'pgbench', '-n', '-c', 3, '-j', 2, '-T', 4, '-f', $scripts{executed}, 'postgres' ], 'follow-ups for executors');
$node->command_ok([ 'pgbench', '-n', '-c', 10, '-j', 2, '-T', 4, '-f', "$scripts{claimed}\@3", '-f', "$scripts{at_once}\@3", '-f', "$scripts{by_lease}\@3", 'postgres' ],
	'follow-ups for claimants');
# A claim may find nothing while another process looks at the job that is left: it is asked again.
my $end = time + 50;    # who was forgotten is found after a minute
while (time < $end && $node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker IN ('executed', 'claimed')}) > 0)
{
	$node->safe_psql('postgres', q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('last', '{claimed}', 1000)});
	select undef, undef, undef, 0.1;
}
is($node->safe_psql('postgres', q{SELECT worker, count(*) FROM queue_jobs.job WHERE worker IN ('executed', 'claimed') GROUP BY 1 ORDER BY 1}),
	'', 'all of them have run');

is(log_count($node, 'PANIC|TRAP|server process .* was terminated by signal 11'), 0, 'no crash but those we made');
$node->stop;
done_testing();
