# What a role that may use the queue tries, to get at others' rights, args or jobs, or to stop their jobs. alice is the victim, mallory the attacker:
# both may do everything that can be granted, and no more.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $secret = 'rosebud';
my $node = new_node('attacks', extension => 0, conf => <<'CONF');
queue_jobs.max_executors = 8
queue_jobs.idle_timeout = '1h'
queue_jobs.log_jobs = 'all'
log_min_duration_statement = 0
log_parameter_max_length = 0
log_parameter_max_length_on_error = 0
CONF
my $db = 'postgres';

sub sql
{
	my ($role, $sql) = @_;

	return $node->safe_psql($db, (defined $role ? "SET SESSION AUTHORIZATION $role;\n" : '') . $sql);
}

# What a statement is refused with, or what it returns.
sub outcome
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql($db, "\\set VERBOSITY verbose\nSET lock_timeout = '20s';\nSET SESSION AUTHORIZATION $role;\n$sql", on_error_stop => 1);

	return $err =~ /ERROR:  (\w{5}): / ? $1 : $out;
}

sub ended
{
	my ($id) = @_;

	wait_until($node, "SELECT state IN ('completed', 'dead', 'cancelled') FROM queue_jobs.job WHERE id = $id");
	return $node->safe_psql($db, "SELECT state || coalesce(' ' || result::text, '') || coalesce(' ' || (errors -> -1 ->> 'sqlstate'), '') FROM queue_jobs.job WHERE id = $id");
}

# ---- before CREATE EXTENSION ----

$node->safe_psql($db, <<'SQL');
CREATE ROLE alice LOGIN; CREATE ROLE mallory LOGIN; CREATE ROLE friend LOGIN;
GRANT CREATE ON DATABASE postgres TO alice, mallory;
GRANT CREATE ON SCHEMA public TO mallory;
SQL
sql('mallory', 'CREATE SCHEMA queue_jobs; CREATE TABLE queue_jobs.live_job (id bigint, args jsonb)');
like(($node->psql($db, 'CREATE EXTENSION queue_jobs'))[2], qr/schema "queue_jobs" already exists/, 'a schema made beforehand is not adopted');
sql('mallory', 'DROP SCHEMA queue_jobs CASCADE');
sql('mallory', 'CREATE SCHEMA queue_jobs_internal');
like(($node->psql($db, 'CREATE EXTENSION queue_jobs'))[2], qr/schema "queue_jobs_internal" already exists/, '... nor is that of its internals');
sql('mallory', 'DROP SCHEMA queue_jobs_internal');
$node->safe_psql($db, 'CREATE ROLE queue_jobs_operate LOGIN');
like(($node->psql($db, 'CREATE EXTENSION queue_jobs'))[2], qr/role queue_jobs_operate is not such as queue_jobs makes it/, 'nor is a role that can log in');
$node->safe_psql($db, 'DROP ROLE queue_jobs_operate');

# Operators and functions that the script could be led to.
sql('mallory', <<'SQL');
CREATE TABLE public.sprung (what text);
GRANT ALL ON public.sprung TO PUBLIC;
CREATE FUNCTION public.spring(what text) RETURNS void LANGUAGE sql AS $$INSERT INTO public.sprung SELECT what || ' as ' || current_user WHERE current_user <> 'mallory'$$;
CREATE FUNCTION public.text_eq(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT public.spring('='); SELECT true$$;
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.text_eq);
CREATE FUNCTION public.bigint_eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$SELECT public.spring('= bigint'); SELECT true$$;
CREATE OPERATOR public.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.bigint_eq);
CREATE FUNCTION public.pg_extension_config_dump(regclass, text) RETURNS void LANGUAGE sql AS $$SELECT public.spring('dump')$$;
CREATE FUNCTION public.format(text, text, text, integer) RETURNS text LANGUAGE sql AS $$SELECT public.spring('format'); SELECT $1$$;
CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT public.spring('now'); SELECT pg_catalog.now()$$;
CREATE FUNCTION public.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS $$SELECT public.spring('pg_has_role'); SELECT true$$;
SQL
$node->safe_psql($db, 'SET search_path = public, pg_catalog; CREATE EXTENSION queue_jobs');
$node->safe_psql($db, 'GRANT queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO alice, mallory, friend');
is(sql(undef, 'SELECT count(*) FROM public.sprung'), '0', 'CREATE EXTENSION calls nothing that stands first in the search_path');

