# Workers through releases, and what is written of their runs: the log's lines, versions and parameters that change while
# jobs wait, contexts that flow on, queues that are migrated under load.
use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('workers', conf => "queue_jobs.log_jobs = 'all'\nmax_connections = 50");

# The lines of one worker's runs, decoded; waits until there are so many.
sub run_lines
{
	my ($worker, $count) = @_;
	my @lines;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		@lines = grep { $_->{worker} eq $worker }
		  map { decode_json($_) } slurp_file($node->logfile) =~ /LOG:  (\{"worker": .*\})$/mg;
		return @lines if @lines >= $count;
		select undef, undef, undef, 0.1;
	}
	die "gave up waiting for $count lines of $worker\n";
}

# ---- log ----

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION logged(n int, sleep float DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(sleep);
	IF n = 2 THEN
		RAISE EXCEPTION 'two';
	END IF;
END
$$;
CREATE PROCEDURE logged_too(args jsonb) LANGUAGE plpgsql AS $$BEGIN COMMIT; END$$;
SELECT queue_jobs.define_worker('logged', 'public.logged', namespace => 'log', max_retries => 0, loggable_args => '{plan,"tag list"}');
SELECT queue_jobs.define_worker('logged too', 'public.logged_too');
SELECT queue_jobs.enqueue('logged', '{"n": 1, "sleep": 0.2, "password": "secret", "plan": "gold", "tag list": ["a", {"b": "c"}],
	"nested": {"n": 3}, "list": [4], "yes": true, "nothing": null, "big": 12345678901234567890.5}', context => '{"request": "r-1"}');
SELECT queue_jobs.enqueue('logged', '{"n": 2}');
SELECT queue_jobs.enqueue('logged too', '"secret"');
SQL
my ($one, $two) = sort { $a->{args}{n} <=> $b->{args}{n} } run_lines('logged', 2);
is_deeply([ sort keys %$one ], [ sort qw(worker queue id attempt status queueing_s run_s cpu_s read_from context args) ], 'a run is a line of JSON');
is("$one->{queue} $one->{attempt} $one->{status}", 'log:logged 1 completed', '… queue, attempt and status');
is($one->{id}, $node->safe_psql('postgres', q{SELECT id FROM queue_jobs.job WHERE args->>'n' = '1'}), '… id');
ok($one->{run_s} >= 0.2 && $one->{run_s} < 60 && $one->{cpu_s} < $one->{run_s} && $one->{queueing_s} >= 0, '… times');
is_deeply($one->{context}, { request => 'r-1' }, '… context');
is_deeply([ sort keys %{ $one->{args} } ], [ sort 'n', 'sleep', 'plan', 'tag list', 'big' ], '… of the args numbers and what is declared');
is_deeply($one->{args}{'tag list'}, [ 'a', { b => 'c' } ], '… whole');
is("$two->{status} $two->{sqlstate} $two->{error}", 'dead P0001 two', 'a failure has its SQLSTATE and message');
ok(!exists $two->{context}, '… and no context if there was none');
my ($too) = run_lines('logged too', 1);
is("$too->{status} " . (exists $too->{args} ? 'args' : 'no args'), 'completed no args', 'so is a procedure; args that are no object are not logged');
is(log_count($node, qr/\{"worker".*secret/), 0, 'nothing else of the args is in the log');

$node->append_conf('postgresql.conf', "queue_jobs.log_jobs = 'failures'");
$node->reload;
is($node->safe_psql('postgres', q{SELECT boot_val FROM pg_settings WHERE name = 'queue_jobs.log_jobs'}), 'failures', 'failures are logged by default');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('gets off', 'public.logged', max_retries => 0)});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gets off', '{"n": 1}')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'gets off' AND state = 'completed'});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gets off', '{"n": 2}')});
is(join(' ', map { $_->{status} } run_lines('gets off', 1)), 'dead', 'failures only, if they are asked for');
my ($shown) = run_lines('gets off', 1);
is_deeply([ sort grep { $_ ne 'cpu_s' } keys %$shown ], [ sort qw(worker queue id attempt status queueing_s run_s read_from args sqlstate error) ], '... with all that is known of the run');

