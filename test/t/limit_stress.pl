# Limits under load and kills: 16 sessions that claim, executors of functions and of procedures, some of them killed.
# What runs at once is counted outside of the queue, and not by samples: every run leaves the times between which it was
# certainly running, and no moment may be in more of these spans than the limit allows. Claimants, which nobody
# interrupts, take a seat as well: an advisory lock of the test's own, of which there are as many as the limit allows.
# QUEUE_JOBS_STRESS_SECONDS makes it longer than six seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} // 6;
my $node = new_node('limits', conf => <<'CONF');
max_connections = 100
synchronous_commit = off
queue_jobs.max_executors = 6
queue_jobs.max_executors_per_database = 6
CONF

# Sequences tell of a seat that was missing however the transaction ends.
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE too_many;
CREATE TABLE ran (job bigint, worker text, tenant int, began timestamptz, ended timestamptz, started_at timestamptz,
	pid int DEFAULT pg_backend_pid());
CREATE FUNCTION sit(class int, seats int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	FOR seat IN 1 .. seats LOOP
		IF pg_try_advisory_lock(class, seat) THEN
			RETURN seat;
		END IF;
	END LOOP;
	RETURN - nextval('too_many');
END
$$;
CREATE FUNCTION rise(class int, seat int) RETURNS void LANGUAGE sql AS $$
	SELECT pg_advisory_unlock(class, seat) WHERE seat > 0;
$$;
CREATE FUNCTION runs(tenant int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	PERFORM pg_sleep(random() * 0.01);
	INSERT INTO ran VALUES (job.id, job.worker, tenant, began, clock_timestamp(), job.started_at);
END
$$;
CREATE PROCEDURE proceeds(tenant int) LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	COMMIT;
	PERFORM pg_sleep(random() * 0.01);
	INSERT INTO ran VALUES (job.id, job.worker, tenant, began, clock_timestamp(), job.started_at);
END
$$;
-- The most spans of a worker (and tenant) that have a moment in common.
CREATE FUNCTION most_at_once(worker text, tenant int DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT max(running) FROM (
		SELECT sum(change) OVER (ORDER BY at, change) AS running
		  FROM ran r, LATERAL (VALUES (r.began, 1), (r.ended, -1)) e (at, change)
		 WHERE r.worker = most_at_once.worker AND (most_at_once.tenant IS NULL OR r.tenant = most_at_once.tenant)) s;
$$;
SELECT queue_jobs.define_worker('function', 'public.runs', max_running_jobs => 3);
SELECT queue_jobs.define_worker('procedure', 'public.proceeds', max_running_jobs => 2);
SELECT queue_jobs.define_worker('tenant', 'public.runs', concurrency_key => 'tenant', concurrency_limit => 1);
SELECT queue_jobs.define_worker('claimed', max_running_jobs => 5, concurrency_key => 'tenant', concurrency_limit => 2);
SELECT queue_jobs.define_worker('rated', 'public.runs', rate_limit => 20, rate_period => '500 ms');
SQL

# Claimants claim, and then complete in the same transaction, roll back, or commit and complete later. A claim's seat is
# given up before the claim is.
my $script = $node->basedir . '/claimants.sql';
append_to_file($script, <<'SQL');
\set how random(1, 10)
\set tenant random(1, 4)
SELECT count(queue_jobs.enqueue(worker, jsonb_build_object('tenant', :tenant)))
  FROM unnest(ARRAY['function', 'procedure', 'tenant', 'claimed']) worker;
BEGIN;
SELECT coalesce(max(id), 0) AS id, coalesce(max(attempt), 0) AS attempt, coalesce(max(args ->> 'tenant')::int, 0) AS t
  FROM queue_jobs.claim('pgbench ' || :client_id, '{claimed}', lease => '10 min') \gset
\if :id > 0
SELECT sit(20, 5) AS seat, sit(30 + :t, 2) AS tenant_seat \gset
\if :how > 5
COMMIT;
\sleep 3 ms
BEGIN;
\endif
SELECT rise(20, :seat), rise(30 + :t, :tenant_seat);
\if :how = 5
ROLLBACK;
\else
SELECT queue_jobs.complete(:id, :attempt);
\endif
\endif
COMMIT;
SQL

my ($out, $err) = ('', '');
my $load = IPC::Run::start(
	[ $node->installed_command('pgbench'), '-n', '-M', 'simple', '-c', 16, '-j', 2, '-T', $seconds, '-R', 2000,
		'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$out, '2>', \$err);
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('rated', '{"tenant": 0}')) FROM generate_series(1, 150)});

# Meanwhile executors are told to go, or interrupted, in the middle of what they do.
my $end = time + $seconds - 2;
while (time < $end)
{
	my @pids = executor_pids($node, 'postgres');
	next unless @pids;
	my $pid = $pids[ int(rand(@pids)) ];
	my $how = rand() < 0.7 ? 'pg_terminate_backend' : 'pg_cancel_backend';
	$node->safe_psql('postgres', "SELECT $how($pid), pg_sleep(0.1)");
}
$load->finish;
is($err =~ /ERROR|FATAL/ ? $err : '', '', 'no transaction failed');
wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker <> 'claimed' AND state IN ('available', 'executing', 'retryable', 'scheduled'))});
is($node->safe_psql('postgres', 'SELECT NOT is_called FROM too_many'), 't', 'every claimant had a seat');
is($node->safe_psql('postgres', q{SELECT most_at_once('function')}), 3, 'as many functions ran at once as may, and no more');
is($node->safe_psql('postgres', q{SELECT most_at_once('procedure')}), 2, 'likewise procedures');
is($node->safe_psql('postgres', q{SELECT max(most_at_once('tenant', t)) FROM generate_series(1, 4) t}), 1, 'one at a time of each key');
cmp_ok($node->safe_psql('postgres', q{SELECT most_at_once('tenant')}), '>', 1, 'while other keys ran');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'claimed' AND state = 'completed'}), '>', 100,
	'many were claimed');