# ---- what alice has ----

sql('alice', <<"SQL");
CREATE SCHEMA alice;
GRANT USAGE ON SCHEMA alice TO PUBLIC;
CREATE TABLE alice.seen (who name, args jsonb);
CREATE FUNCTION alice.work(args jsonb) RETURNS text LANGUAGE plpgsql AS \$\$
BEGIN
	INSERT INTO alice.seen VALUES (current_user, args);
	IF args ? 'fail' THEN RAISE 'it failed'; END IF;
	IF args ? 'sleep' THEN PERFORM pg_sleep(600); END IF;
	RETURN 'done';
END
\$\$;
CREATE FUNCTION alice.private(args jsonb) RETURNS text LANGUAGE sql AS 'SELECT alice.work(args)';
REVOKE EXECUTE ON FUNCTION alice.private FROM PUBLIC;
SELECT queue_jobs.define_worker('work', 'alice.work', max_retries => 0);
SELECT queue_jobs.define_worker('lent', 'alice.work', run_as => 'definer');
SELECT queue_jobs.define_worker('private', 'alice.private', run_as => 'definer', max_retries => 0);
SELECT queue_jobs.define_worker('outside', idempotent => true);
SELECT queue_jobs.schedule('yearly', '\@yearly', 'work', '{"password": "$secret"}');
SQL
my $waiting = sql('alice', qq{SELECT queue_jobs.enqueue('outside', '{"password": "$secret"}', context => '{"token": "$secret"}', dedup_key => '$secret')});
my $claimed = sql('alice', qq{SELECT id FROM queue_jobs.claim('alice', '{outside}', lease => '1 hour')});
$waiting = sql('alice', qq{SELECT queue_jobs.enqueue('outside', '{"password": "$secret", "n": 2}')});
sql('alice', q{SELECT queue_jobs.heartbeat('alice')});
sql('alice', qq{SELECT queue_jobs.run_once('token', 'SELECT ''$secret''')});
my $failed = sql('alice', qq{SELECT queue_jobs.enqueue('work', '{"password": "$secret", "fail": 1}')});
is(ended($failed), 'dead P0001', "a job of alice's has failed");
my $running = sql('alice', qq{SELECT queue_jobs.enqueue('work', '{"password": "$secret", "sleep": 1}')});
wait_for_job($node, $running, 'executing');
my $pid = sql(undef, "SELECT executor_pid FROM queue_jobs.job WHERE id = $running");
my ($scheduler, $launcher) = map { sql(undef, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs $_'") } qw(scheduler launcher);

# ---- what mallory gets of it ----

my @attacks = (
	[ 'reads her jobs' => 'SELECT count(*) FROM queue_jobs.job', '0' ],
	[ '… one of them' => "SELECT count(*) FROM queue_jobs.job WHERE id = $waiting", '0' ],
	[ '… by a function that is shown rows before they are hidden' => q{
		CREATE FUNCTION pg_temp.leak(jsonb) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.sprung VALUES ('leak: ' || $1::text); RETURN true; END$$;
		SELECT count(*) FROM queue_jobs.job WHERE pg_temp.leak(args)}, '0' ],
	[ '… by a view of hers that he may read' => 'SELECT count(*) FROM alice.jobs', '0' ],
	[ '… by an error' => 'SELECT (args ->> \'password\')::int FROM queue_jobs.job', '' ],
	[ 'reads her schedules' => 'SELECT count(*) FROM queue_jobs.schedule', '0' ],
	[ 'reads what is planned with' => q{SELECT count(*) FROM pg_stats WHERE schemaname = 'queue_jobs'}, '0' ],
	[ 'asks for her token' => q{SELECT queue_jobs.run_once('token', 'SELECT 1')}, '1' ],
	[ 'claims her jobs' => q{SELECT count(*) FROM queue_jobs.claim('mallory', '{*}', 100)}, '0' ],
	[ '… as her' => q{SELECT count(*) FROM queue_jobs.claim('alice', '{*}', 100)}, qr/^(0|42501)$/ ],
	[ 'sends a sign of life by her name' => q{SELECT count(*) FROM queue_jobs.heartbeat('alice')}, '0' ],
	[ 'completes what she has claimed' => "SELECT queue_jobs.complete($claimed, 1)", '42501' ],
	[ 'fails it' => "SELECT queue_jobs.fail($claimed, 1, 'x')", '42501' ],
	[ 'cancels her job' => "SELECT queue_jobs.cancel($waiting)", '42501' ],
	[ '… that runs' => "SELECT queue_jobs.cancel($running)", '42501' ],
	[ '… its process' => "SELECT pg_cancel_backend($pid)", '42501' ],
	[ '… the scheduler' => "SELECT pg_terminate_backend($scheduler)", '42501' ],
	[ '… the launcher' => "SELECT pg_terminate_backend($launcher)", '42501' ],
	[ 'retries her dead one' => "SELECT queue_jobs.retry($failed)", '42501' ],
	[ 'removes jobs of her worker' => q{SELECT queue_jobs.remove_jobs('outside')}, qr/^(0|42501)$/ ],
	[ 'moves them' => q{SELECT queue_jobs.migrate_queue('outside', 'mine')}, qr/^(0|42501)$/ ],
	[ 'replaces her worker' => q{SELECT queue_jobs.define_worker('lent', 'pg_catalog.pg_sleep(double precision)')}, '42501' ],
	[ 'drops it' => q{SELECT queue_jobs.drop_worker('work')}, '42501' ],
	[ 'disables it' => q{SELECT queue_jobs.disable_worker('work')}, '42501' ],
	[ 'replaces her schedule' => q{SELECT queue_jobs.schedule('yearly', '@hourly', 'work')}, '42501' ],
	[ 'ends it' => q{SELECT queue_jobs.unschedule('yearly')}, '42501' ],
	[ 'runs it' => q{SELECT queue_jobs.run_now('yearly')}, '42501' ],
	[ 'adds a replica, to be sent her jobs' => q{SELECT queue_jobs.add_replica('mine', 'host=/tmp')}, '42501' ],
	[ 'runs with her rights what he may not execute' => q{SELECT queue_jobs.enqueue('private')}, '42501' ],
	[ '… many times' => q{SELECT queue_jobs.enqueue_many('private', '{"{}"}')}, '42501' ],
	[ '… by schedule' => q{SELECT queue_jobs.schedule('mine', '@hourly', 'private')}, '42501' ],
	[ '… as a test' => q{SELECT queue_jobs.assert_idempotent('private')}, qr/^42/ ],
	[ 'defines a worker with a handler that he may not execute' => q{SELECT queue_jobs.define_worker('stolen', 'alice.private', run_as => 'definer')}, '42501' ],
	[ 'writes to a table' => q{INSERT INTO queue_jobs.lane (worker, queue, owner) VALUES ('work', 'work', 'alice')}, '42501' ],
	[ 'reads one' => 'SELECT args FROM queue_jobs.live_job', '42501' ],
	[ 'reads a partition' => 'SELECT args FROM queue_jobs.dead_job', '42501' ],
	[ 'copies one' => 'COPY queue_jobs.live_job TO STDOUT', '42501' ],
	[ 'locks one' => 'BEGIN; LOCK TABLE queue_jobs.live_job IN ACCESS SHARE MODE', '42501' ],
	[ 'logs all runs' => q{SET queue_jobs.log_jobs = 'all'}, '42501' ],
	[ 'drops the database' => 'DROP DATABASE postgres', '42501' ]);

# Those that need a lock before the server looks at rights; tried when no job is running.
my @definitions = (
	[ 'adds a trigger' => 'CREATE TRIGGER t BEFORE INSERT ON queue_jobs.live_job FOR EACH ROW EXECUTE FUNCTION queue_jobs_internal.table_written()', '42501' ],
	[ 'adds a rule' => 'CREATE RULE r AS ON INSERT TO queue_jobs.job DO INSTEAD NOTHING', '42501' ],
	[ 'adds a policy' => 'CREATE POLICY p ON queue_jobs.live_job USING (true)', '42501' ],
	[ 'adds an operator class of his own to an index' => 'CREATE INDEX ON queue_jobs.live_job (args)', '42501' ],
	[ 'adds a partition' => 'CREATE TABLE public.mine PARTITION OF queue_jobs.finished_job FOR VALUES IN (77)', '42501' ],
	[ 'inherits from one' => 'CREATE TABLE public.mine () INHERITS (queue_jobs.live_job)', '42501' ],
	[ 'refers to one' => 'CREATE TABLE public.mine (id bigint REFERENCES queue_jobs.live_job)', '42501' ],
	[ 'adds a function to the schema' => q{CREATE FUNCTION queue_jobs.enqueue(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'}, '42501' ],
	[ 'changes a function' => q{ALTER FUNCTION queue_jobs.enqueue SECURITY DEFINER}, '42501' ],
	[ 'drops the extension' => 'DROP EXTENSION queue_jobs', '42501' ],
	[ 'updates it' => 'ALTER EXTENSION queue_jobs UPDATE', '42501' ],
	[ 'adds to it' => 'ALTER EXTENSION queue_jobs ADD TABLE public.sprung', '42501' ],
	[ 'makes himself a member of a ready-made role' => 'GRANT queue_jobs_operate TO friend', '42501' ]);

sub attack
{
	foreach my $attack (@_)
	{
		my ($what, $statement, $expected) = @$attack;
		my $got = outcome('mallory', $statement);

		ref $expected ? like($got, $expected, "mallory $what") : is($got, $expected, "mallory $what");
	}
	return;
}

sql('alice', 'CREATE VIEW alice.jobs AS SELECT * FROM queue_jobs.job; GRANT SELECT ON alice.jobs TO PUBLIC');
attack(@attacks);

# By the numbers of rows that EXPLAIN ANALYZE shows: no condition on a column is evaluated on rows of others. (Of jobs he may learn which ids there are, and
# in which queues of which workers.)
foreach my $column (split /\n/, sql('mallory', q{SELECT attrelid::regclass || ' ' || attname FROM pg_attribute WHERE attrelid IN ('queue_jobs.job'::regclass, 'queue_jobs.schedule'::regclass)
	AND attnum > 0 AND attname <> ALL ('{id,worker,queue}') ORDER BY attrelid, attnum}))
{
	my ($view, $name) = split / /, $column;
	my $plan = sql('mallory', "EXPLAIN (COSTS OFF) SELECT FROM $view WHERE $name >= (SELECT $name FROM $view LIMIT 1)");
	my ($node_of_plan, @leaks) = ('');
	foreach my $line (split /\n/, $plan)
	{
		$node_of_plan = $line if $line =~ /->|^[A-Z]/;
		push @leaks, $line if $node_of_plan =~ / on (?:live_job|finished_job|dead_job|lane|defined_schedule)/ && $line =~ /(?:Cond|Filter): .*(?:\$\d|InitPlan)/ && $line !~ /pg_has_role|may_see/;
	}
	is("@leaks", '', "no condition on $name of $view is evaluated on rows of others");
}
$node->safe_psql($db, 'ANALYZE queue_jobs.live_job, queue_jobs.dead_job, queue_jobs.defined_schedule');
foreach my $pair ([ q{claimant = 'alice'}, q{claimant = 'x'} ], [ 'priority = 0', 'priority = 7' ], [ 'attempt = 1', 'attempt = 9' ], [ q{dedup_key >= 'a'}, q{dedup_key >= 'z'} ],
	[ q{run_at < '1999-01-01'}, q{run_at < '2999-01-01'} ], [ q{created_at > '1999-01-01'}, q{created_at > '2999-01-01'} ])
{
	my $condition = $pair->[0];
	my ($known, $unknown) = map { sql('mallory', "EXPLAIN SELECT FROM queue_jobs.job WHERE $_") } @$pair;
	s/^\s*(?:Filter|Index Cond|Join Filter|Hash Cond).*\n//mg, s/\([^()]*\bcost=[\d.]+ rows=(\d+)[^()]*\)/$1/g foreach $known, $unknown;
	is($known, $unknown, "nor does EXPLAIN estimate by others' rows: $condition");
}
$node->safe_psql($db, 'GRANT USAGE ON SCHEMA queue_jobs_internal TO mallory');
is(outcome('mallory', q{SELECT count(DISTINCT queue_jobs_internal.waits_for(format('(%s,%s)', page, line)::tid)) FROM generate_series(0, 9) page, generate_series(1, 100) line}), '0', "waits_for() tells nothing of others' jobs");
$node->safe_psql($db, 'REVOKE USAGE ON SCHEMA queue_jobs_internal FROM mallory');

# Everything that is there for him to read, and the log.
my $sessions = sql('mallory', "SELECT string_agg(query, '; ') FROM pg_stat_activity");
unlike($sessions, qr/$secret/, 'pg_stat_activity tells no args');
unlike($node->safe_psql($db, "SELECT query FROM pg_stat_activity WHERE pid = $pid"), qr/$secret/, 'not even to a superuser');
foreach my $relation (split /\n/, sql('mallory', q{
	SELECT c.oid::regclass FROM pg_class c WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND relkind IN ('v', 'r', 'p') AND has_table_privilege(c.oid, 'SELECT')}))
{
	unlike(sql('mallory', "SELECT t::text FROM $relation t"), qr/$secret/, "nor does $relation");
}
$node->wait_for_log(qr/"worker": ?"work"/);
my $log = join '', grep { /\] queue_jobs / } slurp_file($node->logfile) =~ /^.*\n/mg;
like($log, qr/"worker": ?"work"/, 'runs are in the log');
unlike($log, qr/$secret/, 'without their args');

# ---- handlers and search paths of his own ----

# Engine code that runs in his session, and in his executors, finds none of his objects.
is(outcome('mallory', q{
	CREATE TEMPORARY TABLE lane (id int); CREATE TEMPORARY TABLE live_job (id int); CREATE TEMPORARY TABLE defined_worker (id int);
	SET search_path = pg_temp, public, pg_catalog;
	SELECT queue_jobs.define_worker('trap', 'pg_catalog.pg_backend_pid');
	SELECT queue_jobs.enqueue('trap', dedup_key => 'x') > 0;}), "\nt", 'temporary tables of the same names are not met');
sql(undef, "ALTER ROLE alice SET search_path = public, pg_catalog; SELECT queue_jobs.cancel($running)");
wait_for_job($node, $running, 'cancelled');
attack(@definitions);
is(ended(sql('alice', q{SET search_path = public, pg_catalog; SELECT queue_jobs.enqueue('lent', dedup_key => 'x')})), 'completed "done"', 'alice works with his schema first in her search_path');
sql('alice', q{SET search_path = public, pg_catalog; SELECT count(*) FROM queue_jobs.job; SELECT queue_jobs.pause('work'), queue_jobs.resume('work'); SELECT * FROM queue_jobs.queue; SELECT queue_jobs.check_workers()});
is(sql(undef, 'SELECT string_agg(what, E\'\n\') FROM public.sprung'), '', 'nothing of it was called for her');
sql(undef, 'ALTER ROLE alice RESET search_path');

# Queries of limited-capacity workers and conditions of healing are called in processes of his own, where he may try what he likes, and never in the scheduler, which is a
# superuser's; nor are retry delays.
sql('mallory', <<'SQL');
CREATE SCHEMA mallory;
CREATE TABLE mallory.tried (how text, outcome text);
CREATE TABLE mallory.called (session text);
CREATE FUNCTION mallory.try(how text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE how;
	INSERT INTO mallory.tried SELECT how, current_user WHERE session_user <> 'mallory';
EXCEPTION WHEN OTHERS THEN
	INSERT INTO mallory.tried SELECT how, sqlstate WHERE session_user <> 'mallory';
END
$$;
CREATE FUNCTION mallory.try_all() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO mallory.called VALUES (session_user);
	PERFORM mallory.try(how) FROM unnest(ARRAY['RESET ROLE', 'SET ROLE NONE', 'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION DEFAULT',
		'SELECT set_config(''session_authorization'', ''default'', false)', 'CREATE TEMPORARY TABLE stays ()', 'LOAD ''plpgsql''', 'DISCARD ALL',
		'ALTER ROLE mallory SUPERUSER', 'SELECT pg_read_file(''postgresql.conf'')', 'COPY mallory.tried TO PROGRAM ''true''', 'DELETE FROM alice.seen',
		'UPDATE queue_jobs.live_job SET priority = 0', 'COMMIT']) how;
	RETURN true;
END
$$;
CREATE TABLE mallory.record (id int PRIMARY KEY, done boolean);
INSERT INTO mallory.record VALUES (1, false);
CREATE FUNCTION mallory.nothing(args jsonb) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('limited', 'mallory.nothing', max_running_jobs => 1, remaining_work => 'SELECT ''{}''::jsonb WHERE mallory.try_all() OFFSET 0');
SQL
wait_until($node, q{SELECT remaining = 1 FROM queue_jobs.capacity WHERE worker = 'limited'});
is(sql(undef, 'SELECT DISTINCT session FROM mallory.called'), 'mallory', 'a query of his is called in his own session');
sql('mallory', 'DELETE FROM mallory.called');
sql('mallory', q{SELECT queue_jobs.drop_worker('limited'); SELECT queue_jobs.define_worker('healed', 'mallory.nothing', record => 'mallory.record', record_key => 'id', pending => 'NOT done AND mallory.try_all()', heal_every => '1 s')});
wait_until($node, q{SELECT count(*) > 0 FROM queue_jobs.job WHERE worker = 'healed' AND state = 'completed'});
is(sql(undef, 'SELECT DISTINCT session FROM mallory.called'), 'mallory', 'so is a condition');
sql('mallory', q{SELECT queue_jobs.drop_worker('healed')});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND state IN ('available', 'executing')});

# A job that ends its own process: the scheduler, which charges it, asks no function of his for the delay.
sql('mallory', <<'SQL');
DELETE FROM mallory.tried;
CREATE FUNCTION mallory.later(failures int) RETURNS interval LANGUAGE sql AS $$
	SELECT mallory.try_all();
	SELECT CASE WHEN count(*) >= 14 AND bool_and(outcome ~ '^(42|2D|0A|25|28|55)') THEN '1 hour' ELSE '5 min' END::interval FROM mallory.tried$$;
CREATE PROCEDURE mallory.boom(args jsonb) LANGUAGE plpgsql AS $$BEGIN COMMIT; PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60); END$$;
SELECT queue_jobs.define_worker('boom', 'mallory.boom', retry_backoff => 'mallory.later');
SQL
my $boom = sql('mallory', q{SELECT queue_jobs.enqueue('boom')});
wait_for_job($node, $boom, 'retryable');
# A turn of the scheduler later.
ended(sql('alice', q{SELECT queue_jobs.enqueue('lent')}));
is(sql(undef, 'SELECT count(*) FROM mallory.tried'), '0', 'the scheduler asks no function of his for the delay after a crash');
is(sql(undef, "SELECT run_at - now() < '1 min' FROM queue_jobs.job WHERE id = $boom"), 't', 'it is by the formula');
sql('mallory', "SELECT queue_jobs.cancel($boom)");

# In a superuser's session, which claims all that there is.
sql('mallory', q{DELETE FROM mallory.tried; SELECT queue_jobs.drop_worker('boom'); SELECT queue_jobs.define_worker('given', retry_backoff => 'mallory.later')});
my $given = sql('mallory', q{SELECT queue_jobs.enqueue('given')});
sql(undef, "SELECT count(*) FROM queue_jobs.claim('root', '{given}'); SELECT queue_jobs.fail($given, 1, 'no')");
is(sql(undef, "SELECT state || ' ' || (run_at - now() > '50 min') FROM queue_jobs.job WHERE id = $given"), 'retryable true', "the delay after a superuser's fail() is his worker's");
is(sql(undef, 'SELECT count(*) FROM mallory.tried'), '0', 'for which his function was called: it gained him nothing, and what it wrote is undone');

# What he leaves in the session.
sql('mallory', <<'SQL');
CREATE FUNCTION mallory.stay() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('default_transaction_read_only', 'on', false), set_config('search_path', 'mallory', false), pg_advisory_lock(4711);
	RETURN true;
END
$$;
SELECT queue_jobs.define_worker('stays', 'mallory.nothing', max_running_jobs => 1, remaining_work => 'SELECT ''{}''::jsonb WHERE mallory.stay()');
SQL
wait_until($node, q{SELECT remaining = 1 FROM queue_jobs.capacity WHERE worker = 'stays'});
wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711});
pass('an advisory lock does not stay');
sql('alice', q{SELECT queue_jobs.define_worker('after', 'alice.work', max_running_jobs => 1, remaining_work => 'SELECT ''{"after": 1}''::jsonb WHERE NOT EXISTS (SELECT FROM alice.seen WHERE args ? ''after'')')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'after' AND state = 'completed'});
pass('nor does a setting');
sql('mallory', q{SELECT queue_jobs.drop_worker('stays')});