# Jobs that die outside of an executor's run: failed by their claimant, or with a lease that has run out.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('claimed', max_retries => 0, loggable_args => '{plan}');
SELECT queue_jobs.enqueue('claimed', '{"n": 1, "plan": "gold", "password": "secret"}'), queue_jobs.enqueue('claimed', '{"n": 2}'), queue_jobs.discard(queue_jobs.enqueue('claimed', '{"n": 3}'));
SELECT queue_jobs.fail(id, attempt, 'no luck', 'secret stack') FROM queue_jobs.claim('a claimant', '{claimed}');
SELECT id FROM queue_jobs.claim('a claimant', '{claimed}', lease => '1 ms');
SQL
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'claimed' AND state = 'dead'},
	meanwhile => sub { $node->safe_psql('postgres', q{SELECT queue_jobs.claim('another', '{claimed}')}) });
my @died = map { delete $_->{id}; $_ } run_lines('claimed', 2);
is_deeply(\@died, [
		{ worker => 'claimed', queue => 'claimed', attempt => 1, status => 'dead', args => { n => 1, plan => 'gold' }, sqlstate => '', error => 'no luck' },
		{ worker => 'claimed', queue => 'claimed', attempt => 1, status => 'dead', args => { n => 2 }, sqlstate => 'QJ001', error => 'lease of claimant "a claimant" ran out' }],
	'a claimant\'s jobs that die have a line, too; a job that is discarded has none');
is(log_count($node, qr/\{"worker".*secret/), 0, '... without what is not to be logged');
$node->append_conf('postgresql.conf', "queue_jobs.log_jobs = 'none'");
$node->reload;

# ---- releases ----

# Jobs wait while the handler gains and loses parameters, and the worker its definition.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE called (release int, version int, args jsonb, got text);
CREATE FUNCTION release(id int, old_name text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO called SELECT 1, version, args, old_name FROM queue_jobs.current_job()
$$;
SELECT queue_jobs.define_worker('release', 'public.release', version => 1);
SELECT queue_jobs.pause('release');
SELECT queue_jobs.enqueue('release', '{"id": 1, "old_name": "x"}');
DROP FUNCTION release;
CREATE FUNCTION release(id int, new_name text DEFAULT 'default') RETURNS void LANGUAGE sql AS $$
	INSERT INTO called SELECT 2, version, args, new_name FROM queue_jobs.current_job()
$$;
SELECT queue_jobs.define_worker('release', 'public.release', version => 2);
SELECT queue_jobs.enqueue('release', '{"id": 2, "new_name": "y"}');
SELECT queue_jobs.resume('release');
SQL
wait_until($node, 'SELECT count(*) = 2 FROM called');
is($node->safe_psql('postgres', 'SELECT release, version, args->>\'id\', got FROM called ORDER BY version'),
	"2|1|1|default\n2|2|2|y", 'jobs of an old version run, without the parameters that are gone, and with defaults for new ones');

# While executors run them, the handler is replaced by one with another parameter.
$node->safe_psql('postgres', <<'SQL');
TRUNCATE called;
SELECT count(*) FROM queue_jobs.enqueue_many('release', ARRAY(SELECT jsonb_build_object('id', i) FROM generate_series(1, 3000) i));
BEGIN;
DROP FUNCTION release;
CREATE FUNCTION release(id int, third text DEFAULT 'third') RETURNS void LANGUAGE sql AS $$
	INSERT INTO called SELECT 3, version, args, third FROM queue_jobs.current_job()
$$;
COMMIT;
SQL
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'release' AND state IN ('available', 'executing')});
is($node->safe_psql('postgres', q{SELECT state, count(*) FROM queue_jobs.job WHERE worker = 'release' GROUP BY state}),
	'completed|3002', 'a handler can be replaced while its jobs run');

