# Pools of executors: each serves what its selector chooses, with so many executors as it may have.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('pools', conf => <<'CONF');
queue_jobs.pools = ' fast 1 urgency=high & tags!=odd ; rest 2 urgency!=high;'
queue_jobs.max_executors = 8
queue_jobs.max_executors_per_database = 8
queue_jobs.idle_timeout = '1h'
CONF
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('high', 'public.gated', urgency => 'high');
SELECT queue_jobs.define_worker('low', 'public.gated');
SELECT queue_jobs.define_worker('odd', 'public.quick', urgency => 'high', tags => '{odd}');
SELECT queue_jobs.define_worker('quick high', 'public.quick', urgency => 'high');
SELECT queue_jobs.define_worker('quick low', 'public.quick');
CREATE VIEW running AS SELECT worker, count(*) AS jobs FROM queue_jobs.job WHERE state = 'executing' GROUP BY worker;
SQL

sub set_pools
{
	my ($pools) = @_;

	$node->append_conf('postgresql.conf', "queue_jobs.pools = '$pools'");
	$node->reload;
	wait_until($node, "SELECT current_setting('queue_jobs.pools') = '$pools'");
	return;
}

sub enqueue
{
	my ($worker, @n) = @_;

	$node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker', '{\"n\": $_}')") foreach @n;
	return;
}

sub open_gates
{
	$node->safe_psql('postgres', 'INSERT INTO gate VALUES (' . join('), (', @_) . ')');
	return;
}

# ---- each its own ----

enqueue('low', 1 .. 5);
wait_until($node, q{SELECT jobs = 2 FROM running WHERE worker = 'low'});
enqueue('high', 11 .. 13);
wait_until($node, q{SELECT jobs = 1 FROM running WHERE worker = 'high'});
pass('a pool whose neighbour is busy starts its jobs');
enqueue('odd', 21);
wait_until($node, q{SELECT waits_for LIKE 'no pool of%' FROM queue_jobs.job WHERE worker = 'odd'});
pass('what no pool serves waits, and says so');
is($node->safe_psql('postgres', q{SELECT e.reason FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE worker = 'odd' AND e.reason = 'no_pool'}), 'no_pool', '… to programs, too');
is($node->safe_psql('postgres', 'SELECT worker, jobs FROM running ORDER BY worker'), "high|1\nlow|2", 'no pool has more executors than it may');

# One job after the other, by the one executor.
open_gates(11, 12);
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE worker = 'high' AND state = 'completed'});
wait_until($node, q{SELECT jobs = 1 FROM running WHERE worker = 'high'});
is($node->safe_psql('postgres', 'SELECT count(DISTINCT pid) FROM ran WHERE n IN (11, 12, 13)'), '1', 'its executor goes on with its jobs');
open_gates(13);
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'high' AND state = 'completed'});

# Woken at commit, while the other pool is idle and while it is busy: no turn of the scheduler is waited for.
enqueue('quick high', $_) foreach 101 .. 120;
wait_until($node, q{SELECT count(*) = 20 FROM queue_jobs.job WHERE worker = 'quick high' AND state = 'completed'});
is($node->safe_psql('postgres', 'SELECT count(DISTINCT pid) FROM ran WHERE n > 100'), '1', 'idle executors of a pool are woken for its jobs');

# ---- other pools, while jobs run ----

set_pools('all 4 *');
open_gates(1 .. 5);
wait_until($node, q{SELECT count(*) = 5 FROM queue_jobs.job WHERE worker = 'low' AND state = 'completed'});
wait_until($node, q{SELECT state = 'completed' FROM queue_jobs.job WHERE worker = 'odd'});
pass('new pools take over when the jobs that run have ended');

enqueue('low', 31 .. 36);
wait_until($node, q{SELECT jobs = 4 FROM running WHERE worker = 'low'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'low' AND state = 'available'}), '2', 'with their own limit');
open_gates(31 .. 36);
wait_until($node, q{SELECT count(*) = 11 FROM queue_jobs.job WHERE worker = 'low' AND state = 'completed'});

# Pools that overlap.
set_pools('fast 1 urgency=high; rest 1 *');
enqueue('high', 41 .. 43);
wait_until($node, q{SELECT jobs = 2 FROM running WHERE worker = 'high'});
pass('where several pools serve a job, all of them do');
open_gates(41 .. 43);
wait_until($node, q{SELECT count(*) = 6 FROM queue_jobs.job WHERE worker = 'high' AND state = 'completed'});

