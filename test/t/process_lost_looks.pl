# Batches end and waiting jobs go on though a look of the scheduler finds a row locked, fails, or is cut off by the scheduler's end; though what
# happened since was retried; and though what was known of jobs is gone. A job that is held stays held, also when its parent is kept no longer.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('looks', conf => "autovacuum = off\nqueue_jobs.idle_timeout = '10min'");
my $scheduler = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'postgres')};

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

sql(<<'SQL');
CREATE TABLE called (worker text, batch bigint);
CREATE FUNCTION call_back(batch bigint) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.called SELECT worker, $1 FROM queue_jobs.current_job() $$;
CREATE FUNCTION nothing(n int DEFAULT 0) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker(w, h) FROM (VALUES ('ended', 'public.call_back'), ('succeeded', 'public.call_back'), ('died', 'public.call_back'),
	('step', 'public.nothing')) AS d (w, h);
SELECT queue_jobs.define_worker('hand', max_retries => 0);
CREATE FUNCTION make_batch(members int, worker text DEFAULT 'hand') RETURNS bigint LANGUAGE sql AS $$
	WITH b AS MATERIALIZED (SELECT queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended', on_dead => 'died') AS id),
	     m AS MATERIALIZED (SELECT count(queue_jobs.enqueue($2, jsonb_build_object('n', n), batch => b.id)) FROM b, generate_series(1, $1) n)
	SELECT id FROM b, m
$$;
SQL

# Returns when the scheduler has looked at all that it was told of before: news is looked at in order.
sub looked
{
	my $batch = sql(q{SELECT make_batch(1, 'step')});

	wait_until($node, "SELECT count(*) = 2 FROM called WHERE batch = $batch");
}

sub end_one
{
	my ($how) = @_;

	return sql("SELECT queue_jobs.$how FROM queue_jobs.claim('me', '{hand}')");
}

# Everything is looked at: it is not known what a prepared transaction has done.
sub lose_news
{
	sql(q{BEGIN; PREPARE TRANSACTION 'any'; COMMIT PREPARED 'any'});
}

sub completes { return end_one('complete(id, attempt)') }
sub dies { return end_one(q{fail(id, attempt, 'broken', final => true)}) }

sub callbacks
{
	my ($batch) = @_;

	return sql("SELECT string_agg(worker, ' ' ORDER BY worker) FROM called WHERE batch = $batch");
}

sub is_called
{
	my ($name, $batch, $workers) = @_;

	wait_until($node, "SELECT string_agg(worker, ' ' ORDER BY worker) = '$workers' FROM called WHERE batch = $batch");
	is(callbacks($batch), $workers, $name);
}

# ---- the batch's row is locked ----

my $batch = sql('SELECT make_batch(2)');
my $adds = QueueJobs::Session->new($node);
$adds->query("BEGIN; SELECT queue_jobs.enqueue('hand', '{\"n\": 3}', batch => $batch)");
dies();
looked();
is(callbacks($batch), '', 'a member dies, and a transaction that has added another has the row');
$adds->query('ROLLBACK');
is_called('it is found once that one has been rolled back', $batch, 'died');
completes();
is_called('and so is the end', $batch, 'died ended');

# A transaction has added a member, in the savepoint or itself, when the last one ends; the batch ends with what has the row.
sub ends_with
{
	my ($name, $undo) = @_;

	$batch = sql('SELECT make_batch(1)');
	$adds->query("BEGIN; SELECT FROM queue_jobs.batch; SAVEPOINT a; SELECT queue_jobs.enqueue('hand', '{\"n\": 2}', batch => $batch)");
	completes();
	looked();
	is(callbacks($batch), '', "a member ends, while a transaction has the row that has added another: $name");
	$undo->();
	is_called('the batch ends at once', $batch, 'ended succeeded');
}

ends_with('it is rolled back to the savepoint, and goes on', sub { $adds->query('ROLLBACK TO a') });
$adds->query('COMMIT');
ends_with('a savepoint around that one is rolled back', sub { $adds->query('RELEASE a; ROLLBACK') });
ends_with('it is prepared, and rolled back', sub { $adds->query("PREPARE TRANSACTION 'adds'; ROLLBACK PREPARED 'adds'") });
ends_with('its session is terminated', sub {
	sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'idle in transaction'});
	eval { $adds->quit };
	$adds = QueueJobs::Session->new($node);
});