# Between an executor's look at the handler and the call, which a lock on the record holds up until another has replaced
# it: nothing is charged, and the new one is called. Gone for good, the job waits.
$node->safe_psql('postgres', 'CREATE TABLE held (id int PRIMARY KEY); INSERT INTO held VALUES (1)');
my $session = in_background($node);
foreach my $kind ('function', 'procedure')
{
	my $returns = $kind eq 'function' ? 'RETURNS void' : '';
	my $create = "CREATE $kind hold(id int, number int DEFAULT 1) $returns LANGUAGE sql AS 'INSERT INTO called VALUES (number)'";

	foreach my $then ($create, '')
	{
		$node->safe_psql('postgres', "TRUNCATE called;
			CREATE $kind hold(id int) $returns LANGUAGE sql AS 'INSERT INTO called VALUES (0)';
			SELECT queue_jobs.define_worker('hold', 'public.hold', record => 'held', record_key => 'id', pending => 'true', lock_timeout => '1 hour')");
		$session->query('BEGIN; LOCK held');
		my $job = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('hold', '{"id": 1}')});
		wait_until($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'held'::regclass AND NOT granted)});
		$session->query("DROP $kind hold; $then; COMMIT");
		if (!$then)
		{
			wait_until($node, "SELECT state = 'available' AND waits_for ~ 'hold' FROM queue_jobs.job WHERE id = $job");
			$node->safe_psql('postgres', $create);
		}
		wait_until($node, "SELECT state NOT IN ('available', 'executing') FROM queue_jobs.job WHERE id = $job");
		is($node->safe_psql('postgres', "SELECT state, attempt, errors, (SELECT array_agg(release) FROM called) FROM queue_jobs.job WHERE id = $job"),
			'completed|1||{1}', "a $kind is " . ($then ? 'replaced' : 'dropped') . ' just before its call');
		$node->safe_psql('postgres', "DROP $kind hold");
	}
}
$session->quit;

# A worker of a later release: its jobs wait for it. (Enqueued by another server, or before it was dropped.)
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('later', version => 7);
SELECT queue_jobs.enqueue('later');
SELECT queue_jobs.drop_worker('later');
SQL
is($node->safe_psql('postgres', q{SELECT state, waits_for FROM queue_jobs.job WHERE worker = 'later'}),
	'available|worker "later" is not defined', 'jobs of an unknown worker wait');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('later', 'public.logged_too', version => 8)});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'later' AND state = 'completed' AND version = 7});
pass('… and run when it is defined');

# What a job waits for is noticed when it comes, also if it comes from another database, and not a minute later; though nothing
# else happens, not even an executor's leaving.
$node->append_conf('postgresql.conf', "queue_jobs.idle_timeout = '200ms'");
$node->reload;
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE waits LOGIN;
GRANT queue_jobs_enqueue TO waits;
CREATE FUNCTION comes() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('comes', 'public.comes');
SQL
foreach my $case (
	[ 'DROP FUNCTION comes()', q{CREATE FUNCTION comes() RETURNS void LANGUAGE sql AS ''}, 'postgres', 'its function' ],
	[ 'ALTER FUNCTION comes RENAME TO goes', 'ALTER FUNCTION goes RENAME TO comes', 'postgres', 'its name' ],
	[ 'ALTER ROLE waits NOLOGIN', 'ALTER ROLE waits LOGIN', 'template1', 'its role' ])
{
	my ($away, $back, $database, $what) = @$case;

	$node->safe_psql('postgres', $away);
	my $job = $node->safe_psql('postgres', q{SET ROLE waits; SELECT queue_jobs.enqueue('comes')});
	wait_until($node, "SELECT waits_for IS NOT NULL FROM queue_jobs.job WHERE id = $job");
	wait_until($node, q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor')});
	$node->safe_psql($database, $back);
	my $since = time;
	wait_for_job($node, $job, 'completed');
	cmp_ok(time - $since, '<', 55, "a job goes on when $what comes back");
}
$node->append_conf('postgresql.conf', "queue_jobs.idle_timeout = '4s'");
$node->reload;

# remove_jobs() comes to its end though more are enqueued all the time.
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('flows');
CREATE PROCEDURE flow() LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'enough is enough') LOOP
		PERFORM queue_jobs.enqueue('flows');
		COMMIT;
	END LOOP;
