# Self-healing at size: every job is lost, and each pending record has one again, and one only; in batches, each a small
# transaction of its own; with the process that heals killed, and the server stopped, in the middle. QUEUE_JOBS_HEAL_RECORDS makes
# it a million pending records instead of 20,000.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $records = $ENV{QUEUE_JOBS_HEAL_RECORDS} // 20_000;    # pending ones; there are as many others
my $node = new_node('healing', conf => "restart_after_crash = on\nautovacuum = off\nmax_wal_size = 4GB\ncheckpoint_timeout = 1h");

$node->safe_psql('postgres', <<"SQL");
CREATE TABLE record (id int PRIMARY KEY, status text NOT NULL);
INSERT INTO record SELECT n, CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'done' END FROM generate_series(1, 2 * $records) n;
-- No process claims them, so that they can be counted.
CREATE PROCEDURE define(heal_every interval) LANGUAGE sql AS \$\$
	SELECT queue_jobs.define_worker('heals', record => 'record', record_key => 'id', pending => \$c\$status = 'pending'\$c\$,
		heal_every => define.heal_every);
\$\$;
SQL

# Without the engine's own.
my $jobs = q{SELECT j.*, j.xmin::text AS written_by FROM queue_jobs.live_job j JOIN queue_jobs.lane l ON l.id = j.lane WHERE l.worker NOT LIKE 'queue\_jobs.%'};

sub healed
{
	return $node->safe_psql('postgres', "SELECT count(*) FROM ($jobs) j");
}

# That each pending record has one job, and that no transaction made, or moved, more than a batch of them.
sub check
{
	my ($name) = @_;

	wait_until($node, "SELECT count(*) >= $records FROM ($jobs) j");
	is( $node->safe_psql('postgres', qq{
		SELECT count(*), count(DISTINCT (args->>'id')::int), bool_and((args->>'id')::int % 2 = 0) FROM ($jobs) j}),
		"$records|$records|t", "$name: each pending record has one job, no other has any");
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT FROM ($jobs) j GROUP BY written_by HAVING count(*) > 1000) t"),
		'0', "$name: in batches of a thousand at most");
	return;
}

# A tick later than the last one there is has looked at all records. (None but it writes heal_tick.)
sub wait_for_two_ticks
{
	for (1 .. 2)
	{
		my $last = $node->safe_psql('postgres', 'SELECT max(at) FROM queue_jobs.heal_tick');
		wait_until($node, "SELECT max(at) > '$last' FROM queue_jobs.heal_tick");
	}
	return;
}

sub executor_pid
{
	my ($pid) = executor_pids($node);
	return $pid;
}

# Loses all jobs, and waits until some records have theirs again. The others wait for the session that is returned: it has
# locked the records. (One batch is let pass at a time; the last one of a tick is empty.)
sub lose_all_and_hold
{
	my $waiting = q{SELECT count(*) = %d FROM pg_locks WHERE relation = 'record'::regclass AND NOT granted};
	my $session = in_background($node);

	$session->query('BEGIN; LOCK record');
	$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
	do
	{
		my $next = in_background($node);

		wait_until($node, sprintf($waiting, 1));
		$next->send('BEGIN; LOCK record');
		wait_until($node, sprintf($waiting, 2));
		$session->quit;
		$next->result;
		$session = $next;
	} until healed();
	return $session;
}

# Never enqueued at all; a second tick adds nothing.
$node->safe_psql('postgres', q{CALL define('1 s')});
my $start = time;
check('never enqueued');
note(time - $start . " s for $records records");
is($node->safe_psql('postgres', 'SELECT count(DISTINCT written_by) >= ' . $records / 1000 . " FROM ($jobs) j"), 't',
	'as many transactions as batches, at least');
wait_for_two_ticks();
check('after two more ticks');

# All are lost.
$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
check('TRUNCATE by hand');

# The process dies in the middle of it, which makes the server start anew. What it had done last may be undone.
my $holder = lose_all_and_hold();
my $before = healed();
my $pid = executor_pid();
kill 'KILL', $pid;
wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'postgres'");
cmp_ok($before, '<', $records, "it was killed in the middle ($before)");
eval { $holder->quit };
check('kill -9');

$holder = lose_all_and_hold();
$before = healed();
$node->stop('immediate');
$node->start;
eval { $holder->quit };
cmp_ok($before, '<', $records, "the server was stopped in the middle ($before)");
check('immediate stop');
wait_for_two_ticks();
check('immediate stop, two ticks later');

# Some have a job of some other state; a session enqueues at the same time.
# (A healing that is under way would go on after the TRUNCATE.)
$node->safe_psql('postgres', q{CALL define('1 h'); SELECT queue_jobs.enqueue('heals', '{"id": 2}', queue => 'other', delay => '1 ms')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.live_job j JOIN queue_jobs.lane l ON l.id = j.lane WHERE l.queue = 'other' AND j.due});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND state IN ('available', 'executing')});
$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
is( $node->safe_psql('postgres', q{
	SELECT count(queue_jobs.enqueue('heals', '{"id": 2}', delay => '1 h')), count(queue_jobs.enqueue('heals', '{"id": 4}'));
	SELECT count(queue_jobs.fail(id, attempt, 'no')) FROM queue_jobs.claim('c') c;
	SELECT count(queue_jobs.enqueue('heals', '{"id": 6}'));
	SELECT count(*) FROM queue_jobs.claim('c')}),
	"1|1\n1\n1\n1", 'one job is scheduled, one retryable, one executing');
