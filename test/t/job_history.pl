# What need not be kept any longer goes: partitions of finished jobs, dead jobs beyond 10,000 of a worker and owner or six months, tokens, slots of
# leases that are gone, batches with their members and the ids that these have. The clock cannot be set, so rows are put where older ones would be; a scheduler that starts looks.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('history', conf => "queue_jobs.idle_timeout = '500ms'\n");
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION fails(args jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE FUNCTION nothing(args jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT queue_jobs.define_worker('fails', 'public.fails', max_retries => 0);
SELECT queue_jobs.define_worker('kept', 'public.nothing', keep_completed => '30 min');
CREATE ROLE flooder LOGIN;
GRANT queue_jobs_enqueue TO flooder;
SELECT queue_jobs.enqueue('fails'), queue_jobs.enqueue('kept');
SET ROLE flooder;
SELECT queue_jobs.enqueue('fails');
SQL
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE state IN ('dead', 'completed')});
wait_for_no_processes($node, 'postgres');

# Partitions of the first level, of ten minutes each (src/table/history.c); "ago" periods before the one of now.
my $period;
sub partition { return 'queue_jobs.finished_job_0_' . (($period + $_[0]) % 8); }

# A row for each of these partitions, of which now is the time, and none of which is emptied before the session's transaction ends.
sub fill_partitions
{
	my ($session, @which) = @_;

	# Neither as a period begins, whose first row is not over yet, nor as it ends.
	wait_until($node, q{SELECT extract(epoch FROM now() - '2000-01-01 00:00+00')::numeric % 600 BETWEEN 2 AND 570});
	$period = $node->safe_psql('postgres', q{SELECT floor(extract(epoch FROM now() - '2000-01-01 00:00+00') / 600)::bigint});
	foreach my $which (@which)
	{
		my $slice = ($period + $which) % 8;
		my $until = "timestamptz '2000-01-01 00:00+00' + ($period + $which) * interval '10 min' + interval '1 s'";

		$session->query("INSERT INTO queue_jobs.finished_job SELECT (jsonb_populate_record(f, jsonb_build_object("
			  . "'slice', $slice, 'id', f.id + 1000 + $which, 'keep_until', $until))).* FROM queue_jobs.finished_job f WHERE state = 'completed' AND id < 1000 LIMIT 1");
	}
	return;
}

# (A scheduler may still come to look at the history of the jobs above.)
my $session = in_background($node);
$session->query('BEGIN');
fill_partitions($session, -1, 0, 2);
is($session->query('SELECT count(*) FROM ' . partition(-1)), '1', 'a row in the partition of the period just over');
is($session->query(q{SELECT count(*) FROM queue_jobs.job WHERE id > 900}), '1', 'which the view does not show');
$node->safe_psql('postgres', <<'SQL');
INSERT INTO queue_jobs.dead_job SELECT (jsonb_populate_record(d, jsonb_build_object('id', 100000 + i, 'finished_at', now() - i * interval '1 s'))).*
FROM queue_jobs.dead_job d, generate_series(1, 10020) AS i WHERE lane = (SELECT id FROM queue_jobs.lane WHERE owner = 'flooder'::regrole);
INSERT INTO queue_jobs.dead_job SELECT (jsonb_populate_record(d, jsonb_build_object('id', 99999, 'keep_until', now() - interval '1 s'))).*
FROM queue_jobs.dead_job d WHERE id < 1000 LIMIT 1;
SELECT queue_jobs.run_once('short', 'SELECT 1'), queue_jobs.run_once('long', 'SELECT 1');
UPDATE queue_jobs.token SET expires_at = now() WHERE token = 'short';
INSERT INTO queue_jobs.claimed_slot VALUES (1, 12345, 1);
SQL

# (A session that reads a partition keeps it from being truncated for the next ten minutes; pg_class tells.)
my $emptied = join ' OR ', map { my $name = partition($_);
	"oid = '$name'::regclass AND relfilenode <> " . $node->safe_psql('postgres', "SELECT relfilenode FROM pg_class WHERE oid = '$name'::regclass") } (-1, 0);
