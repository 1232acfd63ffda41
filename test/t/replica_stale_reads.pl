# Every job checks that it reads what its enqueuer wrote, while the replicas fall behind and catch up, again and again.
#
#   STALE_READS_JOBS   how many jobs; default: 400
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $jobs = $ENV{STALE_READS_JOBS} // 400;
my $clients = 4;
my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "max_connections = 50\nqueue_jobs.replica_timeout = '1min'\n");
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE counter (id int PRIMARY KEY, v bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO counter SELECT n, 0 FROM generate_series(1, 40) n;
CREATE TABLE promised (job bigint, v bigint);		-- who wrote v was told that this job does the work
CREATE TABLE seen (job bigint, id int, v bigint, strategy text, standby boolean);
CREATE TABLE filler (x text);
CREATE FUNCTION look(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
	SELECT jsonb_build_object('v', v, 'standby', pg_is_in_recovery()) FROM counter WHERE id = (args->>'id')::int;
$$;
CREATE FUNCTION tell(args jsonb, read jsonb) RETURNS void LANGUAGE sql AS $$
	INSERT INTO seen SELECT j.id, (args->>'id')::int, (read->>'v')::bigint, j.load_balancing_strategy, (read->>'standby')::boolean
	FROM queue_jobs.current_job() j;
$$;
SELECT queue_jobs.define_worker('sticky', 'public.tell', read_handler => 'public.look', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('delayed', 'public.tell', read_handler => 'public.look', data_consistency => 'delayed');
SELECT queue_jobs.define_worker('dedup', 'public.tell', read_handler => 'public.look', data_consistency => 'sticky', idempotent => true);
SELECT queue_jobs.define_worker('until_executed', 'public.tell', read_handler => 'public.look', data_consistency => 'sticky',
	idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');

-- Writes, enqueues, and writes more, so that the commit is far from the enqueue.
CREATE PROCEDURE step(worker text, counter_id int, kilobytes int) LANGUAGE plpgsql AS $$
DECLARE
	new_v bigint;
	job bigint;
BEGIN
	UPDATE counter SET v = v + 1 WHERE id = counter_id RETURNING v INTO new_v;
	job := queue_jobs.enqueue(worker, jsonb_build_object('id', counter_id));
	INSERT INTO promised VALUES (job, new_v);
	INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, kilobytes);
END
$$;
SQL
$primary->backup('backup');

my @standbys;
for my $name ('one', 'two')
{
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->start;
	$primary->safe_psql('postgres', "SELECT queue_jobs.add_replica('$name', 'host=" . $standby->host . ' port=' . $standby->port . "')");
	push @standbys, $standby;
}

# The load.
my %scripts = (sticky => 4, delayed => 1, dedup => 3, until_executed => 2);
my @files;
for my $worker (sort keys %scripts)
{
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$worker.sql";
	append_to_file($file, "\\set id random(1, 40)\n\\set large random(1, 10)\n\\set kb case when :large = 1 then 300 else 1 end\nCALL step('$worker', :id, :kb);\n");
	push @files, '-f', "$file\@$scripts{$worker}";
}
my ($out, $err) = ('', '');
my $timeout = IPC::Run::timeout(20 * $PostgreSQL::Test::Utils::timeout_default);
my $load = IPC::Run::start(
	[ $primary->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', $clients, '-t', int($jobs / $clients), '-R', 150, '-d', 'postgres', @files,
	  '-h', $primary->host, '-p', $primary->port ],
	'>', \$out, '2>', \$err, $timeout);

# The lag: each replica stops for a moment, one after the other, sometimes both. Not faster than they can do it.
my @sessions = map { in_background($_) } @standbys;
my $pauses = 0;
srand(42);
sub lag
{
	my @late = grep { rand() < 0.6 } @sessions;
	$_->query('SELECT pg_wal_replay_pause()') for @late;
	$pauses += @late;
	select undef, undef, undef, rand(2);
	$_->query('SELECT pg_wal_replay_resume()') for @late;
	select undef, undef, undef, rand(0.6);
}
while ($load->pumpable)
{
	lag();
	$load->pump_nb;
}
$load->finish;
is($err =~ /ERROR|FATAL/ ? $err : '', '', 'the load ran');
until ($primary->safe_psql('postgres', q{SELECT count(*) = 0 FROM queue_jobs.live_job}) eq 't')
{
	lag();
}

# Both are late, in any case once.
$_->query('SELECT pg_wal_replay_pause()') for @sessions;
wait_until($_, q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) for @standbys;
wait_for_job($primary, $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('sticky', '{"id": 1}')}), 'completed');
$_->query('SELECT pg_wal_replay_resume()') for @sessions;

# What stands for a job that was merged into another.
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE stands_for AS
WITH RECURSIVE merged AS (
	SELECT id, (result->>'merged_into')::bigint AS into_id FROM queue_jobs.job WHERE state = 'cancelled' AND result ? 'merged_into'
), chain AS (
	SELECT id, into_id FROM merged
	UNION
	SELECT c.id, m.into_id FROM chain c JOIN merged m ON m.id = c.into_id)
SELECT * FROM chain;
INSERT INTO stands_for SELECT DISTINCT job, job FROM promised;
CREATE VIEW outcome AS
SELECT p.job, p.v AS wrote, min(s.id) AS counter, max(s.v) AS saw, max(s.strategy) AS strategy, bool_or(s.standby) AS standby
  FROM promised p JOIN stands_for f ON f.id = p.job LEFT JOIN seen s ON s.job = f.into_id
 GROUP BY p.job, p.v;
SQL
is($primary->safe_psql('postgres', 'SELECT count(*) FROM promised'), int($jobs / $clients) * $clients, 'all was enqueued');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM outcome WHERE saw IS NULL'), '0', 'all of it was done');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM outcome WHERE saw < wrote'), '0', 'no stale read')
  or diag($primary->safe_psql('postgres', 'SELECT * FROM outcome WHERE saw < wrote LIMIT 20'));