# ---- a dead member goes on before the look ----

# A batch of two members, of which the first dies while a transaction has the row; then the statements run, and that transaction ends.
sub dies_and
{
	my (%opts) = @_;

	$batch = sql('SELECT make_batch(2)');
	$adds->query("BEGIN; SELECT queue_jobs.enqueue('hand', '{\"n\": 3}', batch => $batch)");
	dies();
	looked();

	my $job = sql("SELECT id FROM queue_jobs.job WHERE batch = $batch AND state = 'dead'");
	is(sql($opts{retry} =~ s/JOB/$job/r), $opts{says}, "$opts{name}: the member is retried") if $opts{retry};
	$opts{meanwhile}->($job) if $opts{meanwhile};
	$adds->query('ROLLBACK');
	return $job;
}

sub is_told
{
	my ($name, $job) = @_;

	is_called($name, $batch, 'died');
	is(sql("SELECT dead_job FROM queue_jobs.tracked_batch WHERE id = $batch"), $job, 'of that member');
	completes() for 1 .. 2;
	is_called('and the batch ends with success', $batch, 'died ended succeeded');
}

for my $retry ([ 'retry()', 'SELECT queue_jobs.retry(JOB)', 't' ], [ 'retry_batch()', 'SELECT queue_jobs.retry_batch((SELECT batch FROM queue_jobs.job WHERE id = JOB))', 1 ],
	[ 'retry_jobs()', q{SELECT queue_jobs.retry_jobs('hand', states => '{dead}', batch => (SELECT batch FROM queue_jobs.job WHERE id = JOB))}, 1 ])
{
	my $job = dies_and(name => $retry->[0], retry => $retry->[1], says => $retry->[2]);

	is_told("$retry->[0]: on_dead comes though the member lives again", $job);
}

my $retries = QueueJobs::Session->new($node);
my $job = dies_and(meanwhile => sub { $retries->query("BEGIN; SAVEPOINT a; SELECT queue_jobs.retry($_[0]); ROLLBACK TO a") });
is_called('a retry is rolled back to a savepoint: on_dead comes at once', $batch, 'died');
$retries->query('ROLLBACK');
completes();
is_called('and the batch ends', $batch, 'died ended');

$job = dies_and(meanwhile => sub { $retries->query("BEGIN; SELECT queue_jobs.retry($_[0])") });
is_called('a retry that is not committed keeps on_dead from nothing', $batch, 'died');
$retries->query('ROLLBACK');
completes();
is_called('it is rolled back, and the batch ends', $batch, 'died ended');

$job = dies_and(meanwhile => sub { $retries->query("BEGIN; SELECT queue_jobs.retry($_[0]); PREPARE TRANSACTION 'retries'") });
$retries->query("COMMIT PREPARED 'retries'");
is_told('a retry is prepared: on_dead comes with its commit', $job);

# What has never been committed has never been.
$batch = sql('SELECT make_batch(1)');
sql("BEGIN; SAVEPOINT a; SELECT queue_jobs.discard_jobs(batch => $batch); RELEASE a; SELECT queue_jobs.retry_batch($batch);"
	. " SELECT queue_jobs.discard_jobs(batch => $batch); SELECT queue_jobs.retry_jobs(batch => $batch); COMMIT");
completes();
is_called('a member that dies and is retried in one transaction has not died', $batch, 'ended succeeded');