# A definition that changes is of another pool from then on.
set_pools('fast 1 urgency=high; rest 1 urgency=low');
enqueue('low', 51 .. 52);
wait_until($node, q{SELECT jobs = 1 FROM running WHERE worker = 'low'});
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('low', 'public.gated', urgency => 'high')});
wait_until($node, q{SELECT jobs = 2 FROM running WHERE worker = 'low'});
pass('a worker that is defined anew goes to another pool');
open_gates(51 .. 52);
wait_until($node, q{SELECT count(*) = 13 FROM queue_jobs.job WHERE worker = 'low' AND state = 'completed'});
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('low', 'public.gated')});

# An executor of former pools whose job takes long is in none of the new ones, though its pool had the number of one of them.
set_pools('long 1 urgency=low');
enqueue('low', 61);
wait_until($node, q{SELECT jobs = 1 FROM running WHERE worker = 'low'});
my $scheduler = stop_scheduler($node);
set_pools('high 1 urgency=high');
my $urgent = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick high', '{"n": 150}')});
is($node->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.explain_job($urgent) WHERE reason = 'executors_busy'"), '0',
	'an executor of former pools is not what a job waits for');
kill 'CONT', $scheduler or die "$scheduler: $!";
wait_for_job($node, $urgent, 'completed');
is($node->safe_psql('postgres', q{SELECT jobs FROM running WHERE worker = 'low'}), '1', 'nor does it take the place of one of the new');
open_gates(61);
wait_until($node, q{SELECT count(*) = 14 FROM queue_jobs.job WHERE worker = 'low' AND state = 'completed'});

# ---- too few for all ----

# Fewer executors than the pools' sum: one with a backlog makes room for another that has none, whichever of the two the
# scheduler comes to first. (One that is idle keeps its place as long as it may.)
$node->append_conf('postgresql.conf', "queue_jobs.max_executors_per_database = 2\nqueue_jobs.idle_timeout = '1s'");
$node->safe_psql('postgres', q{CREATE FUNCTION short_nap() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(0.02)'});
my $n = 201;
foreach my $pools ([ 'high', 'low', 'quick low' ], [ 'low', 'high', 'quick high' ])
{
	my ($backlog, $other, $worker) = @$pools;

	set_pools("back 2 urgency=$backlog; front 1 urgency=$other");
	$node->safe_psql('postgres', <<"SQL");
SELECT queue_jobs.define_worker('backlog', 'public.short_nap', urgency => '$backlog');
SELECT count(*) FROM queue_jobs.enqueue_many('backlog', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 10000)));
SQL
	wait_until($node, q{SELECT jobs = 2 FROM running WHERE worker = 'backlog'});
	enqueue($worker, $n);
	wait_until($node, "SELECT count(*) = 1 FROM ran WHERE n = $n");
	cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'backlog' AND state = 'available'}),
		'>', 0, "a pool without an executor gets one while another has a backlog ($worker)");
	$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('backlog')});
	$n++;
}

# A slot that one pool lets go of wakes an executor of another that was refused it, of the same role. (It would look again 10 s after it was
# refused; a machine may stand still once or twice, but not so long in most of the rounds.)
$node->append_conf('postgresql.conf', "queue_jobs.idle_timeout = '1h'");
set_pools('bulk 1 name=bulk; rest 1 name!=bulk');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('one at a time', 'public.gated', max_running_jobs => 1)});
my $soon = 0;
for my $round (0 .. 4)
{
	my $first = 401 + 2 * $round;
	my $second = $first + 1;
	my $bulk = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('one at a time', '{\"n\": $first}', queue => 'bulk')");
	wait_for_job($node, $bulk, 'executing');
	my $rest = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('one at a time', '{\"n\": $second}')");
	wait_until($node, qq{SELECT count(*) = 1 FROM pg_stat_activity
		WHERE backend_type = 'queue_jobs executor' AND state = 'idle' AND state_change > (SELECT created_at FROM queue_jobs.job WHERE id = $rest)});
	open_gates($first, $second);
	wait_for_job($node, $_, 'completed') foreach ($bulk, $rest);
	$soon += $node->safe_psql('postgres', qq{SELECT (r.started_at - b.finished_at < '5 s')::int FROM queue_jobs.job b, queue_jobs.job r WHERE b.id = $bulk AND r.id = $rest});
}
cmp_ok($soon, '>=', 3, 'a pool that was refused a slot is woken when another lets go of it');

