# if_waiting: calls and claims of one key cost the same however many there were, beside an old snapshot and beside an open call; and 8
# sessions call one key while backends are killed and the server crashes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('waiting_load', conf => <<'CONF');
max_connections = 100
max_prepared_transactions = 100
restart_after_crash = on
queue_jobs.max_executors = 4
queue_jobs.max_executors_per_database = 4
CONF

sub sql { return $node->safe_psql('postgres', $_[0]) }

# ---- beside an old snapshot ----

sql(q{
SELECT queue_jobs.define_worker('waits');
SELECT queue_jobs.define_worker('cancels', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'cancel_running');
CREATE PROCEDURE call(worker text, how text, n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM queue_jobs.enqueue(worker, jsonb_build_object('n', i), dedup_key => how, if_waiting => how,
			delay => CASE how WHEN 'debounce' THEN interval '1 hour' END);
		COMMIT;
	END LOOP;
END $$});
my $held = in_background($node);
$held->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
foreach ([ 'waits', 'replace' ], [ 'waits', 'replace_args' ], [ 'waits', 'debounce' ], [ 'cancels', 'replace' ], [ 'cancels', 'debounce' ])
{
	my ($worker, $how) = @$_;

	sql("CALL call('$worker', '$how', 1500)");
	my $session = in_background($node);
	$session->query("SELECT queue_jobs.enqueue('$worker', dedup_key => 'other', if_waiting => 'replace')");
	$session->query('BEGIN');
	$session->query("SELECT queue_jobs.enqueue('$worker', '{\"n\": 0}', dedup_key => '$how', if_waiting => '$how', delay => " . ($how eq 'debounce' ? "'1 hour'" : 'NULL') . ')');
	cmp_ok($session->query(q{SELECT pg_stat_get_xact_tuples_returned('queue_jobs.live_job_key'::regclass)}), '<=', 2,
		"$worker, $how: a call walks over none of 1500 versions of its job that an old snapshot keeps");
	$session->query('COMMIT');
	$session->quit;
}
$held->query('COMMIT');
$held->quit;
is(sql(q{SELECT string_agg(args::text, ' ') FROM queue_jobs.job WHERE worker IN ('waits', 'cancels') AND dedup_key <> 'other'}), join(' ', ('{"n": 0}') x 5), 'one job each, with the last args');
sql(q{SELECT queue_jobs.remove_jobs('waits'), queue_jobs.remove_jobs('cancels')});

# ---- beside an open call of the key ----

sql(q{
CREATE PROCEDURE call_and_claim(rounds int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. rounds LOOP
		PERFORM queue_jobs.enqueue('waits', jsonb_build_object('n', i), dedup_key => 'k', if_waiting => 'replace');
		COMMIT;
		PERFORM queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{waits}');
		COMMIT;
	END LOOP;
END $$});
my $walked = q{SELECT pg_stat_get_xact_tuples_returned('queue_jobs.live_job_key'::regclass)};
my $early_call = q{SELECT queue_jobs.enqueue('waits', '{"n": 0}', dedup_key => 'k', if_waiting => 'replace')};
my $claim = q{SELECT args -> 'n', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{waits}')};
foreach ([ 'open', 0 ], [ 'prepared', 0 ], [ 'open', 1 ], [ 'prepared', 1 ])
{
	my ($how, $called_again) = @$_;
	my $open = "BEGIN; $early_call" . ($how eq 'prepared' ? "; PREPARE TRANSACTION 'early'" : '');
	my $early = in_background($node);
	my ($early_job) = $early->query($open) =~ /(\d+)/;
	sql('CALL call_and_claim(1000)');
	my $session = in_background($node);
	$session->query('BEGIN');
	$session->query(q{SELECT queue_jobs.enqueue('waits', '{"n": 1001}', dedup_key => 'k', if_waiting => 'replace')});
	cmp_ok($session->query($walked), '<', 100, "beside a call that is $how, one after 1000 others that were claimed walks over few of them");
	$session->query('COMMIT');
	$session->query('BEGIN');
	is($session->query($claim), '1001|', '… and is claimed');
	cmp_ok($session->query($walked), '<', $how eq 'open' ? 500 : 1500, '… by a claim that walks over few; or once over all, if a transaction is prepared');
	$session->query('COMMIT');
	$session->quit;
	$early->query($how eq 'prepared' ? q{COMMIT PREPARED 'early'} : 'COMMIT');
	$early->quit;
	is(sql(q{SELECT queue_jobs.enqueue('waits', '{"n": 1002}', dedup_key => 'k', if_waiting => 'replace')}), $early_job, '… and a call after its commit changes its job')
		if $called_again;
	is(sql($claim), $called_again ? '1002|' : '1001|', '… and its run has the later args');
	is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'waits' AND state NOT IN ('completed', 'cancelled')}), '0', '… and is the last');
}

# ---- 10,000 keys ----