# Locks, which any role reads in pg_locks, tell nothing of the hashes of keys, and so nothing of args that could be guessed.
sql('alice', q{SELECT queue_jobs.define_worker('once', 'alice.work', idempotent => true, deduplicate => 'until_executed')});
my $once = sql('alice', q{SELECT queue_jobs.enqueue('once', '{"sleep": 1, "once": 1}')});
wait_for_job($node, $once, 'executing');
my $of_jobs = q{SELECT count(*) FROM pg_locks l %s WHERE l.locktype = 'advisory' AND l.objsubid NOT IN (1, 2)};
cmp_ok(sql(undef, sprintf $of_jobs, ''), '>', 1, 'a job that runs has its own lock, and its key');
is(sql(undef, sprintf $of_jobs, q{JOIN queue_jobs.live_job j ON j.dedup_hash = (l.classid::bigint << 32 | l.objid::bigint)}), '0', 'no lock has the number of a key');
sql('alice', "SELECT queue_jobs.cancel($once)");
wait_for_job($node, $once, 'cancelled');

# ---- what changes between enqueue and run ----

sub meanwhile
{
	my ($enqueue, $change, $role) = @_;

	sql(undef, q{SELECT queue_jobs.pause('work'), queue_jobs.pause('lent'), queue_jobs.pause('private'), queue_jobs.pause('mine')});
	my $id = sql($role // 'friend', "SELECT queue_jobs.enqueue($enqueue)");
	sql(undef, $change);
	sql(undef, q{SELECT queue_jobs.resume('work'), queue_jobs.resume('lent'), queue_jobs.resume('private'), queue_jobs.resume('mine')});
	return $id;
}

sql('alice', 'GRANT EXECUTE ON FUNCTION alice.private TO friend');
is(ended(sql('friend', q{SELECT queue_jobs.enqueue('private', '{"n": 1}')})), 'completed "done"', 'a friend may have a job run with her rights');
my $revoked = meanwhile(q{'private', '{"n": 2}'}, 'REVOKE EXECUTE ON FUNCTION alice.private FROM friend');
is(ended($revoked), 'dead 42501', 'but not when the right has been taken from him meanwhile');
is(sql(undef, q{SELECT count(*) FROM alice.seen WHERE args @> '{"n": 2}'}), '0', 'it did not run');

sql('friend', q{CREATE FUNCTION pg_temp.x() RETURNS int LANGUAGE sql AS 'SELECT 1'});
sql('mallory', q{CREATE FUNCTION public.mine(args jsonb) RETURNS text LANGUAGE sql AS 'SELECT current_user::text'; SELECT queue_jobs.define_worker('mine', 'public.mine', max_retries => 0)});
is(ended(meanwhile(q{'mine'}, 'ALTER FUNCTION public.mine SECURITY DEFINER')), 'completed "mallory"', 'a handler that has become SECURITY DEFINER runs with its owner\'s rights, not with more');
my $sold = meanwhile(q{'mine'}, 'ALTER FUNCTION public.mine OWNER TO alice');
like(sql(undef, "SELECT state || ': ' || waits_for FROM queue_jobs.job WHERE id = $sold"), qr/^available: .*it belongs to role "alice" now, not to "mallory"/, '… whose owner is another waits');
sql('mallory', q{SELECT queue_jobs.define_worker('mine', 'public.mine', max_retries => 0)});
is(ended($sold), 'completed "alice"', '… until the worker is defined again');
is(ended(meanwhile(q{'mine'}, 'ALTER FUNCTION public.mine SECURITY INVOKER')), 'completed "friend"', 'and again with those of the role that enqueued');
sql(undef, 'ALTER FUNCTION public.mine OWNER TO mallory');
sql('mallory', q{SELECT queue_jobs.define_worker('mine', 'public.mine', max_retries => 0)});
my $orphan = meanwhile(q{'mine'}, 'DROP FUNCTION public.mine');
like(sql(undef, "SELECT state || ': ' || waits_for FROM queue_jobs.job WHERE id = $orphan"), qr/^available: .*public\.mine.* does not exist/, 'dropped, its jobs wait');
sql('mallory', q{CREATE FUNCTION public.mine(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT current_user || ' again'$$; SELECT queue_jobs.resume('mine')});
is(ended($orphan), 'completed "friend again"', 'and run when it is back');

# Roles: renamed, replaced by another of the same name.
sql(undef, 'CREATE ROLE changing LOGIN; GRANT queue_jobs_enqueue TO changing');
my $renamed = meanwhile(q{'mine'}, 'ALTER ROLE changing RENAME TO changed', 'changing');
is(ended($renamed), 'completed "changed again"', "a renamed role's job is still its own");
my $replaced = meanwhile(q{'mine'}, 'DROP OWNED BY changed; DROP ROLE changed; CREATE ROLE changed LOGIN SUPERUSER', 'changed');
like(sql(undef, "SELECT state || ': ' || waits_for FROM queue_jobs.job WHERE id = $replaced"), qr/^available: role .* does not exist/, 'a job of a role that is gone is not taken for one of a new role of that name');
is(sql('mallory', "SELECT count(*) FROM queue_jobs.job WHERE id = $replaced"), '0', 'nor can anybody see it');

# ---- passwords of replicas ----

my ($status, $out, $err) = $node->psql($db, qq{SELECT queue_jobs.add_replica('broken', 'host=/nowhere password=$secret nonsense')});
unlike($err, qr/$secret/, 'a connection string that is refused is not shown');
sql(undef, qq{SELECT queue_jobs.add_replica('one', 'host=/nowhere user=nobody password=$secret'), queue_jobs.add_replica('two', 'postgresql://nobody:$secret\@127.0.0.1:1/db?sslpassword=$secret')});
sql('mallory', 'SELECT count(*) FROM queue_jobs.replica');
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.replica WHERE last_error IS NOT NULL});
unlike(sql(undef, 'SELECT r::text FROM queue_jobs.replica r'), qr/$secret/, 'nor is the password of one that is in use');
is(outcome('mallory', 'SELECT conninfo FROM queue_jobs.defined_replica'), '42501', 'which is for the owner alone');
$log = join '', grep { /\] queue_jobs / } slurp_file($node->logfile) =~ /^.*\n/mg;
unlike($log, qr/$secret/, 'nor has it, or anything else of hers, got into the log');
is(sql(undef, 'SELECT string_agg(DISTINCT who, \' \') FROM alice.seen'), 'alice', "alice's handler has run as her only");

$node->stop;
done_testing();