is( $node->safe_psql('postgres', q{
	SELECT a.job FROM ran a WHERE worker = 'rated'
	   AND (SELECT count(*) FROM ran b WHERE b.worker = 'rated' AND b.started_at >= a.started_at AND b.started_at < a.started_at + '500 ms') > 20}),
	'', 'no more starts in any period than the rate limit');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ran WHERE worker = 'rated'}), 150, 'all of the rated jobs ran');
is( $node->safe_psql('postgres', q{
	SELECT count(*) OVER () AS pairs, tenant, before, job, before_claimed, claimed - before_claimed AS claimed_later, began - before_began AS began_later,
		   claimed - created_at AS waited, before_pid, pid
	  FROM (SELECT job, tenant, began, pid, started_at AS claimed, lag(job) OVER tenants AS before, lag(began) OVER tenants AS before_began,
				   lag(started_at) OVER tenants AS before_claimed, lag(pid) OVER tenants AS before_pid
			  FROM ran WHERE worker = 'tenant' WINDOW tenants AS (PARTITION BY tenant ORDER BY began)) r
	  JOIN queue_jobs.job j ON j.id = job
	 WHERE job < before AND began > created_at + interval '30 s' ORDER BY before_began LIMIT 6}),
	'', 'and in order');

# (Above, what a transaction of later ids committed sooner is not told apart from disorder for so long; these wait all.)
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('tenant', '{"tenant": 5}')) FROM generate_series(1, 200)});
foreach my $n (1 .. 5)
{
	wait_until($node, "SELECT count(*) >= 30 * $n FROM ran WHERE tenant = 5");
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
}
wait_until($node, q{SELECT count(*) = 200 FROM ran WHERE tenant = 5});
is($node->safe_psql('postgres', q{
	SELECT r.job FROM (SELECT job, lag(job) OVER (ORDER BY began) AS before FROM ran WHERE tenant = 5) r WHERE r.job < before}),
	'', 'those that wait together in order, whichever session is terminated');