$session->query('COMMIT');
$session->quit;
$node->restart;
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('kept')});

# Should the period have changed meanwhile, it is the next partition's turn.
wait_until($node, "SELECT count(*) > 0 FROM pg_class WHERE $emptied");
pass('the partition of the period just over is emptied');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ' . partition(2) . ' WHERE id > 900'), '1', 'what is to be kept stays');
# (The one whose time is over is among the 10,000 latest, too.)
wait_until($node, q{SELECT count(*) = 9999 FROM queue_jobs.dead_job WHERE id >= 1000});
is($node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.dead_job WHERE id = 99999 OR id > 109999'), '0',
	'of the dead, the oldest go, and those that have been kept for long enough');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.dead_job WHERE id < 1000}), '2', 'the latest of each owner stay');
is(log_count($node, qr/removes the oldest dead jobs of worker "fails" and role "flooder"/), 1, 'which the log says');
wait_until($node, q{SELECT string_agg(token, ' ') = 'long' FROM queue_jobs.token});
wait_until($node, 'SELECT count(*) = 0 FROM queue_jobs.claimed_slot');
pass('tokens that have expired, and slots without a lease, too');

# A batch goes with all that is known of its members when its time is over; of others nothing goes, not of one whose members have ids within its range,
# nor of one that has not ended.
my ($over, $kept, $open) = map { $node->safe_psql('postgres', "SELECT queue_jobs.new_batch('$_', keep => '1 day', open => true)") } qw(over kept open);
sub member { return "SELECT queue_jobs.enqueue('kept', batch => $_[0])" }
$session = in_background($node);
$session->query('BEGIN; ' . member($over));
$node->safe_psql('postgres', "BEGIN; " . member($kept) . '; ' . member($open) . '; COMMIT');
$session->query(member($over) . '; COMMIT');
$session->quit;
$node->safe_psql('postgres', member($kept));
is($node->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.member_range o JOIN queue_jobs.member_range k ON k.first BETWEEN o.first AND o.last WHERE o.batch = $over AND k.batch = $kept"),
	'1', 'the ids of two batches are within one another');
$node->safe_psql('postgres', "SELECT queue_jobs.close_batch($over), queue_jobs.close_batch($kept)");
wait_until($node, "SELECT count(*) = 2 FROM queue_jobs.tracked_batch WHERE id IN ($over, $kept) AND settled_at IS NOT NULL");
wait_until($node, "SELECT completed = 1 FROM queue_jobs.batch WHERE id = $open");
wait_for_no_processes($node, 'postgres');
my $ranges = 'SELECT batch, first, last FROM queue_jobs.member_range WHERE batch %s ORDER BY first';
my $members = 'SELECT id, batch FROM queue_jobs.member_job WHERE batch %s ORDER BY id';
my @stay = map { $node->safe_psql('postgres', sprintf $_, "IN ($kept, $open)") } $ranges, $members;
is(scalar(split /\n/, $stay[1]), '3', 'members that are kept');
$node->safe_psql('postgres', "UPDATE queue_jobs.tracked_batch SET keep = '0' WHERE id IN ($over, $open)");
# One that had looked before that leaves; the next one looks.
wait_for_no_processes($node, 'postgres');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('kept')});
wait_until($node, "SELECT count(*) = 0 FROM queue_jobs.tracked_batch WHERE id = $over");
is($node->safe_psql('postgres', sprintf $ranges, "= $over"), '', 'no id of a batch is left when its time is over');
is($node->safe_psql('postgres', sprintf $members, "= $over"), '', '… and no member');
is_deeply([ map { $node->safe_psql('postgres', sprintf $_, "IN ($kept, $open)") } $ranges, $members ], \@stay, 'of others all stay');
is($node->safe_psql('postgres', "SELECT name, jobs, completed FROM queue_jobs.batch WHERE id IN ($kept, $open) ORDER BY id"), "kept|2|2\nopen|1|1", '… and are found');