END
$$;
SQL
my @flows = map { in_background($node) } 1 .. 3;
$_->send('CALL flow()') foreach @flows;
wait_until($node, q{SELECT count(*) > 1000 FROM queue_jobs.job WHERE worker = 'flows'});
cmp_ok($node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('flows')}), '>', 1000, 'remove_jobs() ends while more jobs come');
$node->safe_psql('postgres', 'CREATE TABLE "enough is enough" ()');
$_->result foreach @flows;
$_->quit foreach @flows;
$node->safe_psql('postgres', q{SELECT queue_jobs.remove_jobs('flows')});

# ---- contexts ----

# Of jobs enqueued in bulk, each with its own, into those that they enqueue, singly and in bulk; a retry has it, too.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION passes_on(n int, depth int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF depth = 2 AND (SELECT attempt FROM queue_jobs.current_job()) = 1 THEN
		PERFORM queue_jobs.retry_in('10 ms');
		RAISE EXCEPTION 'once';
	ELSIF depth > 0 THEN
		PERFORM queue_jobs.enqueue('passes on', jsonb_build_object('n', n, 'depth', depth - 1));
		PERFORM queue_jobs.enqueue_many('passes on', ARRAY[jsonb_build_object('n', n, 'depth', 0)], delay => '10 ms');
	END IF;
END
$$;
SELECT queue_jobs.define_worker('passes on', 'public.passes_on');
SET queue_jobs.context = '{"of": "the session"}';
SELECT count(*) FROM queue_jobs.enqueue_many('passes on', ARRAY(SELECT jsonb_build_object('n', i, 'depth', 2) FROM generate_series(1, 10) i),
	contexts => ARRAY(SELECT CASE WHEN i < 10 THEN jsonb_build_object('request', i) END FROM generate_series(1, 10) i),
	batch_size => 3, batch_interval => '20 ms');
SQL
wait_until($node, q{SELECT count(*) = 50 FROM queue_jobs.job WHERE worker = 'passes on' AND state = 'completed'});
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE context = jsonb_build_object('request', (args->>'n')::int)),
		count(*) FILTER (WHERE context IS NULL AND args->>'n' = '10') FROM queue_jobs.job WHERE worker = 'passes on'}),
	'45|5', 'the context of each goes on to the jobs that it enqueues, and to its retry');

# ---- migrate_queue() ----

# The order of what waits: one executor, and a queue that is opened when all have been moved.
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors_per_database = 1');
$node->reload;
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE turn;
CREATE TABLE ran (id bigint, queue text, turn bigint DEFAULT nextval('turn'));
CREATE FUNCTION take_turn() RETURNS void LANGUAGE sql AS $$INSERT INTO ran SELECT id, queue FROM queue_jobs.current_job()$$;
SELECT queue_jobs.define_worker('ordered', 'public.take_turn', queue => 'first');
SELECT queue_jobs.pause('first'), queue_jobs.pause('second');
CREATE TABLE enqueued AS SELECT queue_jobs.enqueue('ordered', priority => i % 3, delay => CASE WHEN i % 4 = 0 THEN interval '1 ms' END) AS id, i % 3 AS priority
	FROM generate_series(1, 3000) i;
SQL
my $moved = 0;
for (1 .. 1000)
{
	$moved += $node->safe_psql('postgres', q{SELECT queue_jobs.migrate_queue('first', 'second')});
	last if $moved >= 3000;
}
is($moved, 3000, 'all jobs are moved, also while some fall due');
is($node->safe_psql('postgres', q{SELECT DISTINCT queue FROM queue_jobs.job WHERE worker = 'ordered'}), 'second', '… to the other queue');
wait_until($node, q{SELECT count(*) = 3000 AND bool_and(j.due) FROM queue_jobs.live_job j JOIN queue_jobs.lane l ON l.id = j.lane WHERE l.worker = 'ordered'});
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('second')});
wait_until($node, 'SELECT count(*) = 3000 FROM ran');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY turn) AS ran, row_number() OVER (ORDER BY priority, id) AS due
		FROM ran JOIN enqueued USING (id)) o WHERE ran <> due}), '0', '… and run in their order, with their ids');
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('first')});