# A parent, and a batch that a duplicate has joined.
sql(q{SELECT queue_jobs.define_worker('once', max_retries => 0, idempotent => true)});
my $joint = sql(q{SELECT queue_jobs.new_batch(on_dead => 'died', open => true)});
my $above = sql(q{SELECT queue_jobs.new_batch(on_dead => 'died', open => true)});
$batch = sql(qq{SELECT queue_jobs.new_batch(on_dead => 'died', open => true, parent => $above)});
sql("SELECT queue_jobs.enqueue('once', batch => b) FROM unnest('{$batch,$joint}'::bigint[]) b");
$adds->query("BEGIN; SELECT queue_jobs.enqueue('hand', '{}', batch => b) FROM unnest('{$batch,$joint,$above}'::bigint[]) b");
sql(q{SELECT queue_jobs.fail(id, attempt, 'broken', final => true) FROM queue_jobs.claim('me', '{once}')});
is(sql(q{SELECT queue_jobs.retry_jobs('once')}), 1, 'a member of two batches is retried');
$adds->query('ROLLBACK');
is_called('on_dead comes', $batch, 'died');
is_called('and that of the batch which a duplicate has joined', $joint, 'died');
is_called('and that of the parent', $above, 'died');
sql(q{SELECT queue_jobs.cancel_jobs('once')});
$retries->quit;

# ---- the scheduler ends ----

my $parent = sql(q{SELECT queue_jobs.enqueue('hand', '{"parent": 1}')});
my $child = sql("SELECT queue_jobs.enqueue('step', after => ARRAY[$parent]::bigint[])");
$adds->query("BEGIN; SELECT FROM queue_jobs.live_job WHERE id = $child FOR UPDATE");
completes();
looked();
my $old = sql("SELECT $scheduler");
sql("SELECT pg_terminate_backend($old)");
wait_until($node, "SELECT $scheduler <> $old");
$adds->query('COMMIT');
wait_until($node, "SELECT state = 'completed' FROM queue_jobs.job WHERE id = $child");
pass('a job whose row was locked when its parent ended goes on under the next scheduler');

# While the scheduler waits for a lock many batches end; it is terminated with what it has taken of that.
$batch = sql('SELECT max(b) FROM (SELECT make_batch(1) AS b FROM generate_series(1, 300)) s');
$adds->query('BEGIN; LOCK TABLE queue_jobs.tracked_batch');
sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('me', '{hand}', 1000)});
wait_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $scheduler AND NOT granted");
$old = sql("SELECT $scheduler");
sql("SELECT pg_terminate_backend($old)");
wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $old");
$adds->query('COMMIT');
wait_until($node, "SELECT count(*) = 300 FROM called WHERE worker = 'succeeded' AND batch > $batch - 300 AND batch <= $batch");
is(sql("SELECT count(DISTINCT batch) FROM called WHERE worker = 'succeeded' AND batch > $batch - 300 AND batch <= $batch"), 300,
	'news that a scheduler had taken when it was terminated is not lost');

# ---- a look fails ----

$batch = sql('SELECT make_batch(1)');
$adds->query('BEGIN; LOCK TABLE queue_jobs.tracked_batch');
completes();
wait_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $scheduler AND NOT granted");
sql("SELECT pg_cancel_backend($scheduler)");
$adds->query('COMMIT');
is_called('a look that was cancelled is made again', $batch, 'ended succeeded');