is($primary->safe_psql('postgres', q{SELECT count(*) FROM seen WHERE standby <> (strategy LIKE 'replica%')}), '0', 'reads were where they are said to have been');
my $share = $primary->safe_psql('postgres', q{SELECT round(100.0 * count(*) FILTER (WHERE standby) / count(*)) FROM seen});
diag($primary->safe_psql('postgres', q{SELECT count(*) || ' enqueues, ' || (SELECT count(*) FROM seen) || ' runs, } . $pauses . q{ pauses of replay; read from replicas: '} . " || $share || ' %; ' ||"
	  . q{ (SELECT string_agg(strategy || ' ' || n, ', ' ORDER BY strategy) FROM (SELECT strategy, sum(jobs) n FROM queue_jobs.load_balancing GROUP BY 1) x) FROM promised}));
cmp_ok($share, '>', 20, 'replicas had their share');
cmp_ok($primary->safe_psql('postgres', q{SELECT count(*) FROM seen WHERE strategy = 'primary'}), '>', 0, 'and sometimes none of them was ready');

# A claimant's job, for which its worker's replica will do, until another is merged into it.
$primary->safe_psql('postgres', q{SELECT queue_jobs.define_worker('claimed', data_consistency => 'sticky', idempotent => true)});
my @enqueuers = map { in_background($primary) } 1 .. 2;
$enqueuers[$_]->query("BEGIN; UPDATE counter SET v = v + 1 WHERE id = 1 + $_; SELECT queue_jobs.enqueue('claimed')") for 0, 1;
$enqueuers[0]->query('COMMIT');
$primary->wait_for_catchup($_) for @standbys;
$_->query('SELECT pg_wal_replay_pause()') for @sessions;
wait_until($_, q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) for @standbys;
wait_until($primary, "SELECT bool_and(replayed_lsn >= '" . $enqueuers[0]->query('SELECT queue_jobs.last_commit_lsn()') . q{') FROM queue_jobs.replica});
$enqueuers[1]->query('COMMIT');
wait_until($primary, q{SELECT count(*) = 2 AND bool_and(state = 'available' AND wal_lsn IS NOT NULL) FROM queue_jobs.job WHERE worker = 'claimed'});
is($primary->safe_psql('postgres', q{SELECT merged, read_from FROM queue_jobs.claim('c', '{claimed}', 10)}), '1|primary', 'what is merged into a claimed job counts for where it reads');
$_->quit for @enqueuers;
$_->query('SELECT pg_wal_replay_resume()') for @sessions;

$_->quit for @sessions;
$_->stop for @standbys, $primary;
done_testing();
