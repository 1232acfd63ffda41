# Batches and workflows: each callback comes once, and no step is lost, whatever is killed between a member's end and what follows from it:
# the scheduler, an executor, the whole server; and without shared_preload_libraries.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('batches', conf => "restart_after_crash = on\nmax_prepared_transactions = 2");

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

sql(<<'SQL');
CREATE TABLE called (worker text, batch bigint);
CREATE FUNCTION call_back(batch bigint) RETURNS void LANGUAGE sql AS
$$ INSERT INTO public.called SELECT worker, $1 FROM queue_jobs.current_job() $$;
CREATE TABLE ran (batch bigint, n int);
CREATE FUNCTION member(n int) RETURNS int LANGUAGE sql AS
$$ INSERT INTO public.ran SELECT batch, $1 FROM queue_jobs.current_job() RETURNING n $$;
CREATE FUNCTION step(n int, results jsonb DEFAULT NULL) RETURNS int LANGUAGE sql AS
$$ INSERT INTO public.ran SELECT batch, $1 FROM queue_jobs.current_job() RETURNING n $$;
SELECT queue_jobs.define_worker(w, 'public.' || h) FROM (VALUES ('member', 'member'), ('step', 'step'), ('ended', 'call_back'), ('succeeded', 'call_back')) AS d (w, h);
CREATE FUNCTION make_batch(members int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint := queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended');
BEGIN
	PERFORM queue_jobs.enqueue_many('member', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, members) n), batch => id);
	RETURN id;
END
$$;
-- A chain of ten, and ten beside each other that follow it.
CREATE FUNCTION make_workflow() RETURNS bigint LANGUAGE sql AS $$
SELECT count(*) FROM queue_jobs.enqueue_workflow('w', (SELECT jsonb_agg(jsonb_build_object('step', 's' || n, 'worker', 'step', 'args', jsonb_build_object('n', n))
           || CASE WHEN n = 1 THEN '{}' ELSE jsonb_build_object('after', jsonb_build_array('s' || least(n - 1, 10))) END)
      FROM generate_series(1, 20) n), on_success => 'succeeded', on_ended => 'ended')
$$;
SQL

