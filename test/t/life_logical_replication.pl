# Logical replication of the queue itself, to another cluster, by the steps of docs/how-to/operations.md ("Logical replication"): a true copy under load,
# in which nothing runs; and, at the switch-over, all that waits runs there, once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $settings = "wal_level = logical\nmax_worker_processes = 24\nmax_replication_slots = 40";
my $old = new_node('old', init => [ allows_streaming => 'logical' ], conf => $settings);
my $new = new_node('new', init => [ allows_streaming => 'logical' ], conf => $settings, extension => 0);
my $dir = PostgreSQL::Test::Utils::tempdir;

# What the tables have in them, one row each.
sub contents
{
	my ($node) = @_;
	my @tables = split /\n/, $node->safe_psql('postgres', q{SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'r' AND
		(relnamespace = 'queue_jobs'::regnamespace OR c.oid IN ('ran'::regclass, 'gate'::regclass)) ORDER BY 1});

	return $node->safe_psql('postgres', join(' UNION ALL ', map {
		my $rows = $_ eq 'queue_jobs.hash_seed' ? '(SELECT * FROM queue_jobs.hash_seed ORDER BY made_at LIMIT 1)' : $_;	# each has its own; the oldest counts
		qq{SELECT '$_', count(*), md5(coalesce(string_agg(t::text, ',' ORDER BY t::text COLLATE "C"), '')) FROM $rows t} } @tables) . ' ORDER BY 1');
}

# Until the copy is as its publisher is, which rests.
sub is_copied
{
	my ($what) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my ($original, $copy) = ('', '');

	do
	{
		select undef, undef, undef, 0.1 if $copy ne '';
		$original = contents($old);
		$copy = contents($new);
	} while ($copy ne $original && time < $end);
	is($copy, $original, $what);
	return;
}

# A subscriber that comes before the last one has gone is refused the slot, and complains.
sub wait_for_no_sender
{
	return wait_until($old, q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'copy'});
}

sub pgbench
{
	my ($sql, @options) = @_;

	open my $out, '>', "$dir/script" or die;
	print $out $sql;
	close $out;
	$old->command_ok([ 'pgbench', '-n', '-c', '4', '-t', '25', @options, '-f', "$dir/script", $old->connstr('postgres') ], 'load');
	return;
}

# ---- the publisher ----

