# if_waiting: calls of one key beside an old snapshot cost the same however many there were.
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
CREATE PROCEDURE call(how text, n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM queue_jobs.enqueue('waits', jsonb_build_object('n', i), dedup_key => how, if_waiting => how,
			delay => CASE how WHEN 'debounce' THEN interval '1 hour' END);
		COMMIT;
	END LOOP;
END $$});
my $held = in_background($node);
$held->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
foreach my $how ('replace', 'replace_args', 'debounce')
{
	sql("CALL call('$how', 1500)");
	my $session = in_background($node);
	$session->query(q{SELECT queue_jobs.enqueue('waits', dedup_key => 'other', if_waiting => 'replace')});
	$session->query('BEGIN');
	$session->query("SELECT queue_jobs.enqueue('waits', '{\"n\": 0}', dedup_key => '$how', if_waiting => '$how', delay => " . ($how eq 'debounce' ? "'1 hour'" : 'NULL') . ')');
	cmp_ok($session->query(q{SELECT pg_stat_get_xact_tuples_returned('queue_jobs.live_job_key'::regclass)}), '<=', 2,
		"$how: a call walks over none of 1500 versions of its job that an old snapshot keeps");
	$session->query('COMMIT');
	$session->quit;
}
$held->query('COMMIT');
$held->quit;
is(sql(q{SELECT string_agg(args::text, ' ') FROM queue_jobs.job WHERE worker = 'waits' AND dedup_key <> 'other'}), join(' ', ('{"n": 0}') x 3), 'one job each, with the last args');
sql(q{SELECT queue_jobs.remove_jobs('waits')});

$node->stop;
done_testing();
