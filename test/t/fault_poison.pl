# Poison: jobs that do to their executor what they can. Each harms its own job only; three crashes make it dead; and the
# job after it, in the only executor there is, finds the session as a new one would be.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('poison', conf => <<'CONF');
restart_after_crash = on
queue_jobs.max_executors_per_database = 1
CONF

# What is left of other jobs in the session of the one that asks, beside its own; "left" is {} in a new session.
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE other SUPERUSER LOGIN;
CREATE SEQUENCE runs;
CREATE SEQUENCE counter;
CREATE TABLE victim (id int PRIMARY KEY, parent int REFERENCES victim DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE settings_at_first AS SELECT name, setting FROM pg_settings LIMIT 0;
CREATE FUNCTION left_behind() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	me constant int := pg_backend_pid();
	found jsonb := '{}';
	value text;
BEGIN
	SELECT jsonb_strip_nulls(jsonb_build_object(
		'role', (SELECT jsonb_build_array(session_user, current_user) WHERE session_user <> 'postgres' OR current_user <> 'postgres'),
		'temporary', (SELECT jsonb_agg(relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
		'prepared', (SELECT jsonb_agg(name) FROM pg_prepared_statements),
		'cursors', (SELECT jsonb_agg(name) FROM pg_cursors),
		'locks', (SELECT jsonb_agg(l) FROM pg_locks l WHERE pid = me AND locktype = 'advisory' AND objsubid IN (1, 2)),
		'holds', (SELECT count(*) FROM pg_locks WHERE pid = me AND locktype = 'advisory' AND objsubid NOT IN (1, 2) HAVING count(*) > 1),
		'relations', (SELECT jsonb_agg(relation::regclass) FROM pg_locks WHERE pid = me AND relation = 'victim'::regclass),
		'channels', (SELECT jsonb_agg(c) FROM pg_listening_channels() c),
		'custom', nullif(current_setting('poison.custom', true), ''),
		'memory', (SELECT sum(total_bytes) FROM pg_backend_memory_contexts HAVING sum(total_bytes) > 50000000),
		'next job', (SELECT (queue_jobs.current_job()).id WHERE (queue_jobs.current_job()).worker <> 'next'))) INTO found;
	BEGIN
		found := found || jsonb_build_object('lastval', lastval());
	EXCEPTION WHEN object_not_in_prerequisite_state THEN
	END;
	BEGIN
		found := found || jsonb_build_object('currval', currval('counter'));
	EXCEPTION WHEN object_not_in_prerequisite_state THEN
	END;
	IF NOT EXISTS (SELECT FROM settings_at_first) THEN
		INSERT INTO settings_at_first SELECT name, setting FROM pg_settings;
	END IF;
	RETURN found || (SELECT coalesce(jsonb_object_agg(coalesce(a.name, b.name), b.setting), '{}')
		FROM settings_at_first a FULL JOIN (SELECT name, setting FROM pg_settings) b ON a.name = b.name
		WHERE a.setting IS DISTINCT FROM b.setting AND b.name <> 'poison.custom');
END
$$;
CREATE FUNCTION at_once(int) RETURNS interval LANGUAGE sql AS $$SELECT interval '0'$$;
SELECT queue_jobs.define_worker('next', 'public.left_behind');
SQL

sub next_is_clean
{
	my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('next')});
	wait_for_job($node, $id, 'completed');
	return is($node->safe_psql('postgres', "SELECT attempt, result FROM queue_jobs.job WHERE id = $id"), '1|{}', "… and the next job finds a clean session");
}

# Runs one job of a worker with that handler to its end.
#   procedure  body of a procedure instead of a function's
#   returns    default: void
#   options    of define_worker
#   state, attempt, error   of the job at its end; runs: how often the handler was called
sub poison
{
	my ($name, $body, %opts) = @_;

	my $worker = $name =~ s/\W+/_/gr;
	my $what = $opts{procedure} ? 'PROCEDURE' : 'FUNCTION';
	my $returns = $opts{procedure} ? '' : 'RETURNS ' . ($opts{returns} // 'void');
	$node->safe_psql('postgres', <<SQL);
DO 'BEGIN PERFORM setval(''runs'', 1, false); END';
CREATE $what "$worker"() $returns LANGUAGE plpgsql AS \$poison\$
$body
\$poison\$;
DO \$do\$ BEGIN PERFORM queue_jobs.define_worker('$worker', 'public."$worker"', retry_backoff => 'public.at_once', max_retries => @{[ $opts{retries} // 4 ]}
	@{[ $opts{options} // '' ]}); END \$do\$;
SQL

	# The job may take the server down before the COMMIT has returned.
	my ($status, $id) = $node->psql('postgres', "BEGIN;\nSELECT queue_jobs.enqueue('$worker');\nCOMMIT;");
	$opts{state} //= 'completed';
	$opts{attempt} //= 1;
	wait_for_job($node, $id, $opts{state}, retry_crashed => 1);
	my ($attempt, $runs, $error) = split /\|/,
	  $node->safe_psql('postgres', "SELECT attempt, CASE WHEN is_called THEN last_value ELSE 0 END, last_error FROM queue_jobs.job, runs WHERE id = $id"), 3;
	is($attempt, $opts{attempt}, "$name: $opts{state} after $opts{attempt}");
	like($error, $opts{error} // qr/^$/, '… for that reason');
	is($runs, $opts{runs}, "… $opts{runs} runs") if defined $opts{runs};
	next_is_clean();
	return $id;
}

next_is_clean();

# ---- the process ----

my $crashed = qr/executor process crashed or had to be stopped/;
poison('terminates its backend', q{BEGIN PERFORM nextval('runs'); PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END},
	state => 'dead', attempt => 3, runs => 3, error => $crashed);
is(log_count($node, qr/LOG:  \{"worker": "terminates_its_backend", .*"attempt": 3, "status": "dead", .*"sqlstate": "57P02"/), 1, '... and the log says that it is dead');
wait_until($node, q{SELECT (runs, failures, run_time_mean) IS NOT DISTINCT FROM (3, 3, NULL) FROM queue_jobs.worker_statistics WHERE worker = 'terminates_its_backend'});
is($node->safe_psql('postgres', q{SELECT value FROM queue_jobs.metric WHERE name = 'queue_jobs_retried_total' AND labels ->> 'worker' = 'terminates_its_backend'}), '2',
	'a crash is a run that failed, of which no time is known');
# (Not so many runs exactly: whose sender is gone before the signal is there is not blamed, and so runs once more.)
poison('terminates its backend by a program', q{BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -TERM ' || pg_backend_pid()); PERFORM pg_sleep(60); END},
	state => 'dead', attempt => 3, error => $crashed);
poison('crashes by a signal that others die by as well', q{BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -QUIT ' || pg_backend_pid()); PERFORM pg_sleep(60); END},
	state => 'dead', attempt => 3, error => $crashed);
poison('procedure terminates its backend', q{BEGIN COMMIT; PERFORM nextval('runs'); PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END},
	procedure => 1, state => 'dead', attempt => 3, runs => 3, error => $crashed);
poison('procedure terminates its backend without locks', q{BEGIN PERFORM pg_advisory_unlock_all(); COMMIT;
	PERFORM nextval('runs'); PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END},
	procedure => 1, state => 'dead', attempt => 3, runs => 3, error => $crashed);
poison('cancels itself', q{BEGIN PERFORM nextval('runs'); PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60); END},
	retries => 1, state => 'dead', attempt => 2, runs => 2, error => qr/^canceling statement due to user request/);
poison('procedure cancels itself', q{BEGIN COMMIT; PERFORM nextval('runs'); PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60); END},
	procedure => 1, retries => 1, state => 'dead', attempt => 2, runs => 2, error => qr/^canceling statement due to user request/);
poison('says that it was cancelled', q{BEGIN PERFORM nextval('runs'); RAISE EXCEPTION 'a remote server cancelled it' USING ERRCODE = 'query_canceled'; END},
	retries => 1, state => 'dead', attempt => 2, runs => 2, error => qr/^a remote server cancelled it/);
poison('loops without end', q{BEGIN PERFORM nextval('runs'); LOOP END LOOP; END},
	retries => 1, options => ", timeout => '2 s'", state => 'dead', attempt => 2, error => qr/longer than its timeout of 2000 ms/);
poison('procedure loops without end', q{BEGIN PERFORM nextval('runs'); LOOP COMMIT; END LOOP; END},
	procedure => 1, retries => 0, options => ", timeout => '2 s'", state => 'dead', error => qr/longer than its timeout of 2000 ms/);
poison('leaves a cursor without end', q{BEGIN PERFORM nextval('runs'); EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT pg_sleep(600)'; END},
	runs => 1);
poison('recurses without end', q{BEGIN PERFORM nextval('runs'); EXECUTE 'SELECT recurses_without_end()'; END},
	retries => 0, state => 'dead', error => qr/stack depth limit exceeded/);
poison('eats memory', q{DECLARE size int := 600000000; much text := repeat('x', size); BEGIN PERFORM much || much; END},
	retries => 0, state => 'dead', error => qr/out of memory|invalid memory alloc/);

# ---- what the engine calls of its worker's, beside the handler ----

# Stopped after 5 s; then Sidekiq's formula counts.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION never(int) RETURNS interval LANGUAGE plpgsql AS $$BEGIN LOOP END LOOP; END$$;
CREATE FUNCTION cancels(int) RETURNS interval LANGUAGE plpgsql AS $$BEGIN PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(1); END$$;
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM 1 / 0; END$$;
SELECT queue_jobs.define_worker('never again', 'public.fails', retry_backoff => 'public.never'),
	queue_jobs.define_worker('cancels the delay', 'public.fails', retry_backoff => 'public.cancels');
SQL
for my $worker ('never again', 'cancels the delay')
{
	my $id = $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('$worker')");
	wait_for_job($node, $id, 'retryable');
	is( $node->safe_psql('postgres', "SELECT attempt = jsonb_array_length(errors), run_at - (errors->-1->>'failed_at')::timestamptz BETWEEN '15 s' AND '1 min'
		FROM queue_jobs.job WHERE id = $id"), 't|t', "$worker: retried later");
	next_is_clean();
	$node->safe_psql('postgres', "SELECT queue_jobs.cancel($id)");
}

# One that the job's role may not call by its name: Sidekiq's formula, and all other jobs go on.
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE web LOGIN;
CREATE SCHEMA shut;
CREATE FUNCTION shut.delay(int) RETURNS interval LANGUAGE sql AS $$SELECT interval '0'$$;
SELECT queue_jobs.define_worker('shut', 'public.fails', retry_backoff => 'shut.delay'),
	queue_jobs.define_worker('shut by types', 'public.fails', retry_backoff => 'shut.delay(integer)');
GRANT queue_jobs_enqueue TO web;
SQL
for my $worker ('shut', 'shut by types')
{
	my $id = $node->safe_psql('postgres', "SET SESSION AUTHORIZATION web; SELECT queue_jobs.enqueue('$worker')");
	wait_for_job($node, $id, 'retryable');
	is( $node->safe_psql('postgres', "SELECT attempt = jsonb_array_length(errors), run_at - (errors->-1->>'failed_at')::timestamptz BETWEEN '15 s' AND '1 min'
		FROM queue_jobs.job WHERE id = $id"), 't|t', "$worker: retried later");
	next_is_clean();
	$node->safe_psql('postgres', "SELECT queue_jobs.cancel($id)");
}

# What catches its cancellation is ended with its process, which is charged for a crash.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION forever() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			PERFORM pg_sleep(600);
		EXCEPTION WHEN query_canceled THEN NULL;
		END;
	END LOOP;
END
$$;
CREATE FUNCTION never_ever(int) RETURNS interval LANGUAGE sql AS $$SELECT public.forever(); SELECT '1 day'::interval$$;
SELECT queue_jobs.define_worker('never ever again', 'public.fails', retry_backoff => 'public.never_ever');
SQL
my $scheduler = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'};
my $never = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('never ever again')});
wait_for_job($node, $never, 'retryable');
is($node->safe_psql('postgres', "SELECT attempt = jsonb_array_length(errors), run_at - (errors->-1->>'failed_at')::timestamptz BETWEEN '15 s' AND '1 min' FROM queue_jobs.job WHERE id = $never"),
	't|t', 'a delay that cannot be stopped: retried later');
next_is_clean();
$node->safe_psql('postgres', "SELECT queue_jobs.cancel($never)");

# In a session it is stopped, too, if it can be.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('never in a session', retry_backoff => 'public.never'); SELECT queue_jobs.enqueue('never in a session')});
is($node->safe_psql('postgres', q{SELECT queue_jobs.fail(id, attempt, 'no') IS NOT NULL FROM queue_jobs.claim('me', '{never in a session}')}), 't', 'fail() has an end');
is($node->safe_psql('postgres', q{SELECT state, run_at - now() < '1 min' FROM queue_jobs.job WHERE worker = 'never in a session'}), 'retryable|t', '… and is written');

# Once for a worker in a transaction, however many of its jobs have failed.
my $stopped = log_count($node, 'what a worker has queue_jobs call took longer than 5000 ms');
is( $node->safe_psql('postgres', q{
	SELECT count(queue_jobs.enqueue('never in a session')) FROM generate_series(1, 5);
	SELECT queue_jobs.fail_many(array_agg(id), array_agg(attempt), '{no}') IS NOT NULL FROM queue_jobs.claim('me', '{never in a session}', 5);
	SELECT count(*) FROM queue_jobs.job WHERE worker = 'never in a session' AND run_at - now() < '1 min'}), "5\nt\n6", 'fail() for many has an end');
is(log_count($node, 'what a worker has queue_jobs call took longer than 5000 ms') - $stopped, 1, '… after one limit');

# A query that cannot be stopped ends its executor, and the others go on. (It does not shake off its limit by what it calls that is limited as
# well.)
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('claimed', retry_backoff => 'public.at_once'), queue_jobs.enqueue('claimed');
CREATE TABLE held AS SELECT id, attempt FROM queue_jobs.claim('me', '{claimed}', lease => '1 day');
CREATE FUNCTION fail_and_go_on_forever() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM queue_jobs.fail(id, attempt, 'no') FROM public.held;
	RETURN public.forever();
END
$$;
SQL
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE filled (what text);
CREATE FUNCTION fill(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO filled VALUES (args ->> 'what')$$;
SELECT queue_jobs.define_worker('a for ever', 'public.fill', max_running_jobs => 1, remaining_work => 'SELECT ''{"what": "a"}''::jsonb WHERE public.fail_and_go_on_forever()');
SELECT queue_jobs.define_worker('b', 'public.fill', max_running_jobs => 1,
	remaining_work => 'SELECT ''{"what": "b"}''::jsonb WHERE NOT EXISTS (SELECT FROM public.filled WHERE what = ''b'')');
SELECT queue_jobs.schedule('each second', '* * * * * *', 'b', '{"what": "tick"}');
SQL
wait_until($node, q{SELECT last_error = 'executor process crashed or had to be stopped while it ran the job' FROM queue_jobs.job WHERE worker = 'queue_jobs.fill' AND state = 'dead'});
wait_until($node, q{SELECT count(*) = 1 FROM filled WHERE what = 'b'});
pass('others are filled');
my $ticks = $node->safe_psql('postgres', q{SELECT count(*) FROM filled WHERE what = 'tick'});
wait_until($node, "SELECT count(*) > $ticks FROM filled WHERE what = 'tick'");
pass('schedules tick');
is($node->safe_psql('postgres', q{SELECT filled_at IS NOT NULL, remaining IS NULL FROM queue_jobs.capacity WHERE worker = 'a for ever'}), 't|t', 'it was tried');
cmp_ok(log_count($node, 'what a worker has queue_jobs call took longer than 5000 ms'), '>=', 1, 'the log says of a function that it took too long');
$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule('each second'); SELECT queue_jobs.drop_worker('a for ever'); SELECT queue_jobs.drop_worker('b')});

# What such a query returns may change its type.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE piece (args jsonb);
INSERT INTO piece VALUES ('{"what": "c"}');
SELECT queue_jobs.pause('c');
SELECT queue_jobs.define_worker('c', 'public.fill', max_running_jobs => 1, remaining_work => 'SELECT args FROM public.piece');
SQL
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'c'});
$node->safe_psql('postgres', q{ALTER TABLE piece ALTER args TYPE bigint USING 1; SELECT queue_jobs.resume('c')});
my $until = time + $PostgreSQL::Test::Utils::timeout_default;
select undef, undef, undef, 0.1 while log_count($node, 'ERROR:  remaining_work must return jsonb') == 0 && time < $until;
cmp_ok(log_count($node, 'ERROR:  remaining_work must return jsonb'), '>=', 1, 'what is no jsonb any more is an error');
is(log_count($node, 'terminated by signal 11'), 0, '… and no crash');
$node->safe_psql('postgres', q{SELECT queue_jobs.drop_worker('c')});
next_is_clean();

# A worker that is being defined anew, in a transaction that stays open, is not waited for by the scheduler when it is to be filled.
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('d', 'public.fill', max_running_jobs => 1, remaining_work => 'SELECT jsonb ''{}'' WHERE false')});
wait_until($node, q{SELECT remaining = 0 FROM queue_jobs.capacity WHERE worker = 'd'});
my $definer = in_background($node);
$definer->query(q{BEGIN; UPDATE queue_jobs.capacity_fill SET filled_at = '2001-01-01'; COMMIT; BEGIN;
	SELECT queue_jobs.define_worker('d', 'public.fill', max_running_jobs => 1, remaining_work => 'SELECT jsonb ''{}'' WHERE false')});
my $delayed = $node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('e', 'public.fill'); SELECT queue_jobs.enqueue('next', delay => '1 s')});
wait_for_job($node, $delayed, 'completed');
is($node->safe_psql('postgres', q{SELECT filled_at FROM queue_jobs.capacity_fill WHERE worker = 'd'}) =~ /^2001/ ? 1 : 0, 1, 'the scheduler waits for nobody who defines a worker');
$definer->query('COMMIT');
wait_until($node, q{SELECT remaining = 0 AND filled_at > '2001-01-02' FROM queue_jobs.capacity WHERE worker = 'd'});
$definer->quit;
$node->safe_psql('postgres', q{SELECT queue_jobs.drop_worker('d'); SELECT queue_jobs.drop_worker('e')});
next_is_clean();

# ---- what it returns, and says ----

poison('returns too much', q{DECLARE size int := 270000000; BEGIN RETURN repeat('x', size); END}, returns => 'text', retries => 0, state => 'dead', error => qr/too long/);
poison('returns much', q{DECLARE size int := 10000000; BEGIN RETURN to_jsonb(repeat('x', size)); END}, returns => 'jsonb');
poison('reads much', q{BEGIN PERFORM g, repeat('x', 100) FROM generate_series(1, 300000) g ORDER BY g DESC; END});
my $id = poison('says much', q{DECLARE size int := 3000000; BEGIN
	RAISE EXCEPTION USING MESSAGE = repeat('€', size), DETAIL = repeat('€', size); END},
	retries => 0, state => 'dead', error => qr/^(?:€|\xe2\x82\xac)+$/);
is($node->safe_psql('postgres', "SELECT octet_length(last_error) BETWEEN 9990 AND 10000 FROM queue_jobs.job WHERE id = $id"), 't', '… of which the beginning is kept');
poison('says nothing', q{BEGIN RAISE EXCEPTION USING MESSAGE = '', ERRCODE = 'XX000'; END}, retries => 0, state => 'dead');

# ---- transactions ----

poison('goes on after an error', q{BEGIN
	BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END; INSERT INTO victim VALUES (1); END});
is($node->safe_psql('postgres', 'SELECT count(*) FROM victim'), 1, '… and what it did then is there');
poison('violates a deferred constraint', q{BEGIN INSERT INTO victim VALUES (2, 99); END},
	retries => 0, state => 'dead', error => qr/violates foreign key constraint/);
poison('procedure violates one at its commit', q{BEGIN INSERT INTO victim VALUES (3, 99); COMMIT; END},
	procedure => 1, retries => 0, state => 'dead', error => qr/violates foreign key constraint/);
poison('procedure violates one at its end', q{BEGIN COMMIT; INSERT INTO victim VALUES (4, 99); END},
	procedure => 1, retries => 0, state => 'dead', error => qr/violates foreign key constraint/);
poison('procedure fails after a commit', q{BEGIN INSERT INTO victim VALUES (5); COMMIT; INSERT INTO victim VALUES (6); PERFORM 1 / 0; END},
	procedure => 1, retries => 0, state => 'dead', error => qr/division by zero/);
poison('procedure rolls back', q{BEGIN INSERT INTO victim VALUES (7); ROLLBACK; END}, procedure => 1);
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM victim}), '1 5', '… and only what was committed is there');
poison('commits in a function', q{BEGIN COMMIT; END}, retries => 0, state => 'dead', error => qr/invalid transaction termination/);

# The commit itself: what is left to it, by a trigger that an earlier deferred one queued, or that fails on its own.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE late (n int);
CREATE FUNCTION fail_late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'too late for %', NEW.n; END$$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_late();
SQL
poison('fails in its commit', q{BEGIN INSERT INTO late VALUES (1); END}, retries => 0, state => 'dead', error => qr/too late for 1/);

# ---- the session ----

my $mess = q{
	SET search_path = pg_temp;
	SET work_mem = '77MB';
	SET statement_timeout = '1ms';
	SET lock_timeout = '1ms';
	SET synchronous_commit = 'remote_apply';
	SET session_replication_role = replica;
	SET default_transaction_read_only = on;
	SET "TimeZone" = 'Asia/Kathmandu';
	PERFORM pg_catalog.set_config('poison.custom', 'left', false), pg_catalog.set_config('queue_jobs.context', '{"left": 1}', false);
	EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT 1';
	EXECUTE 'DECLARE plain SCROLL CURSOR FOR SELECT * FROM public.victim';
	EXECUTE 'PREPARE prepared AS SELECT 1';
	PERFORM pg_catalog.pg_advisory_lock(1), pg_catalog.pg_advisory_lock_shared(2), pg_catalog.pg_advisory_lock(3, 4);
	PERFORM pg_catalog.setval('public.counter', 1000), pg_catalog.nextval('public.counter');
	NOTIFY poison, 'payload';
};
poison('leaves a mess', "BEGIN CREATE TEMPORARY TABLE pg_class (n int); CREATE TEMPORARY SEQUENCE s; $mess END");
poison('procedure leaves a mess', "BEGIN CREATE TEMPORARY TABLE pg_class (n int) ON COMMIT DELETE ROWS; COMMIT; CREATE TEMPORARY SEQUENCE s; "
	  . ($mess =~ s/SET default_transaction_read_only = on;//r) . ' END', procedure => 1);
poison('leaves a mess and fails', "BEGIN CREATE TEMPORARY TABLE pg_class (n int); $mess PERFORM 1 / 0; END",
	retries => 0, state => 'dead', error => qr/division by zero/);
poison('releases all locks', q{BEGIN PERFORM pg_advisory_lock(5); PERFORM pg_advisory_unlock_all(); END});
poison('listens', q{BEGIN EXECUTE 'LISTEN poison'; END}, retries => 0, state => 'dead', error => qr/cannot execute LISTEN within a background process/);
poison('takes another role', q{BEGIN SET ROLE other; END});
poison('becomes another', q{BEGIN SET SESSION AUTHORIZATION other; END});
poison('procedure becomes another', q{BEGIN SET SESSION AUTHORIZATION other; COMMIT; END}, procedure => 1);
poison('prepares its transaction', q{BEGIN EXECUTE $$PREPARE TRANSACTION 'x'$$; END}, retries => 0, state => 'dead', error => qr/PREPARE TRANSACTION|transaction commands|invalid transaction/i);
poison('locks tables', q{BEGIN LOCK victim IN ACCESS EXCLUSIVE MODE; END});

# ---- its own job, handler, worker ----

my %end = (cancel => 'cancelled', discard => 'dead', retry => 'completed');
foreach my $how (sort keys %end)
{
	poison("wants to $how itself", "BEGIN PERFORM queue_jobs.$how((queue_jobs.current_job()).id); END", state => $end{$how});
}
poison('procedure cancels its job', q{BEGIN COMMIT; PERFORM queue_jobs.cancel((queue_jobs.current_job()).id); COMMIT; PERFORM pg_sleep(60); END},
	procedure => 1, state => 'cancelled');
poison('removes its own jobs', q{BEGIN PERFORM queue_jobs.remove_jobs('removes_its_own_jobs'); END});
poison('drops its function', q{BEGIN DROP FUNCTION public.drops_its_function(); END});
poison('drops its worker', q{BEGIN PERFORM queue_jobs.drop_worker('drops_its_worker'); END});
poison('defines its worker anew', q{BEGIN PERFORM queue_jobs.define_worker('defines_its_worker_anew', 'public.left_behind', max_retries => 0); END});
poison('procedure defines its worker anew', q{BEGIN PERFORM queue_jobs.define_worker('procedure_defines_its_worker_anew', 'public.left_behind'); COMMIT;
	PERFORM 1; END}, procedure => 1);
poison('disables its worker', q{BEGIN PERFORM queue_jobs.disable_worker('disables_its_worker'); END});

# ---- the locks of a procedure's run ----

# It lets go of all advisory locks of its session, ours among them, and goes on: it is not started a second time, its
# key and the slots of its limits stay taken.
$node->safe_psql('postgres', <<'SQL');
ALTER SYSTEM SET queue_jobs.max_executors_per_database = 3;
SELECT pg_reload_conf();
CREATE TABLE gate (open bool);
CREATE TABLE began (worker text, n int);
CREATE PROCEDURE unlocked(args jsonb) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO began SELECT j.worker, (j.args ->> 'n')::int FROM queue_jobs.current_job() j;
	PERFORM pg_advisory_unlock_all();
	COMMIT;
	WHILE args ->> 'n' = '1' AND NOT EXISTS (SELECT FROM gate) LOOP
		PERFORM pg_sleep(0.01);
		ROLLBACK;
	END LOOP;
END
$$;
SELECT queue_jobs.define_worker('free', 'public.unlocked'),
	queue_jobs.define_worker('keyed', 'public.unlocked', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once'),
	queue_jobs.define_worker('one', 'public.unlocked', max_running_jobs => 1);
SQL
for my $worker (qw(free keyed one))
{
	$node->safe_psql('postgres', "TRUNCATE gate");
	my $running = $node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('$worker', '{"n": 1}')});
	wait_until($node, "SELECT count(*) = 1 FROM began WHERE worker = '$worker'");
	wait_until($node, q{SELECT count(*) = 0 FROM pg_locks l JOIN queue_jobs.running_jobs() r USING (pid) WHERE locktype = 'advisory'});

	# Executors look at the lane, from before that job on, and take what they can.
	my ($n, $state) = $worker eq 'free' ? (2, 'completed') : $worker eq 'keyed' ? (1, 'available') : (2, 'available');
	my @others = split /\n/, $node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('$worker', '{"n": $n}', priority => -1) FROM generate_series(1, 5)});
	my $quick = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('next', priority => 1) FROM generate_series(1, 20)});
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'next' AND state <> 'completed'});
	wait_for_job($node, $_, $state) foreach @others;
	is($node->safe_psql('postgres', "SELECT count(*) FROM began WHERE worker = '$worker' AND n = 1"), 1, "$worker: a job that runs without its locks is not started again");
	is($node->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $running"), 'executing', '… and is shown as running');
	is($node->safe_psql('postgres', "SELECT count(*) FROM began WHERE worker = '$worker' AND n = 2"), $worker eq 'free' ? 5 : 0, '… others as they may');
	$node->safe_psql('postgres', 'INSERT INTO gate VALUES (true)');
	wait_for_job($node, $_, 'completed') foreach ($running, @others);
}
wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
pass('no lock is left');

is(log_count($node, 'WARNING:  you don.t own a lock'), 0, 'no lock was released that was not there');

$node->stop;
done_testing();