# A full disk, as an index on jobs has it: the first callback that is inserted meets it.
sql(<<'SQL');
CREATE TABLE told (args jsonb);
CREATE FUNCTION hear(args jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.told SELECT args $$;
SELECT queue_jobs.define_worker('hears', 'public.hear');
CREATE SEQUENCE public.inserted;
CREATE FUNCTION insert_once(args jsonb) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF args ? 'mark' AND args ? 'batch' AND nextval('public.inserted') = 1 THEN
		RAISE 'no space left' USING ERRCODE = 'disk_full';
	END IF;
	RETURN 1;
END $$;
CREATE INDEX full_disk ON queue_jobs.live_job (public.insert_once(args));
SQL
$batch = sql(q{SELECT queue_jobs.new_batch(on_ended => 'hears', args => jsonb_build_object('mark', repeat('x', 20000)))});
wait_until($node, 'SELECT count(*) = 1 FROM told');
is(sql(q{SELECT length(args ->> 'mark') || ' ' || (args ->> 'batch') FROM told}), "20000 $batch", 'a look that meets a full disk is made again, and the callback has all its args');
cmp_ok(sql('SELECT last_value FROM inserted'), '>=', 2, 'which was met');
sql('DROP INDEX queue_jobs.full_disk');

$parent = sql(q{SELECT queue_jobs.enqueue('hand', '{"parent": 2}')});
$child = sql("SELECT queue_jobs.enqueue('step', after => ARRAY[$parent]::bigint[])");
looked();
$adds->query('BEGIN; LOCK TABLE queue_jobs.dependency');
lose_news();
wait_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $scheduler AND NOT granted");
sql("SELECT pg_cancel_backend($scheduler)");
$adds->query('COMMIT');
completes();
wait_until($node, "SELECT state = 'completed' FROM queue_jobs.job WHERE id = $child");
pass('jobs are waited for though the query for them was cancelled');

# ---- retried, and then forgotten ----

$batch = sql('SELECT make_batch(1)');
dies();
is_called('a batch ends without success', $batch, 'died ended');
wait_until($node, "SELECT settled_at IS NOT NULL FROM queue_jobs.tracked_batch WHERE id = $batch");
$adds->quit;
my $pid = stop_scheduler($node);
sql("SELECT queue_jobs.retry_batch($batch)");
completes();
$node->stop('immediate');
$node->start;
is_called('and succeeds, though the scheduler has not seen its member alive again', $batch, 'died ended succeeded');

my $workflow = sql(q{SELECT max(job) FROM queue_jobs.enqueue_workflow('w', '[{"step": "hand", "worker": "hand"}, {"step": "next", "worker": "step", "after": ["hand"]}]')});
$batch = sql("SELECT batch FROM queue_jobs.job WHERE id = $workflow");
sql("SELECT queue_jobs.cancel_batch($batch)");
$node->restart;
sql("SELECT queue_jobs.retry_batch($batch)");
completes();
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $batch");
pass('steps that are retried after a restart are watched again');

# ---- many parents ----

my $parents = sql(q{SELECT string_agg(queue_jobs.enqueue('hand', queue => 'later')::text, ',') FROM generate_series(1, 6)});
$parent = sql(q{SELECT queue_jobs.enqueue('hand')});
$child = sql("SELECT queue_jobs.enqueue('step', after => ARRAY[$parents,$parent]::bigint[], if_dead => 'cancel')");
looked();
sql(q{SELECT queue_jobs.fail(id, attempt, 'broken', final => true) FROM queue_jobs.claim('me', '{queue=hand}')});
wait_until($node, "SELECT state = 'cancelled' FROM queue_jobs.job WHERE id = $child");
pass('the first death of many parents cancels the child');

# ---- a parent that is kept no longer ----

sql(q{SELECT queue_jobs.define_worker('dead', max_retries => 0)});
$parent = sql(q{SELECT queue_jobs.enqueue('dead')});
sql(q{SELECT queue_jobs.fail(id, attempt, 'broken', final => true) FROM queue_jobs.claim('me', '{dead}')});
$child = sql("SELECT queue_jobs.enqueue('step', after => ARRAY[$parent]::bigint[])");
is(sql(q{SELECT queue_jobs.forget_jobs('dead', dry_run => true) || ' ' || queue_jobs.forget_jobs('dead')}), '0 0', 'a dead job that holds another is not forgotten');
sql("DELETE FROM queue_jobs.finished_job WHERE id = $parent");
lose_news();
looked();
is(sql("SELECT state FROM queue_jobs.job WHERE id = $child"), 'waiting', 'and holds it also when it is gone');
like(sql("SELECT string_agg(detail, '') FROM queue_jobs.explain_job($child)"), qr/it waits for job $parent, which is kept no longer, and had failed/, 'which says so');

# ---- a job that is not kept ----

sql(q{SELECT queue_jobs.define_worker('unkept', keep_completed => '0')});
my $unkept = sql(q{SELECT queue_jobs.enqueue('unkept')});
my $waits = QueueJobs::Session->new($node);
$waits->send("CALL queue_jobs.await_job($unkept, '3 min')");
wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.await_job%' AND wait_event_type = 'Extension'});
sql(q{SELECT queue_jobs.complete(id, attempt, '7') FROM queue_jobs.claim('me', '{unkept}')});
is($waits->result, 'completed|7|', 'a session that waits for it is told how it has ended');
is(sql("SELECT count(*) FROM queue_jobs.job WHERE id = $unkept"), 0, 'though it is shown no more');

$waits->quit;
$node->stop;
done_testing();