# All that was begun has ended, each member ran once, and each callback came once.
sub check
{
	my ($name) = @_;

	wait_until($node, "SELECT NOT EXISTS (SELECT FROM queue_jobs.batch WHERE state <> 'succeeded')
	                   AND NOT EXISTS (SELECT FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead'))",
		retry_crashed => 1);
	is(sql('SELECT count(*) FROM (SELECT batch, n FROM ran GROUP BY 1, 2 HAVING count(*) <> 1) d'), 0, "$name: each member ran once");
	is(sql("SELECT count(*) FROM queue_jobs.batch b CROSS JOIN unnest('{ended,succeeded}'::text[]) w
	        WHERE (SELECT count(*) FROM called c WHERE c.batch = b.id AND c.worker = w) <> 1"), 0, "$name: each callback came once");
	is(sql('SELECT count(*) FROM queue_jobs.batch WHERE jobs <> completed'), 0, "$name: no member is missing");
	return;
}

sub kill_process
{
	my ($type) = @_;

	kill 'KILL', $_ foreach split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'");
	wait_until($node, 'SELECT true');
	return;
}

sql('SELECT make_batch(10), make_workflow()');
check('undisturbed');

foreach my $type ('queue_jobs scheduler', 'queue_jobs executor')
{
	foreach my $round (1 .. 3)
	{
		wait_until($node, 'SELECT make_batch(50) > 0 AND make_workflow() > 0');
		wait_until($node, "SELECT count(*) > 5 FROM ran WHERE batch = (SELECT max(id) FROM queue_jobs.batch)", retry_crashed => 1);
		kill_process($type);
	}
	check("$type killed");
}

# The whole server, at whatever point it is.
foreach my $round (1 .. 3)
{
	sql('SELECT make_batch(50), make_workflow()');
	wait_until($node, "SELECT count(*) > 5 FROM ran WHERE batch = (SELECT max(id) FROM queue_jobs.batch)", retry_crashed => 1);
	$node->stop('immediate');
	$node->start;
}
check('immediate stop');

# A prepared transaction ends the last member; the session that commits it has noted nothing.
sql(q{SELECT queue_jobs.define_worker('by_hand')});
my $batch = sql(<<'SQL');
BEGIN;
SELECT queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended') AS batch \gset
SELECT count(queue_jobs.enqueue('by_hand', batch => :batch)) AS n \gset
COMMIT;
SELECT :batch;
SQL
sql(q{BEGIN; SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('one', '{by_hand}'); PREPARE TRANSACTION 'last';});
is(sql("SELECT state FROM queue_jobs.batch WHERE id = $batch"), 'running', 'a batch whose last member ends in a prepared transaction runs');
sql(q{COMMIT PREPARED 'last'});
check('prepared');

# A scheduler that starts finds what expires of batches, also a job that is a member for a duplicate. (Of the changed row there is no news.)
sql(q{SELECT queue_jobs.define_worker('once', idempotent => true)});
my $job = sql(q{SELECT queue_jobs.enqueue('once', expires_in => '1 h')});
$batch = sql(<<'SQL');
BEGIN;
SELECT queue_jobs.new_batch(on_ended => 'ended') AS batch \gset
SELECT queue_jobs.enqueue('once', expires_in => '1 h', batch => :batch) AS job \gset
COMMIT;
SELECT :batch;
SQL
is(sql("SELECT state, remaining FROM queue_jobs.batch WHERE id = $batch"), 'running|1', 'a job is a member for a duplicate');
sql("UPDATE queue_jobs.live_job SET expires_at = now() WHERE id = $job");
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'});
sql(q{SELECT queue_jobs.enqueue('member', '{"n": 0}')});
wait_until($node, "SELECT state = 'ended' FROM queue_jobs.batch WHERE id = $batch");
is(sql("SELECT state FROM queue_jobs.job WHERE id = $job"), 'cancelled', '… which expires where no claim meets it');
wait_until($node, "SELECT count(*) = 1 FROM called WHERE batch = $batch");

# A claimant waits for a signal in a prepared transaction, and the signal comes before that is committed.
sql(q{SELECT queue_jobs.define_worker('asks')});
my $asks = sql(q{SELECT queue_jobs.enqueue('asks')});
sql(q{BEGIN; SELECT queue_jobs.wait_for_signal(id, attempt, 'go') FROM queue_jobs.claim('one', '{asks}'); PREPARE TRANSACTION 'waits'});
is(sql("SELECT queue_jobs.signal($asks, 'go')"), 't', 'a signal is sent to a job whose wait is prepared');
sql(q{COMMIT PREPARED 'waits'});
wait_until($node, "SELECT state = 'available' FROM queue_jobs.job WHERE id = $asks");
is(sql(q{SELECT attempt, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('one', '{asks}')}), '2|', '… which can be claimed when it is committed');

# Without shared_preload_libraries the next claim does the scheduler's part.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
sql(q{SELECT queue_jobs.define_worker('ended'), queue_jobs.define_worker('after')});
$batch = sql(<<'SQL');
BEGIN;
SELECT queue_jobs.new_batch(on_ended => 'ended') AS batch \gset
SELECT queue_jobs.enqueue('by_hand', batch => :batch) AS job \gset
SELECT queue_jobs.enqueue('after', after => ARRAY[:job]) AS after \gset
COMMIT;
SELECT :batch;
SQL
is(sql(q{SELECT count(*) FROM queue_jobs.claim('one', '{after}')}), 0, 'a job that waits for another is not claimed');
sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('one', '{by_hand}')});
is(sql(q{SELECT args ->> 'batch' FROM queue_jobs.claim('one', '{ended}')}), $batch, 'without shared_preload_libraries, the next claim finds the callback');
is(sql(q{SELECT count(*) FROM queue_jobs.claim('one', '{after}')}), 1, '… and the job that waited');

# Where there are signals, but neither dependencies nor batches: what wait_for_jobs() has released, the next claim takes.
$node->safe_psql('postgres', 'CREATE DATABASE signals');
$node->safe_psql('signals', q{CREATE EXTENSION queue_jobs; SELECT queue_jobs.define_worker('asks')});
$asks = $node->safe_psql('signals', q{SELECT queue_jobs.enqueue('asks')});
is($node->safe_psql('signals', q{SELECT queue_jobs.wait_for_signal(id, attempt, 'go') FROM queue_jobs.claim('one')}), 'f', 'a claimed job waits for a signal');
is($node->safe_psql('signals', q{SELECT count(*) FROM queue_jobs.claim('one')}), '0', '… and is not claimed');
$node->safe_psql('signals', "SELECT queue_jobs.signal($asks, 'go')");
$node->safe_psql('signals', q{CALL queue_jobs.wait_for_jobs('{asks}', '3 min')});
is($node->safe_psql('signals', q{SELECT attempt FROM queue_jobs.claim('one')}), '2', '… before that has come');
$node->safe_psql('signals', "SELECT queue_jobs.wait_for_signal($asks, 2, 'in vain', '1 ms'), pg_sleep(0.01)");
is($node->safe_psql('signals', q{SELECT attempt FROM queue_jobs.claim('one')}), '3', '… or the timeout is over');

$node->stop;
done_testing();