my $session = in_background($node);
$session->query(q{BEGIN; SELECT queue_jobs.enqueue('heals', '{"id": 8}')});
$node->safe_psql('postgres', q{CALL define('1 s')});
wait_until($node, "SELECT count(*) >= $records FROM ($jobs) j");
$session->query('COMMIT');
wait_for_two_ticks();
is( $node->safe_psql('postgres', qq{SELECT args->>'id', count(*) FROM ($jobs) j GROUP BY args HAVING count(*) > 1}),
	'8|2', 'only he who had not committed yet has a twin');
is(healed(), $records + 1, 'all others have one job');

# heal_after: none before its time, however many are healed before it at the same tick, each of which takes a transaction ID.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.drop_worker('heals');
TRUNCATE queue_jobs.live_job;
TRUNCATE record;
ALTER TABLE record ADD changed_at timestamptz DEFAULT clock_timestamp();
INSERT INTO record SELECT n, 'pending' FROM generate_series(1, 3000) n;
SELECT queue_jobs.define_worker('patient', record => 'record', record_key => 'id', pending => $c$status = 'pending'$c$,
	heal_every => '1 s', heal_after => '1 s');
SQL
wait_until($node, q{SELECT count(*) = 3000 AND bool_and(state = 'available') FROM queue_jobs.job WHERE worker = 'patient'});
wait_until($node, q{SELECT clock_timestamp() BETWEEN max(at) + '600 ms' AND max(at) + '900 ms' FROM queue_jobs.heal_tick WHERE worker = 'patient'});
$node->safe_psql('postgres', q{INSERT INTO record VALUES (3001, 'pending'); TRUNCATE queue_jobs.live_job});
wait_until($node, q{SELECT count(*) = 3001 FROM queue_jobs.job WHERE worker = 'patient'});
cmp_ok($node->safe_psql('postgres', q{SELECT extract(epoch FROM created_at - changed_at) FROM queue_jobs.job, record WHERE record.id = 3001 AND args = '{"id": 3001}'}),
	'>=', 1, 'heal_after');

# Transactions that stay open, or prepared, elsewhere or here, hold up no records but those they wrote, also in a savepoint.
$node->safe_psql('template1', q{BEGIN; CREATE TABLE long_ago (); PREPARE TRANSACTION 'forgotten'});
$session->query(q{BEGIN; SELECT pg_current_xact_id(); SAVEPOINT s; INSERT INTO record VALUES (3002, 'pending')});
$node->safe_psql('postgres', q{INSERT INTO record VALUES (3003, 'pending')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'patient' AND args = '{"id": 3003}'});
pass('healed beside transactions that stay open');
wait_for_two_ticks();
wait_until($node, q{SELECT clock_timestamp() BETWEEN max(at) + '600 ms' AND max(at) + '900 ms' FROM queue_jobs.heal_tick WHERE worker = 'patient'});
my $committed_at = $session->query('SELECT clock_timestamp()');
$session->query('COMMIT');
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'patient' AND args = '{"id": 3002}'});
cmp_ok($node->safe_psql('postgres', qq{SELECT extract(epoch FROM created_at - '$committed_at') FROM queue_jobs.job WHERE args = '{"id": 3002}'}),
	'>=', 1, '… heal_after counts from the commit');
$node->safe_psql('template1', q{ROLLBACK PREPARED 'forgotten'});

# A healing that comes late counts from when it comes, and by the ticks that were noted meanwhile.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.drop_worker('patient'), queue_jobs.pause('queue_jobs.heal');
SELECT queue_jobs.define_worker('late', record => 'record', record_key => 'id', pending => $c$status = 'pending'$c$,
	heal_every => '1 s', heal_after => '3 s');
SQL
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND args = '{"worker": "late"}'});
$node->safe_psql('postgres', q{INSERT INTO record VALUES (3004, 'pending')});
wait_for_two_ticks();
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND args = '{"worker": "late"}' AND state = 'available'}), '1',
	'ticks that find a healing that waits add none');
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('queue_jobs.heal')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'late' AND args = '{"id": 3004}'});
cmp_ok($node->safe_psql('postgres', q{SELECT extract(epoch FROM created_at - changed_at) FROM queue_jobs.job, record WHERE record.id = 3004 AND args = '{"id": 3004}'}),
	'>=', 3, 'heal_after counts from when a late healing came');

is(log_count($node, 'ERROR'), 0, 'no error');
$node->stop;

# A scheduler that fails, here by a table that is not as it was, does not fail at each commit that calls it.
$node = new_node('calls', conf => "queue_jobs.idle_timeout = '1h'");
define_gated($node);
my $job = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
wait_for_job($node, $job, 'completed');
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state IN ('available', 'executing')});
$node->safe_psql('postgres', q{UPDATE pg_attribute SET attname = 'renamed' WHERE attrelid = 'queue_jobs.defined_schedule'::regclass AND attname = 'next_run'});
my $began = time;
$node->safe_psql('postgres', 'UPDATE queue_jobs.live_job SET id = id WHERE false; SELECT pg_sleep(0.01);' x 300);
$node->wait_for_log(qr/ERROR:  column "next_run" does not exist/);
my $failures = log_count($node, 'ERROR:  column "next_run" does not exist');
my $most = 2 + (time - $began) / 2;
cmp_ok($failures, '>', 0, 'a scheduler fails');
cmp_ok($failures, '<=', $most, 'and pauses then');
$node->safe_psql('postgres', q{UPDATE pg_attribute SET attname = 'next_run' WHERE attrelid = 'queue_jobs.defined_schedule'::regclass AND attname = 'renamed'});
$job = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 3}')});
wait_for_job($node, $job, 'completed');
pass('until it can go on');
$node->stop;
done_testing();
