# Limits that workers share are strict, by what their jobs cost: under load by executors of functions and of procedures and by
# claimants, while executors are terminated; through kill -9, an immediate shutdown, prepared transactions, and promotion.
# What runs at once is counted by spans, as in limit_stress.pl. QUEUE_JOBS_STRESS_SECONDS makes the load longer than six seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} // 6;
my $node = new_node('named', init => [ allows_streaming => 1 ], conf => <<'CONF');
max_connections = 60
max_prepared_transactions = 5
restart_after_crash = on
queue_jobs.max_executors = 6
queue_jobs.max_executors_per_database = 6
CONF
use_points($node);

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(<<'SQL');
CREATE TABLE ran (job bigint, worker text, cost int, began timestamptz, ended timestamptz, started_at timestamptz);
CREATE FUNCTION runs(cost int DEFAULT 1, seconds float8 DEFAULT random() * 0.01) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	PERFORM pg_sleep(seconds);
	INSERT INTO ran VALUES (job.id, job.worker, cost, began, clock_timestamp(), job.started_at);
END
$$;
CREATE PROCEDURE proceeds(cost int DEFAULT 1) LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	COMMIT;
	PERFORM pg_sleep(random() * 0.01);
	INSERT INTO ran VALUES (job.id, job.worker, cost, began, clock_timestamp(), job.started_at);
END
$$;
CREATE FUNCTION at_once(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$;
-- The most that jobs of these workers took in one moment.
CREATE FUNCTION most_at_once(workers text[]) RETURNS bigint LANGUAGE sql AS $$
	SELECT max(running) FROM (
		SELECT sum(change) OVER (ORDER BY at, change) AS running
		  FROM ran r, LATERAL (VALUES (r.began, r.cost), (r.ended, - r.cost)) e (at, change)
		 WHERE r.worker = ANY (workers)) s;
$$;
SELECT queue_jobs.define_limit('slots', max_running => 5), queue_jobs.define_limit('rate', rate => 20, period => '500 ms'),
	   queue_jobs.define_limit('hours', rate => 5, period => '10 min'), queue_jobs.define_limit('tap'),
	   queue_jobs.define_limit('pair', max_running => 2);
SELECT queue_jobs.define_worker('function', 'public.runs', limits => '{slots}', limit_cost => 'cost', retry_backoff => 'public.at_once'),
	   queue_jobs.define_worker('procedure', 'public.proceeds', limits => '{slots}', limit_cost => 'cost', retry_backoff => 'public.at_once'),
	   queue_jobs.define_worker('claimed', limits => '{slots}', limit_cost => 'cost'),
	   queue_jobs.define_worker('rated', 'public.runs', limits => '{rate,slots}', limit_cost => 'cost', retry_backoff => 'public.at_once'),
	   queue_jobs.define_worker('rated too', 'public.runs', limits => '{rate}', limit_cost => 'cost', retry_backoff => 'public.at_once'),
	   queue_jobs.define_worker('hourly', limits => '{hours}', limit_cost => 'cost'),
	   queue_jobs.define_worker('tapped', limits => '{tap}'),
	   queue_jobs.define_worker('pair', limits => '{pair}'), queue_jobs.define_worker('pair too', limits => '{pair}');
SQL

# Under load.
my $script = $node->basedir . '/claimants.sql';
append_to_file($script, <<'SQL');
\set how random(1, 10)
\set cost random(1, 3)
SELECT count(queue_jobs.enqueue(worker, jsonb_build_object('cost', :cost))) FROM unnest(ARRAY['function', 'procedure', 'claimed', 'rated', 'rated too']) worker WHERE :how > 7;
BEGIN;
SELECT coalesce(max(id), 0) AS id, coalesce(max(attempt), 0) AS attempt, coalesce(max((args ->> 'cost')::int), 0) AS taken
  FROM queue_jobs.claim('pgbench ' || :client_id, '{claimed}', lease => '10 min') \gset
\if :id > 0
SELECT extract(epoch FROM clock_timestamp()) AS began \gset
\if :how > 5
COMMIT;
\sleep 3 ms
BEGIN;
\endif
\if :how = 5
ROLLBACK;
\else
INSERT INTO ran VALUES (:id, 'claimed', :taken, to_timestamp(:began), clock_timestamp());
SELECT queue_jobs.complete(:id, :attempt);
\endif
\endif
COMMIT;
SQL
my ($out, $err) = ('', '');
my $load = IPC::Run::start(
	[ $node->installed_command('pgbench'), '-n', '-M', 'simple', '-c', 8, '-j', 2, '-T', $seconds, '-R', 200,
		'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$out, '2>', \$err);
my $end = time + $seconds - 1;
while (time < $end)
{
	my @pids = executor_pids($node, 'postgres');
	next unless @pids;
	my $pid = $pids[ int(rand(@pids)) ];
	my $how = rand() < 0.7 ? 'pg_terminate_backend' : 'pg_cancel_backend';
	sql("SELECT $how($pid), pg_sleep(0.1)");
}
$load->finish;
is($err =~ /ERROR|FATAL/ ? $err : '', '', 'no transaction failed');
wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker IN ('function', 'procedure', 'rated', 'rated too') AND state NOT IN ('completed', 'dead'))});
cmp_ok(sql(q{SELECT most_at_once('{function,procedure,claimed,rated}')}), '<=', 5, 'never more than max_running, over all workers that share it');
cmp_ok(sql(q{SELECT most_at_once('{function,procedure,claimed,rated}')}), '>', 3, 'and as much as may');
is( sql(q{
	WITH r AS (SELECT * FROM ran WHERE worker LIKE 'rated%')
	SELECT a.job FROM r a WHERE (SELECT sum(cost) FROM r b WHERE b.started_at >= a.started_at AND b.started_at < a.started_at + '500 ms') > 20}),
	'', 'never more starts in any period than the rate, over all workers that share it');
