# Claimants: wait_for_jobs() returns when there may be something to claim, and holds nothing meanwhile; many of them
# beside the executors take each job once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('claimants', conf => "max_connections = 50\nqueue_jobs.idle_timeout = '1h'");
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('outside');
SELECT queue_jobs.define_worker('elsewhere', queue => 'elsewhere');
CREATE PROCEDURE wait_twice() LANGUAGE plpgsql AS $$
BEGIN
	CALL queue_jobs.wait_for_jobs('{outside}', '1 hour');
	CALL queue_jobs.wait_for_jobs('{outside}', '1 hour');
END
$$;
SQL
my $waiter = in_background($node);
my $pid = $waiter->pid;
my $other = in_background($node);

# The session waits: and holds neither a transaction, nor a snapshot, nor an xid.
sub wait_until_it_waits
{
	my ($xact) = @_;

	wait_until($node, "SELECT wait_event_type = 'Extension' AND backend_xmin IS NULL AND backend_xid IS NULL"
		  . ($xact // ' AND xact_start IS NULL') . " FROM pg_stat_activity WHERE pid = $pid");
	return;
}

sub take_all
{
	return $node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('taker', max_jobs => 100)) c});
}

# A commit.
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until_it_waits();
pass('it waits without a transaction or a snapshot');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype <> 'virtualxid'"), '0', 'and without locks');
$node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.enqueue('outside'); ROLLBACK});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('elsewhere')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
wait_until($node, 'SELECT count(*) = 1 FROM ran');
wait_until_it_waits();
is($waiter->ended, 0, 'other queues, and a rollback, do not end it');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$waiter->result;
is($waiter->error, '', 'a commit ends it');
is(take_all(), '2', 'and the jobs are there');

# There is something already.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
pass('it returns at once if there is something');
take_all();

# Due time, alone and sooner than another that is known.
for my $delay ('1 hour', '300 ms')
{
	$node->safe_psql('postgres', "SELECT queue_jobs.enqueue('outside', delay => '$delay')");
}
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
is(take_all(), '1', 'a job that falls due ends it');

# The end of a lease.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
is($node->safe_psql('postgres', q{SELECT attempt FROM queue_jobs.claim('lost', lease => '300 ms')}), '1', 'a claim');
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
is($node->safe_psql('postgres', q{SELECT attempt, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('found')}), '2|', 'the end of a lease ends it');

# What another claimant lets go of: by rollback, of a savepoint too; by its end; by snooze().
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
for my $end ('ROLLBACK', 'ROLLBACK TO s', 'quit', 'kill')
{
	is($other->query(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM queue_jobs.claim('other')}), '1', "claimed by another: $end");
	$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
	wait_until_it_waits();
	$end eq 'quit' ? $other->quit : $end eq 'kill' ? $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $other->pid . ')') : $other->query($end);
	my $since = time;
	$waiter->result;
	cmp_ok(time - $since, '<', 55, '… ends it');
	if ($end eq 'quit') { $other = in_background($node) }
	elsif ($end eq 'kill') { $other->quit; $other = in_background($node) }
	else { $other->query('ROLLBACK') }
}
is($other->query(q{SELECT attempt, queue_jobs.snooze(id, attempt, '300 ms') FROM queue_jobs.claim('other')}), '1|', 'snoozed');
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
is(take_all(), '1', '… is due');

# resume(), enable_worker(), retry().
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('outside'); SELECT queue_jobs.disable_worker('elsewhere')});
my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside,elsewhere}', '1 hour')});
wait_until_it_waits();
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('outside')});
$waiter->result;
is(take_all(), '1', 'resume() ends it');
$node->safe_psql('postgres', q{SELECT queue_jobs.enable_worker('elsewhere')});
$id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('elsewhere', delay => '1 hour')});
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{elsewhere}', '1 hour')});
wait_until_it_waits();
$node->safe_psql('postgres', "SELECT queue_jobs.retry($id)");
$waiter->result;
is(take_all(), '1', 'retry() ends it');

# The first job ever of a worker that was not there when the waiting began.
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{new}', '1 hour')});
wait_until_it_waits();
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('new')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('new')});
$waiter->result;
is(take_all(), '1', 'the first job of a new worker ends it');