# One with a callback that may be retried stays, however short it is kept, until that callback is completed, or there is nothing left of it.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE summary (batch bigint, jobs bigint);
CREATE FUNCTION sum_up(batch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class WHERE relname = 'ready') THEN
        RAISE 'not ready';
    END IF;
    INSERT INTO summary SELECT batch, count(result) FROM queue_jobs.batch_results(batch);
END $$;
SELECT queue_jobs.define_worker('sums up', 'public.sum_up', max_retries => 0), queue_jobs.define_worker('by hand', keep_completed => '0');
SQL
sub batch_with_callback
{
	my $batch = $node->safe_psql('postgres', qq{SELECT queue_jobs.new_batch('$_[0]', on_success => 'sums up', keep => '0', open => true)});
	$node->safe_psql('postgres', qq{BEGIN; SELECT queue_jobs.enqueue('by hand', batch => $batch); SELECT queue_jobs.complete(id, attempt, '1') FROM queue_jobs.claim('me', '{by hand}'); SELECT queue_jobs.close_batch($batch); COMMIT});
	wait_until($node, qq{SELECT state = 'dead' FROM queue_jobs.job WHERE worker = 'sums up' AND args = '{"batch": $batch}'});
	wait_until($node, "SELECT settled_at IS NOT NULL FROM queue_jobs.tracked_batch WHERE id = $batch");
	return $batch;
}
my ($retried, $discarded) = map { batch_with_callback($_) } qw(retried discarded);
sub callback { return qq{SELECT id FROM queue_jobs.job WHERE worker = 'sums up' AND args = '{"batch": $_[0]}'} }
# A scheduler that starts removes what is over: an empty batch, for one that it need not keep.
sub trimmed
{
	wait_for_no_processes($node, 'postgres');
	my $empty = $node->safe_psql('postgres', q{SELECT queue_jobs.new_batch('over', keep => '0')});
	wait_until($node, "SELECT settled_at IS NOT NULL FROM queue_jobs.tracked_batch WHERE id = $empty UNION ALL SELECT true LIMIT 1");
	wait_for_no_processes($node, 'postgres');
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('kept')});
	wait_until($node, "SELECT count(*) = 0 FROM queue_jobs.tracked_batch WHERE id = $empty");
	return $node->safe_psql('postgres', "SELECT string_agg(name, ' ' ORDER BY name) FROM queue_jobs.batch WHERE id IN ($retried, $discarded)");
}
is(trimmed(), 'discarded retried', 'a batch stays whose callback may be retried');
$node->safe_psql('postgres', 'CREATE TABLE ready ()');
wait_for_job($node, $node->safe_psql('postgres', 'SELECT c.id FROM (' . callback($retried) . ') c, queue_jobs.retry(c.id)'), 'completed');
is($node->safe_psql('postgres', "SELECT jobs FROM summary WHERE batch = $retried"), '1', '… which then finds the results');
$node->safe_psql('postgres', q{DELETE FROM queue_jobs.dead_job WHERE id = (} . callback($discarded) . ')');
$node->safe_psql('postgres', q{UPDATE queue_jobs.tracked_batch SET settled_at = settled_at - interval '2 hours' WHERE settled_at IS NOT NULL});
is(trimmed(), '', 'when it is completed, or nothing is left of it, the batch goes');
my (undef, undef, $gone) = $node->psql('postgres', "SELECT * FROM queue_jobs.batch_results($retried)", extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($gone, qr/42704: batch $retried does not exist/, '… and has no results');

# … also where there are no jobs that a scheduler would be at work for.
wait_for_no_processes($node, 'postgres');
$node->safe_psql('postgres', q{SELECT queue_jobs.run_once('brief', 'SELECT 1', ttl => '1 s')});
wait_until($node, q{SELECT string_agg(token, ' ') = 'long' FROM queue_jobs.token});
pass('tokens have a scheduler come when they expire');

# What keeps history from being trimmed keeps nothing else from being done.
wait_for_no_processes($node, 'postgres');
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it stays'; END $$;
CREATE TRIGGER stay BEFORE DELETE ON queue_jobs.token FOR EACH ROW EXECUTE FUNCTION stay();
SELECT queue_jobs.run_once('stays', 'SELECT 1', ttl => '0');
SELECT queue_jobs.define_worker('filled', max_running_jobs => 1, remaining_work => $$SELECT '{}'::jsonb$$);
SQL
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'filled'});
$node->wait_for_log(qr/ERROR:  it stays/);
pass('work that is left gets its job beside history that cannot be trimmed');
$node->safe_psql('postgres', <<'SQL');
DROP TRIGGER stay ON queue_jobs.token;
DELETE FROM queue_jobs.token WHERE token = 'stays';
SELECT queue_jobs.drop_worker('filled');
SELECT queue_jobs.remove_jobs('filled');
SQL

