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
foreach my $open ("BEGIN; $early_call", "BEGIN; $early_call; PREPARE TRANSACTION 'early'")
{
	my $how = $open =~ /PREPARE/ ? 'prepared' : 'open';
	my $early = in_background($node);
	$early->query($open);
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
	is(sql($claim), '1001|', '… and the run of the early job has the later args');
	is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'waits' AND state NOT IN ('completed', 'cancelled')}), '0', '… and is the last');
}

$node->stop;
done_testing();