# Under load: sessions enqueue the same keys, executors run them, claimants take others, and the jobs go from one queue to
# the other and back, with the routing. None is lost or run twice, and a run after the last change of a key has seen it.
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors_per_database = 4');
$node->reload;
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE wanted (key int PRIMARY KEY, value int NOT NULL);
INSERT INTO wanted SELECT i, 0 FROM generate_series(1, 20) i;
CREATE TABLE seen (key int, value int);
CREATE FUNCTION see(key int) RETURNS void LANGUAGE sql AS $$INSERT INTO seen SELECT w.key, w.value FROM wanted w WHERE w.key = see.key$$;
CREATE TABLE single_ran (id bigint);
CREATE FUNCTION single() RETURNS void LANGUAGE sql AS $$INSERT INTO single_ran SELECT id FROM queue_jobs.current_job()$$;
SELECT queue_jobs.define_worker('see', 'public.see', queue => 'here', idempotent => true);
SELECT queue_jobs.define_worker('single', 'public.single', queue => 'here');
SELECT queue_jobs.define_worker('outside', queue => 'here');
CREATE TABLE outside_ran (id bigint);
CREATE PROCEDURE produce(first int, times int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..times LOOP
		UPDATE wanted SET value = value + 1 WHERE key = first + i % 5;
		PERFORM queue_jobs.enqueue('see', jsonb_build_object('key', first + i % 5)), queue_jobs.enqueue('single'), queue_jobs.enqueue('outside'),
			queue_jobs.enqueue('single', queue => 'here');
		COMMIT;
	END LOOP;
END
$$;
CREATE PROCEDURE consume(jobs int) LANGUAGE plpgsql AS $$
DECLARE
	job record;
BEGIN
	LOOP
		SELECT * INTO job FROM queue_jobs.claim('consumer ' || pg_backend_pid(), ARRAY['here', 'there']);
		IF job.id IS NOT NULL THEN
			INSERT INTO outside_ran VALUES (job.id);
			PERFORM queue_jobs.complete(job.id, job.attempt);
		END IF;
		COMMIT;
		EXIT WHEN (SELECT count(*) FROM outside_ran) >= jobs;
	END LOOP;
END
$$;
SQL
my $times = 300;
my @producers = map { in_background($node) } 1 .. 4;
my @consumers = map { in_background($node) } 1 .. 2;
my $mover = in_background($node);
$producers[$_]->send("CALL produce(" . (5 * $_ + 1) . ", $times)") foreach 0 .. 3;
my @moved = (0, 0);
my $rounds = 0;
my $consuming = 0;

# (Who claims comes when jobs have been moved there and back: all could be done before a fast machine has moved any.)
until ($consuming && 0 == grep { !$_->ended } @producers)
{
	$mover->query(q{SELECT queue_jobs.set_routing('[["*", "there"]]')});
	$moved[0] += $mover->query(q{SELECT queue_jobs.migrate_queue('here', 'there')});
	$mover->query(q{SELECT queue_jobs.set_routing('[["*", ""]]')});
	$moved[1] += $mover->query(q{SELECT queue_jobs.migrate_queue('there', 'here')});
	$rounds++;
	next if $consuming || $moved[0] == 0 || $moved[1] == 0;
	$_->send('CALL consume(' . 4 * $times . ')') foreach @consumers;
	$consuming = 1;
}
$_->result foreach @producers, @consumers;
is(join('', map { $_->error } @producers, @consumers), '', 'under load: no errors');
note("$rounds rounds moved @moved jobs");
ok($moved[0] > 0 && $moved[1] > 0, '… jobs were moved');
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker IN ('see', 'single', 'outside') AND state IN ('available', 'executing', 'retryable')});
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM single_ran'), join('|', (8 * $times) x 2), '… each job ran once');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM outside_ran'), join('|', (4 * $times) x 2), '… or was claimed once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM wanted w WHERE value <> (SELECT max(value) FROM seen s WHERE s.key = w.key)'),
	'0', '… and no update was lost');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE state = 'dead' AND worker IN ('see', 'single', 'outside')}), '0', '… nothing failed');

$node->stop;
done_testing();