is(log_count($node, 'PANIC|terminated by signal|deadlock detected'), 0, 'no crash and no deadlock');
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM queue_jobs.claimed_slot s
	 WHERE NOT EXISTS (SELECT FROM queue_jobs.live_job j WHERE j.id = s.job AND j.attempt = s.attempt)}),
	0, 'no claim is left of jobs that are gone');
note($node->safe_psql('postgres', 'SELECT worker, count(*) FROM ran GROUP BY 1 ORDER BY 1'));

# Keys at their rate limit are put aside, and come back when that lets them start.
$node->safe_psql('postgres', q{
	SELECT queue_jobs.define_worker('flooded', 'public.runs', rate_limit => 3, rate_period => '10 min', concurrency_key => 'tenant');
	SELECT queue_jobs.define_worker('paced', 'public.runs', rate_limit => 10, rate_period => '500 ms', concurrency_key => 'tenant');
	SELECT queue_jobs.define_worker('both', 'public.runs', rate_limit => 10, rate_period => '500 ms', concurrency_key => 'tenant', concurrency_limit => 1);
	SELECT count(queue_jobs.enqueue('flooded', '{"tenant": 1}')) FROM generate_series(1, 2000);
	SELECT count(queue_jobs.enqueue('flooded', jsonb_build_object('tenant', n))) FROM generate_series(2, 21) n;
	SELECT queue_jobs.define_worker('fast', 'public.runs', rate_limit => 100, rate_period => '1 s', concurrency_key => 'tenant');
	SELECT count(queue_jobs.enqueue('fast', '{"tenant": 1}')) FROM generate_series(1, 1000);
	SELECT count(queue_jobs.enqueue('fast', '{"tenant": 2}')) FROM generate_series(1, 5);
	SELECT count(queue_jobs.enqueue('paced', '{"tenant": 1}')), count(queue_jobs.enqueue('both', '{"tenant": 1}')) FROM generate_series(1, 40)});
wait_until($node, q{SELECT count(*) = 23 AND count(DISTINCT tenant) = 21 FROM ran WHERE worker = 'flooded'});
wait_until($node, q{SELECT count(*) FILTER (WHERE tenant = 2) = 5 AND count(*) FILTER (WHERE tenant = 1) >= 300 FROM ran WHERE worker = 'fast'});
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM ran r WHERE worker = 'fast' AND tenant = 1 AND began < (SELECT max(began) FROM ran WHERE worker = 'fast' AND tenant = 2)}), '<', 900, 'a flood of one key is in nobody\'s way');
$node->safe_psql('postgres', q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'fast' AND state = 'available'});
wait_until($node, q{SELECT count(*) = 1997 FROM queue_jobs.job WHERE worker = 'flooded' AND state = 'available' AND waits_for LIKE '%concurrency_key%'});
wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker IN ('paced', 'both') AND state IN ('available', 'executing'))});
is($node->safe_psql('postgres', q{SELECT worker, count(*) FROM ran WHERE worker IN ('paced', 'both') GROUP BY 1 ORDER BY 1}), "both|40\npaced|40", 'all come back in time');
is( $node->safe_psql('postgres', q{
	SELECT a.job FROM ran a WHERE worker IN ('paced', 'both')
	   AND (SELECT count(*) FROM ran b WHERE b.worker = a.worker AND b.started_at >= a.started_at AND b.started_at < a.started_at + '500 ms') > 10}),
	'', 'and none of them too early');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT job, lag(job) OVER (ORDER BY began) AS before FROM ran WHERE worker = 'both') r WHERE job < before}),
	0, 'in order, one at a time');
is($node->safe_psql('postgres', q{SELECT most_at_once('both')}), 1, '… and strictly so');
is($node->safe_psql('postgres', q{SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.job WHERE worker = 'flooded' AND state = 'available'}), 1997, 'what is put aside can be cancelled');

# So do those behind some that are in a paused queue. (It would be five in ten seconds, if they had to wait for the sweep.)
$node->safe_psql('postgres', q{
	SELECT queue_jobs.define_worker('behind', 'public.runs', rate_limit => 5, rate_period => '100 ms', concurrency_key => 'tenant');
	SELECT count(queue_jobs.enqueue('behind', '{"tenant": 1}', queue => 'to be paused')) FROM generate_series(1, 3000);
	SELECT count(queue_jobs.enqueue('behind', '{"tenant": 1}')) FROM generate_series(1, 300)});