# Two transactions call each key three times, in opposite orders; 100 calls a key come at once.
my $keys = 10000;
my $all_keys = sub {
	my ($by, $order) = @_;

	return "SELECT count(DISTINCT queue_jobs.enqueue('waits', jsonb_build_object('by', '$by'), dedup_key => 'key ' || k % $keys, if_waiting => 'replace'))"
		. " FROM (SELECT k FROM generate_series(1, 3 * $keys) k ORDER BY k $order) s";
};
my @sessions = map { in_background($node) } 1, 2;
$_->query('BEGIN') foreach @sessions;
$sessions[0]->send($all_keys->('one', 'ASC'));
$sessions[1]->send($all_keys->('two', 'DESC'));
is($_->result, $keys, '10,000 keys: one job for each') foreach @sessions;
$sessions[1]->query('ROLLBACK');
$sessions[0]->query('COMMIT');
$_->quit foreach @sessions;
is(sql(q{SELECT args ->> 'by', count(*) FROM queue_jobs.job WHERE dedup_key LIKE 'key %' GROUP BY 1}), "one|$keys", '… and none of the transaction that is rolled back');
is(sql($all_keys->('three', 'DESC')), $keys, '… which a third one changes');
my ($claimed, $others) = (0, 0);		# a claim takes no more locks than its share of the server's
while (my ($some, $wrong) = sql(q{SELECT count(queue_jobs.complete(id, attempt)), count(*) FILTER (WHERE args ->> 'by' <> 'three') FROM queue_jobs.claim('c', '{waits}', 10000)}) =~ /(\d+)\|(\d+)/)
{
	last unless $some;
	$claimed += $some;
	$others += $wrong;
}
is("$claimed $others", "$keys 0", '… and each runs once, with its args');

# ---- 8 sessions call one key, while backends are killed and the server crashes ----

# The ledger has the number of each call that was committed, and its args.
my $calls = $ENV{QUEUE_JOBS_CALLS} // 10000;
sql(q{
CREATE TABLE ledger (call bigint PRIMARY KEY, session int, n int);
CREATE TABLE ran (run serial, job bigint, session int, n int);
CREATE FUNCTION runs(session int, n int) RETURNS void LANGUAGE sql AS 'INSERT INTO ran (job, session, n) SELECT (queue_jobs.current_job()).id, session, n';
SELECT queue_jobs.define_worker('crowd', 'public.runs', idempotent => true, keep_completed => '0');
CREATE PROCEDURE call_one_key(of int, calls int) LANGUAGE plpgsql AS $$
DECLARE
	job bigint;
BEGIN
	FOR i IN 1 .. calls LOOP
		job := queue_jobs.enqueue('crowd', jsonb_build_object('session', of, 'n', i), dedup_key => 'one', if_waiting => 'replace');
		INSERT INTO ledger SELECT call, of, i FROM queue_jobs.live_job WHERE id = job;
		IF i % 10 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END $$});
my $most = 0;
my $began = time;
my $part = 0;
foreach my $crash ('kill', 'immediate', 'kill', '')
{
	my @callers = map { in_background($node) } 1 .. 8;
	my $victim = $callers[3]->pid;
	my $share = $crash ? $calls : int(($calls - sql(q{SELECT count(*) FROM ledger})) / 8 / 0.9) + 1;
	$callers[$_]->send("CALL call_one_key(" . ($part * 8 + $_) . ", $share)") foreach 0 .. 7;
	$part++;
	if ($crash)
	{
		wait_until($node, "SELECT count(*) > $calls * $part / 4 FROM ledger", meanwhile => sub {
			my $live = sql(q{SELECT count(*) FROM queue_jobs.live_job WHERE dedup_key = 'one'});
			$most = $live if $live > $most;
		});
		if ($crash eq 'kill') { kill 'KILL', $victim }
		else { $node->stop('immediate'); $node->start }
		$_->kill_client foreach @callers;
		wait_until($node, 'SELECT true');
	}
	else
	{
		$_->result foreach @callers;
		is(join('', map { $_->error } @callers), '', 'no call failed');
		$_->quit foreach @callers;
	}
}
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.live_job WHERE dedup_key = 'one'}, retry_crashed => 1);
my $latest = q{SELECT session, n FROM ledger ORDER BY call DESC LIMIT 1};
note(sql(q{SELECT format('%s calls committed, %s runs', (SELECT count(*) FROM ledger), (SELECT count(*) FROM ran))}), ', at most ', $most, ' rows, ', time - $began, ' s');
is(sql('SELECT session, n FROM ran ORDER BY run DESC LIMIT 1'), sql($latest), 'the last run has the args of the latest call that was committed');
is(sql('SELECT count(*) FROM ran r WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.session = r.session AND l.n = r.n)'), '0', 'no run has args of a call that was rolled back');
cmp_ok($most, '<=', 40, 'the key never had more jobs than a few for each session');
cmp_ok(sql(q{SELECT pg_table_size('queue_jobs.live_job')}), '<', 100_000_000, 'and its rows are removed');

$node->stop;
done_testing();