# Timeout, cancellation; the waiting count must come right, so that the next ones are woken.
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{outside}', '10 ms')});
is($waiter->error, '', 'it returns after its timeout');
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until_it_waits();
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
$waiter->result;
like($waiter->error, qr/canceling statement/, 'it can be cancelled');
$waiter->send(q{SET statement_timeout = '50 ms'; CALL queue_jobs.wait_for_jobs('{outside}', '1 hour'); RESET statement_timeout});
$waiter->result;
like($waiter->error, qr/statement timeout/, 'and has a timeout like any statement');
$waiter->query('RESET statement_timeout');
$other->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
my $third = in_background($node);
$third->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until_it_waits();
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$_->result foreach ($waiter, $other, $third);
pass('all that wait are woken');
take_all();

# A lease that none of them knew of before they began to wait.
$other->query('BEGIN');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$other->query(q{SELECT count(*) FROM queue_jobs.claim('dies', '{outside}', lease => '1 s')});
$node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('late', '{outside}')});	# passes it by
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until_it_waits();
$other->query('COMMIT');
$waiter->result;
pass('the end of a lease that was committed while they waited ends it');
take_all();

# From PL/pgSQL, where the language keeps a transaction, but without a snapshot.
$waiter->send('CALL wait_twice()');
wait_until_it_waits('');
pass('from a procedure: no snapshot');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$waiter->result;
is($waiter->error, '', 'from a procedure: returns, and returns at once with something there');
take_all();
$waiter->query(q{DO $$ BEGIN CALL queue_jobs.wait_for_jobs('{outside}', '10 ms'); END $$});
is($waiter->error, '', 'from DO');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside')});
$waiter->query(<<'SQL');
DO $$
BEGIN
	PERFORM pg_current_xact_id();
	CALL queue_jobs.wait_for_jobs('{outside}', '1 hour');
	ASSERT pg_current_xact_id_if_assigned() IS NULL;
END
$$
SQL
is($waiter->error, '', 'from DO: what it has made available is committed, also when it has not waited');
take_all();

# Where there is a transaction that cannot be ended, it is refused.
for my $call (
	q{BEGIN; CALL queue_jobs.wait_for_jobs('{outside}', '10 ms'); COMMIT},
	q{CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE plpgsql AS 'BEGIN CALL queue_jobs.wait_for_jobs(); END'; SELECT pg_temp.f()})
{
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$call");
	like($err, qr/ERROR:  2D000:/, 'refused within a transaction');
}

# 8 claimants, some of which roll back or let their lease run out, beside the executors.
$_->quit foreach ($waiter, $other, $third);
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('many', max_retries => 1000);
CREATE TABLE done (n int, claimant text);
CREATE PROCEDURE work(name text) LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[];
	attempts int[];
	numbers int[];
	lost boolean;
BEGIN
	PERFORM setseed(length(name) / 100.0 + ascii(name) / 1000.0);
	LOOP
		lost := random() < 0.05;
		SELECT array_agg(id), array_agg(attempt), array_agg((args->>'n')::int) INTO ids, attempts, numbers
		  FROM queue_jobs.claim(name, '{many}', max_jobs => 1 + (random() * 9)::int, lease => CASE WHEN lost THEN interval '20 ms' ELSE '1 hour' END);
		IF ids IS NULL THEN
			COMMIT;
			EXIT WHEN EXISTS (SELECT FROM gate WHERE n = -1);
			CALL queue_jobs.wait_for_jobs('{many}', '100 ms');
		ELSIF lost THEN
			COMMIT;
		ELSIF random() < 0.1 THEN
			INSERT INTO done SELECT unnest(numbers), 'rolled back';
			ROLLBACK;
		ELSE
			IF random() < 0.5 THEN
				COMMIT;
			END IF;
			INSERT INTO done SELECT unnest(numbers), name;
			PERFORM queue_jobs.complete_many(ids, attempts);
			COMMIT;
		END IF;
	END LOOP;