# Roles share a pool in turn.
set_pools('one 1 *');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE app_a LOGIN;
CREATE ROLE app_b LOGIN;
GRANT USAGE ON SCHEMA queue_jobs TO app_a, app_b;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app_a, app_b;
SET ROLE app_a;
SELECT count(*) FROM queue_jobs.enqueue_many('backlog', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 3000)));
SET ROLE app_b;
SELECT queue_jobs.enqueue('quick', '{"n": 301}');
SQL
wait_until($node, q{SELECT count(*) = 1 FROM ran WHERE n = 301});
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'backlog' AND state = 'available'}), '>', 0,
	'a full pool makes room for another role');
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('backlog')});

# Who has a backlog heeds other pools, too.
set_pools('one 1 name=backlog');
$node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.enqueue_many('backlog', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 3000)))});
wait_until($node, q{SELECT jobs = 1 FROM running WHERE worker = 'backlog'});
my $busy = '';
foreach (1 .. 1000)		# (between two jobs it has none)
{
	last if $busy = $node->safe_psql('postgres', q{SELECT max(executor_pid) FROM queue_jobs.job WHERE worker = 'backlog' AND state = 'executing'});
}
set_pools('one 1 name!=backlog');
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $busy");
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'backlog' AND state = 'available'}), '>', 0,
	'an executor that is busy heeds a change of its pool');
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('backlog')});

# Likewise what executors set for themselves.
set_pools('one 1 *');
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION commits() RETURNS text LANGUAGE sql AS $$ SELECT current_setting('synchronous_commit') $$;
SELECT queue_jobs.define_worker('commits', 'public.commits');
SQL
for my $setting (qw(off on))
{
	$node->append_conf('postgresql.conf', "queue_jobs.synchronous_commit = $setting");
	$node->reload;
	wait_until($node, "SELECT current_setting('queue_jobs.synchronous_commit') = '$setting'");
	wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND state = 'idle'}) if $setting eq 'on';
	my $job = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('commits')});
	wait_for_job($node, $job, 'completed');
	is($node->safe_psql('postgres', "SELECT result #>> '{}' FROM queue_jobs.job WHERE id = $job"), $setting, "an executor commits with synchronous_commit $setting");
}

# ---- the setting ----

my ($status, $out, $err);
for my $bad (['fast', '"" where a number'], ['fast x *', '"x" where a number'], ['fast 0 *', '"0" where'], ['fast 2', 'Invalid term ""'],
	['fast 2 urgency=soon', 'Invalid term "urgency=soon" in the selector of pool "fast"'], ['a 1 *; a 2 *', 'two pools "a"'],
	[join(';', map { "p$_ 1 *" } 1 .. 33), 'more than 32 pools'])
{
	($status, $out, $err) = $node->psql('postgres', "ALTER SYSTEM SET queue_jobs.pools = '$bad->[0]'");
	like($err, qr/invalid value for parameter "queue_jobs.pools".*DETAIL.*\Q$bad->[1]\E.*HINT/s, "refused: " . substr($bad->[0], 0, 20));
}

# ---- capacity ----

is($node->safe_psql('postgres', q{SELECT queue_jobs.capacity_impact('nothing', 'one')}), '0', 'a queue in which nothing ran takes nothing');
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.reset_statistics();
CREATE FUNCTION nap(seconds float) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(seconds)';
SELECT queue_jobs.define_worker('nap', 'public.nap', queue => 'naps');
SELECT queue_jobs.enqueue('nap', '{"seconds": 0.5}') FROM generate_series(1, 4);
SQL
set_pools('one 1 *; four 4 *');
wait_until($node, q{SELECT runs = 4 AND clock_timestamp() - since > '2 s' FROM queue_jobs.worker_statistics WHERE worker = 'nap'});
my $impact = $node->safe_psql('postgres', q{SELECT queue_jobs.capacity_impact('naps', 'one')
	/ (runs * run_time_mean / (extract(epoch FROM clock_timestamp() - since) + run_time_mean)) BETWEEN 0.9 AND 1.5, runs * run_time_mean > 1.9,
	round(queue_jobs.capacity_impact('naps', 'one')::numeric / queue_jobs.capacity_impact('naps')::numeric) FROM queue_jobs.worker_statistics WHERE worker = 'nap'});
is($impact, 't|t|2', 'jobs a second times mean run time, as a share of the executors');
($status, $out, $err) = $node->psql('postgres', q{\set VERBOSITY verbose} . "\n" . q{SELECT queue_jobs.capacity_impact('naps', 'none')});
like($err, qr/42704: there is no pool "none"/, 'a pool that is not there is an error');

$node->stop;
done_testing();