$new->safe_psql('postgres', 'CREATE ROLE somebody');      # so that roles have other OIDs there
$_->safe_psql('postgres', 'CREATE ROLE app LOGIN') foreach $old, $new;
define_gated($old);
$old->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE numbers;
CREATE FUNCTION soon(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '50 ms'$$;
CREATE FUNCTION flaky(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT attempt FROM queue_jobs.current_job()) < 2 THEN
		RAISE 'not yet';
	END IF;
	INSERT INTO ran (n) VALUES (flaky.n);
END
$$;
CREATE PROCEDURE steps(n int) LANGUAGE plpgsql AS $$BEGIN COMMIT; INSERT INTO ran (n) VALUES (steps.n); COMMIT; END$$;
SELECT queue_jobs.define_worker('flaky', 'public.flaky', retry_backoff => 'public.soon');
SELECT queue_jobs.define_worker('deadly', 'public.flaky', max_retries => 0, keep_completed => '0');
SELECT queue_jobs.define_worker('late', 'public.flaky', retry_backoff => NULL);
SELECT queue_jobs.define_worker('steps', 'public.steps');
SELECT queue_jobs.define_worker('standing', 'public.quick', idempotent => true, including_scheduled => true);
SELECT queue_jobs.define_worker('merged', 'public.quick', queue => 'merged', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.define_worker('limited', 'public.quick', queue => 'limited', concurrency_key => 'key', concurrency_limit => 1);
SELECT queue_jobs.define_worker('outside', max_running_jobs => 50);
SELECT queue_jobs.schedule('yearly', '0 0 1 1 *', 'quick', '{"n": 900001}');
GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT USAGE ON SEQUENCE numbers TO app;
GRANT SELECT ON queue_jobs.job TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
SQL
my $load = <<'SQL';
\set worker random(1, 5)
BEGIN;
SELECT queue_jobs.enqueue((ARRAY['quick', 'flaky', 'deadly', 'steps', 'quick'])[:worker], jsonb_build_object('n', nextval('numbers')), priority => :worker);
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', nextval('numbers')), delay => '100 ms');
SELECT queue_jobs.enqueue('merged', jsonb_build_object('n', 1000000 + :worker));
SELECT queue_jobs.enqueue('outside', '{"who": "a claimant"}');
COMMIT;
SELECT count(queue_jobs.complete(id, attempt, '"done"')) FROM queue_jobs.claim(current_user, '{outside}', 1);
SELECT count(queue_jobs.fail(id, attempt, 'no')) FROM queue_jobs.claim(current_user, '{outside}', 1) WHERE :worker = 1;
SELECT queue_jobs.heartbeat(current_user);
SELECT queue_jobs.cancel(queue_jobs.enqueue('gated', '{"n": 1}', delay => '1 day'));
SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE state = 'dead' AND :worker = 2 LIMIT 1;
SQL
pgbench($load);

# ---- the copy ----

$old->command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema.sql", $old->connstr('postgres') ], 'the schema');
$new->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/schema.sql", $new->connstr('postgres') ], '… restored');
$old->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
$new->safe_psql('postgres', "CREATE SUBSCRIPTION copy CONNECTION \$\$" . $old->connstr('postgres') . '$$ PUBLICATION everything');
pgbench($load);
pgbench($load, '-U', 'app');
wait_until($new, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel});
pgbench($load);
my $rest = q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker NOT IN ('outside', 'late') AND (state IN ('available', 'executing', 'retryable') OR state = 'scheduled' AND run_at < now() + '1 h'))};
wait_until($old, $rest);
cmp_ok($old->safe_psql('postgres', 'SELECT count(*) FROM ran'), '>=', 400, 'a load');
cmp_ok($old->safe_psql('postgres', 'SELECT count(DISTINCT state) FROM queue_jobs.job'), '>=', 3, 'of many kinds');
is_copied('the copy is as the original is');
my $view = 'SELECT id, worker, queue, state, attempt, last_error, result, owner, data_consistency FROM queue_jobs.job WHERE state IN (\'completed\', \'cancelled\', \'dead\') ORDER BY id';
is($new->safe_psql('postgres', $view), $old->safe_psql('postgres', $view), 'also as the view shows it');

# Jobs that could run at once, on both: on the old server for want of executors.
$old->safe_psql('postgres', q{ALTER SYSTEM SET queue_jobs.max_executors_per_database = 0});
$old->reload;
wait_until($old, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
pgbench($load);
$old->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.enqueue('limited', jsonb_build_object('n', nextval('numbers'), 'key', 1)) FROM generate_series(1, 10);
SELECT queue_jobs.enqueue('late', jsonb_build_object('n', nextval('numbers')), delay => '1 h');
SELECT queue_jobs.enqueue('outside') FROM generate_series(1, 5);
SELECT count(*) FROM queue_jobs.claim('claimant', '{outside}', 5, '1 day');
SELECT queue_jobs.enqueue('outside', jsonb_build_object('call', n), dedup_key => 'called', if_waiting => 'debounce', delay => '1 day', max_delay => '2 days',
	tags => '{a,b}', max_retries => 3, timeout => '1 min', keep_completed => '2 days') FROM generate_series(1, 2) n;
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', nextval('numbers')), priority => -1);
SELECT queue_jobs.enqueue('standing', '{"n": 0}', delay => '1 day');
SQL
is_copied('and with jobs that wait');
like($new->safe_psql('postgres', q{SELECT string_agg(DISTINCT waits_for, '; ') FROM queue_jobs.job WHERE state = 'available'}),
	qr/^jobs are copied here by subscription "copy"$/, 'the copy says why they wait');
is($new->safe_psql('postgres', q{SELECT DISTINCT e.reason FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE state = 'available' AND e.n = 1}), 'subscription', '… to programs, too');
foreach my $call (q{enqueue('quick', '{"n": 1}')}, q{claim('me')}, q{run_now('yearly')}, q{complete(id, attempt) FROM queue_jobs.job WHERE state = 'executing'},
	q{remove_jobs('quick')}, q{heartbeat('me')}, q{pause('quick')}, q{resume('quick')}, q{define_worker('new')}, q{drop_worker('quick')},
	q{disable_worker('quick')}, q{enable_worker('quick')})
{
	like(($new->psql('postgres', "\\set VERBOSITY verbose\nSELECT queue_jobs.$call"))[2], qr/ERROR:  55000: .*copied from another.*subscription "copy".*HINT/s, "refused: $call");
}

# Nor after a restart, when every database is looked into; this one before another, of which it can be seen.
$new->safe_psql('postgres', 'CREATE DATABASE other');
$new->safe_psql('other', 'CREATE EXTENSION queue_jobs');
define_gated($new, db => 'other');
$new->safe_psql('other', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}', delay => '1 s')});
$new->stop;
wait_for_no_sender();
$new->start;
wait_until($new, 'SELECT count(*) = 1 FROM ran', db => 'other');
is_copied('nothing has run in the copy after a restart');
wait_for_no_processes($new, 'postgres');
pass('no process of ours is there');
$new->safe_psql('postgres', 'ALTER SUBSCRIPTION copy DISABLE');
like($new->safe_psql('postgres', q{SELECT string_agg(DISTINCT waits_for, '; ') FROM queue_jobs.job WHERE state = 'available'}),
	qr/^jobs are copied here/, 'a subscription that is disabled is one');
wait_for_no_sender();
$new->safe_psql('postgres', 'ALTER SUBSCRIPTION copy ENABLE');

# ---- the switch-over ----

# All connections but those of replication have ended. What the old server has written by then is on the new one.
my $waiting = $old->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.live_job});
my $last = $old->safe_psql('postgres', 'SELECT last_value FROM queue_jobs.job_id');
my $end = $old->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
wait_until($old, "SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'copy'");
is($new->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.live_job}), $waiting, 'all that waits is there');
$new->safe_psql('postgres', 'DROP SUBSCRIPTION copy');
wait_until($new, $rest);
my $numbers = $old->safe_psql('postgres', 'SELECT last_value FROM numbers');
is($new->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT n) FROM ran WHERE n < 900000}), '0', 'no job has run twice');
is($new->safe_psql('postgres', qq{SELECT string_agg(n::text, ' ') FROM generate_series(1, $numbers) n WHERE n NOT IN (SELECT n FROM ran)
	AND n NOT IN (SELECT (args->>'n')::int FROM queue_jobs.job WHERE worker IN ('deadly', 'late'))}), '', 'none is lost');