is(sql(q{SELECT count(DISTINCT worker) FROM ran}), 5, 'all of them ran');
sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE state = 'executing'; SELECT queue_jobs.remove_jobs('claimed')});
wait_until($node, q{SELECT running = 0 FROM queue_jobs.named_limit WHERE name = 'slots'});
is(log_count($node, 'PANIC|terminated by signal|deadlock detected'), 0, 'no crash and no deadlock');

# A claim that gets one of two limits gives it back, and those that it has kept away hear of it.
sql(q{SELECT queue_jobs.define_limit('x', max_running => 1), queue_jobs.define_limit('y', max_running => 1);
	SELECT queue_jobs.define_worker('xy', limits => '{x,y}'), queue_jobs.define_worker('x', limits => '{x}'), queue_jobs.define_worker('y', limits => '{y}');
	SELECT count(queue_jobs.enqueue(w)) FROM unnest(ARRAY['xy', 'x', 'y']) w});
is(sql(q{SELECT worker FROM queue_jobs.claim('y', '{y}')}), 'y', 'the second limit is taken');
my $xy = in_background($node);
arm('slot_locked', 'wait');
$xy->send(q{SELECT worker FROM queue_jobs.claim('xy', '{xy}')});
wait_at('slot_locked');
is(sql(q{SELECT worker FROM queue_jobs.claim('x', '{x}')}), '', 'a claim is kept away by another that has the first limit, and looks for the second');
go_on('slot_locked');
is($xy->result, '', 'that claim gets none');
is(sql(q{SELECT worker FROM queue_jobs.claim('x', '{x}')}), 'x', 'and the first one its job, though no run has ended');