# What another session has in a transaction that stays open is passed by.
# (After a restart, or a scheduler would come once more for what was removed.)
$node->restart;
wait_for_job($node, $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('kept')}), 'completed');
wait_for_no_processes($node, 'postgres');
# A scheduler that comes for what we write may be faster than the session, and remove both: then once more.
my $taken;
do
{
	$node->safe_psql('postgres', <<'SQL');
DELETE FROM queue_jobs.dead_job WHERE id IN (99991, 99992);
INSERT INTO queue_jobs.dead_job SELECT (jsonb_populate_record(d, jsonb_build_object('id', 99990 + i, 'keep_until', now() - interval '1 s'))).*
FROM queue_jobs.dead_job d, generate_series(1, 2) AS i WHERE id < 1000;
SELECT queue_jobs.run_once(t, 'SELECT 1') FROM unnest('{held,free}'::text[]) AS t;
UPDATE queue_jobs.token SET expires_at = now() WHERE token <> 'long';
SQL
	$session = in_background($node);
	$session->query(q{BEGIN; SELECT queue_jobs.retry(99991); SELECT queue_jobs.run_once('held', 'SELECT 1')});
	$taken = $node->safe_psql('postgres', q{SELECT EXISTS (SELECT FROM queue_jobs.dead_job WHERE id = 99991) AND EXISTS (SELECT FROM queue_jobs.token WHERE token = 'held')}) eq 't';
	if (!$taken)
	{
		$session->query('ROLLBACK');
		$session->quit;
	}
} until $taken;
wait_for_no_processes($node, 'postgres');
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('kept')});
wait_until($node, q{SELECT string_agg(token, ' ' ORDER BY token) = 'held long' FROM queue_jobs.token});
wait_until($node, 'SELECT NOT EXISTS (SELECT FROM queue_jobs.dead_job WHERE id = 99992)');
is($node->safe_psql('postgres', 'SELECT id FROM queue_jobs.dead_job WHERE id IN (99991, 99992)'), '99991', 'what is locked is not waited for');
$session->query('COMMIT');
$session->quit;
is($node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.dead_job WHERE id = 99991 AND keep_until <= now()'), '0', '… and was taken');
is(log_count($node, ' scheduler  (?:ERROR:  (?!it stays)|WARNING)'), 0, 'and no other error');

# Without a scheduler, who waits for jobs does it.
$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
$node->safe_psql('postgres', q{UPDATE queue_jobs.token SET expires_at = now()});
$session = in_background($node);
fill_partitions($session, -1, 0);
is($session->query('SELECT EXISTS (SELECT FROM ' . partition(-1) . ') AND EXISTS (SELECT FROM ' . partition(0) . ' WHERE id > 900)'), 't', 'rows in them again');
$session->quit;
$node->safe_psql('postgres', q{CALL queue_jobs.wait_for_jobs(timeout => '0')});
is($node->safe_psql('postgres', 'SELECT NOT EXISTS (SELECT FROM ' . partition(-1) . ') OR NOT EXISTS (SELECT FROM ' . partition(0) . ' WHERE id > 900)'), 't',
	'not preloaded: wait_for_jobs() empties the partition of the period just over');
is($node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.token'), '0', '… and removes what has expired');
$node->stop;
done_testing();