is($new->safe_psql('postgres', q{SELECT role FROM ran ORDER BY n DESC LIMIT 1 OFFSET (SELECT count(*) FROM ran WHERE n > 900000)}), 'app', 'each as its own role');
is($old->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.live_job'), $waiting, 'nothing has run on the old server');
cmp_ok($new->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 900002}')}), '>=', $last, 'new ids come after the old ones');
is($new->safe_psql('postgres', q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'outside'}), '5', 'a claimant completes there what it had claimed');
is($new->safe_psql('postgres', q{SET SESSION AUTHORIZATION app; SELECT count(queue_jobs.try_enqueue('standing', '{"n": 0}'))}), '0', 'what waits takes duplicates in');
my $called = $new->safe_psql('postgres', q{SELECT id FROM queue_jobs.job WHERE dedup_key = 'called'});
is($new->safe_psql('postgres', "SELECT args, state, tags, max_attempts FROM queue_jobs.job WHERE id = $called"), '{"call": 2}|scheduled|{a,b}|4', 'a job has its options');
is($new->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', '{"call": 3}', dedup_key => 'called', if_waiting => 'debounce', delay => '3 days')}), $called, '… and calls change it');
is($new->safe_psql('postgres', "SELECT args, tags IS NULL, max_attempts, run_at - created_at = '2 days' FROM queue_jobs.job WHERE id = $called"), '{"call": 3}|t|26|t',
	'… whose options it has then, no later than max_delay after the first');
$new->safe_psql('postgres', q{SELECT queue_jobs.run_now('yearly')});
wait_until($new, 'SELECT count(*) = 2 FROM ran WHERE n IN (900001, 900002)');
is($new->safe_psql('postgres', q{SELECT queue_jobs.define_worker('another'); SELECT queue_jobs.enqueue('another') > 0; SELECT count(*) - count(DISTINCT id) FROM queue_jobs.lane}), "\nt\n0", 'a new lane, too');
foreach my $node ($old, $new)
{
	is(join('', grep { /\] (?:queue_jobs|logical replication) .*(?:ERROR|FATAL|PANIC):/ && !/not yet|terminating|shutting down|free replication state slot/ } split /^/m, slurp_file($node->logfile)), '',
		$node->name . ': without a complaint');
}

$old->stop;
$new->stop;
done_testing();