# Starts by cost, closed limits, leases: through a restart, kill -9 of a process, and an immediate shutdown.
sub claims { return sql(q{SELECT coalesce(string_agg(args ->> 'cost', ' ' ORDER BY id), '') FROM queue_jobs.claim('me', '{hourly}', 10)}) }
sub closed { return sql(q{SELECT count(*) FROM queue_jobs.claim('me', '{tapped}', 10)}) }
sub paired { return sql(q{SELECT count(*) FROM queue_jobs.claim('me', '{pair,pair too}', 10, lease => '1 h')}) }
sql(q{SELECT count(queue_jobs.enqueue('hourly', '{"cost": 2}')), count(queue_jobs.enqueue('tapped')), count(queue_jobs.enqueue('pair')), count(queue_jobs.enqueue('pair too')) FROM generate_series(1, 5)});
sql(q{BEGIN; SELECT queue_jobs.close_limit('tap', '1 h'); ROLLBACK});
sql(q{BEGIN; SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('prepared', '{pair}'); PREPARE TRANSACTION 'p'});
is(claims(), '2 2', 'two starts of 2, of 5');
is(closed(), 0, 'nothing of a closed limit');
is(paired(), 1, 'one place is a prepared transaction\'s');
is(sql(q{SELECT running FROM queue_jobs.named_limit WHERE name = 'pair'}), 2, '... and counted');
for my $how (qw(restart kill immediate))
{
	if ($how eq 'kill')
	{
		my ($pid) = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
		kill 'KILL', $pid;
		$node->poll_query_until('postgres', "SELECT pg_postmaster_start_time() IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
	}
	else
	{
		$node->stop($how eq 'restart' ? 'fast' : 'immediate');
		$node->start;
	}
	is(claims(), '', "$how: what was started counts");
	is(sql(q{SELECT used FROM queue_jobs.named_limit WHERE name = 'hours'}), 4, "$how: 4 of 5");
	is(closed(), 0, "$how: closed is closed");
	is(paired(), 0, "$how: a lease and a prepared transaction have their places");
}
is(sql(q{SELECT queue_jobs.consume_limit('hours', 2), queue_jobs.consume_limit('hours'), queue_jobs.consume_limit('hours')}), 'f|t|f', 'what is left is consumed by hand');
sql(q{COMMIT PREPARED 'p'});
is(paired(), 1, 'committed, the place of the prepared transaction is free');
sql(q{BEGIN; SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE claimant = 'me' AND worker LIKE 'pair%' AND state = 'executing' ORDER BY id LIMIT 1; SELECT count(*) FROM queue_jobs.claim('q', '{pair too}'); PREPARE TRANSACTION 'q'});
is(paired(), 0, 'an end that is prepared is none yet');
sql(q{ROLLBACK PREPARED 'q'});
is(paired(), 0, 'rolled back, it has never been');
sql(q{SELECT queue_jobs.open_limit('tap')});
is(closed(), 5, 'opened, all begin');
sql(q{SELECT queue_jobs.close_limit('tap', '1 h')});

# A standby shows them; promoted, it counts leases. It does not know of starts since its base backup, and waits for the length of the
# period, ten seconds at most; nor of a limit that was closed since.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
is(sql(q{SELECT queue_jobs.define_limit('late', rate => 1, period => '10 min'), queue_jobs.define_limit('late tap'), queue_jobs.define_worker('late', limits => '{late tap}');
	SELECT queue_jobs.consume_limit('late'), queue_jobs.close_limit('late tap', '1 h'), queue_jobs.enqueue('late') > 0}), "||\nt||t", 'a start and a closed limit');
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT running, used FROM queue_jobs.named_limit WHERE name IN ('pair', 'hours') ORDER BY name}), "|\n2|", 'a standby counts leases');
like(($standby->psql('postgres', q{SELECT queue_jobs.close_limit('tap', '1 s')}))[2], qr/read-only|recovery/, 'and closes nothing');
$node->stop('immediate');
$standby->promote;
$node = $standby;
is(sql(q{SELECT queue_jobs.consume_limit('late')}), 'f', 'promoted: nothing starts before the old server\'s starts are ten seconds old');
is(paired(), 0, 'promoted: leases have their places');
is(sql(q{SELECT count(*) FROM queue_jobs.claim('me', '{late}')}), 1, 'promoted: what was closed is open');
wait_until($node, q{SELECT queue_jobs.consume_limit('late')});
$standby->stop;
done_testing();