wait_until($node, q{SELECT count(*) >= 1000 FROM queue_jobs.live_job JOIN queue_jobs.job USING (id) WHERE place < 0 AND job.worker = 'behind'});
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('to be paused')});
wait_until($node, q{SELECT count(*) = 300 FROM queue_jobs.job WHERE worker = 'behind' AND queue <> 'to be paused' AND state = 'completed'});
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'behind' AND state = 'available'}), '>', 0, 'jobs of a key come back though others of it are paused');
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('behind')});

# Without shared memory claimants have the same limits. What was put aside by then is found again.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('apart', max_running_jobs => 3, concurrency_key => 'k', concurrency_limit => 1);
	SELECT count(queue_jobs.enqueue('apart', jsonb_build_object('k', n / 100, 'n', n))) FROM generate_series(0, 199) n});
is($node->safe_psql('postgres', q{SELECT args ->> 'n' FROM queue_jobs.claim('me', '{apart}', 10)}), "0\n100", 'one of each key');
is($node->safe_psql('postgres', q{SELECT args ->> 'n' FROM queue_jobs.claim('me', '{apart}', 10)}), '', 'and no more');
wait_until($node, q{SELECT count(*) = 198 FROM queue_jobs.job WHERE worker = 'apart' AND waits_for LIKE '%concurrency_key%'});
$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
is($node->safe_psql('postgres', q{SELECT args ->> 'n' FROM queue_jobs.claim('me', '{apart}', 10)}), '', 'a restart does not free what is claimed');
$node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'apart' AND args -> 'n' = '100'});
is($node->safe_psql('postgres', q{SELECT args ->> 'n' FROM queue_jobs.claim('me', '{apart}', 10)}), '101', 'the next of the key');
my $waiting = in_background($node);
$waiting->send(q{CALL queue_jobs.wait_for_jobs('{apart}', '1 min')});
$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
is($waiting->ended, 0, 'wait_for_jobs() does not return for jobs that cannot start');
$node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'apart' AND args -> 'n' = '0'});
$waiting->result;
is($node->safe_psql('postgres', q{SELECT args ->> 'n' FROM queue_jobs.claim('me', '{apart}', 10)}), '1', 'but for one that can');
$waiting->quit;
my ($status, $stdout, $stderr) = $node->psql('postgres', q{SELECT queue_jobs.define_worker('rated', rate_limit => 1, rate_period => '1 s')});
like($stderr, qr/rate_limit needs queue_jobs to be loaded when the server starts/, 'a rate limit needs shared memory');
$node->stop;

# A lane that an executor was refused is looked at in time, also if no other executor knew of it, and that one has a long job by then.
$node = new_node('refused', conf => "queue_jobs.idle_timeout = '1h'");
define_gated($node);
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('rated', 'public.quick', rate_limit => 1, rate_period => '10 s')});
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (1)');
foreach my $worker ('rated', 'gated')    # the first job of a lane calls the scheduler
{
	my $first = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', '{\"n\": 1}')");
	wait_for_job($node, $first, 'completed');
}
my $before = $node->safe_psql('postgres', q{SELECT clock_timestamp() FROM queue_jobs.resume('rated')});    # the scheduler looks once more, and then not for long
wait_until($node, "SELECT state = 'idle' AND state_change > '$before' FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'");
my $second = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('rated', '{"n": 2}')});
wait_until($node, "SELECT waits_for LIKE '%rate_limit%' OR state <> 'available' FROM queue_jobs.job WHERE id = $second");
my $long = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 3}')});
wait_for_job($node, $long, 'executing');
wait_for_job($node, $second, 'completed');
is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $long"), 'executing', 'a job runs when its rate lets it, beside a long one');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (3)');
wait_for_job($node, $long, 'completed');
$node->stop;
done_testing();