END
$$;
SQL
my @claimants = map { in_background($node) } 1 .. 8;
$_->pid foreach @claimants;		# they are connected
$claimants[$_]->send("CALL work('claimant $_')") foreach 0 .. 7;
for my $batch (0 .. 9)
{
	$node->safe_psql('postgres', "SELECT count(queue_jobs.enqueue('many', jsonb_build_object('n', n))) + count(queue_jobs.enqueue('quick', jsonb_build_object('n', n)))
		FROM generate_series($batch * 500 + 1, $batch * 500 + 500) n");
}
wait_until($node, q{SELECT count(*) = 5000 FROM done});
wait_until($node, q{SELECT count(*) = 5001 FROM ran});
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (-1)');
$_->result foreach @claimants;
is(join('', map { $_->error } @claimants), '', 'no claimant had an error');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n), count(DISTINCT claimant) > 1 FROM done'), '5000|5000|t', '8 claimants took each of 5,000 jobs once');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM ran'), '5001|5000', 'while executors ran 5,000');
is($node->safe_psql('postgres', q{SELECT state, count(*) FROM queue_jobs.job WHERE worker = 'many' GROUP BY 1}), 'completed|5000', 'all are completed');
$_->quit foreach @claimants;

# A claimant takes a job that has just fallen due, the scheduler passes that by, and the claimant rolls back, all of it or to a
# savepoint: the job is claimed all the same. (The scheduler sleeps deeply meanwhile, so as not to see it first.)
foreach my $undo ('ROLLBACK', 'ROLLBACK TO s; COMMIT')
{
	my $job = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', delay => '5 s')});
	my $asleep = stop_scheduler($node);
	wait_until($node, "SELECT run_at <= clock_timestamp() FROM queue_jobs.job WHERE id = $job");
	my $claimant = in_background($node);
	is($claimant->query(q{BEGIN; SAVEPOINT s; SELECT id FROM queue_jobs.claim('c', '{outside}')}), $job, 'a job that has just fallen due is claimed');
	kill 'CONT', $asleep;
	my $after = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": -1}', delay => '1 ms')});
	wait_for_job($node, $after, 'completed');      # the scheduler has looked
	$claimant->query($undo);
	wait_until($node, q{SELECT count(queue_jobs.complete(id, attempt)) = 1 FROM queue_jobs.claim('d', '{outside}')});
	pass("after $undo it can be claimed");
	$claimant->quit;
}

# A claim that finds that the lease of a last attempt has run out ends that job, and the next of its key can be claimed, which claims
# passed by while the lease lasted. (Longer leases for slow machines.)
my $passed_by = 0;
for (my $lease = 2; !$passed_by && $lease < 200; $lease *= 3)
{
	my $worker = "once$lease";

	$node->safe_psql('postgres', "SELECT queue_jobs.define_worker('$worker', idempotent => true, deduplicate => 'until_executed', "
		  . "if_deduplicated => 'reschedule_once', max_retries => 0); SELECT queue_jobs.enqueue('$worker')");
	$node->safe_psql('postgres', "SELECT id FROM queue_jobs.claim('lost', '{$worker}', lease => '$lease s')");
	my $next = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker')");
	my $claim = "SELECT id FROM queue_jobs.claim('other', '{$worker}')";
	my $too_soon = join '', map { $node->safe_psql('postgres', $claim) } 1 .. 3;
	next if $node->safe_psql('postgres', "SELECT clock_timestamp() > started_at + '$lease s' FROM queue_jobs.job WHERE worker = '$worker' AND claimant = 'lost'") ne 'f';
	$passed_by = 1;
	is($too_soon, '', 'the next of a key waits for the lease');
	wait_until($node, "SELECT clock_timestamp() > started_at + '$lease s' FROM queue_jobs.job WHERE worker = '$worker' AND claimant = 'lost'");
	wait_until($node, "SELECT count(*) = 1 FROM queue_jobs.claim('other', '{$worker}')");
	is($node->safe_psql('postgres', "SELECT id FROM queue_jobs.job WHERE worker = '$worker' AND claimant = 'other'"), $next,
		'… and can be claimed when that job is dead');
	is($node->safe_psql('postgres', "SELECT string_agg(state, ' ' ORDER BY id) FROM queue_jobs.job WHERE worker = '$worker'"), 'dead executing', '… as it is');
}
is($passed_by, 1, 'within the lease');

$node->stop;
done_testing();
