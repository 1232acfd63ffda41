# Faults, under load of every kind: executors of functions and of procedures, claimants, schedules, deduplication, retries,
# healing and limits, as two roles; while processes are terminated, cancelled and killed, the server is stopped and
# started, worker slots run out, and the disk is full for a while.
# A ledger outside of the queue tells afterwards that every committed job ran exactly once (what a handler writes in its
# transaction) or at least once (procedures), that nothing ran that was rolled back, and that nothing is stuck or left.
# QUEUE_JOBS_STRESS_SECONDS (make faults SECONDS=…) makes it longer than 25 seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} || 25;
my $seed = $ENV{QUEUE_JOBS_FAULTS_SEED} || int(time);
srand($seed);
note("QUEUE_JOBS_FAULTS_SEED=$seed");

# Small segments of WAL, so that files of tables can be kept from growing while those of WAL are not.
my $node = new_node('faults', init => [ extra => ['--wal-segsize=1'] ], conf => <<'CONF');
restart_after_crash = on
max_connections = 60
log_statement = none
queue_jobs.max_executors = 8
queue_jobs.max_executors_per_database = 6
queue_jobs.idle_timeout = 1s
CONF

# asked is the ledger of what is to be done, written with the enqueue; done that of what was. Both have wide rows, to
# need new pages when there are none.
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE app LOGIN;
GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
GRANT SELECT ON queue_jobs.job TO app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC;

CREATE TABLE asked (n bigserial PRIMARY KEY, worker text NOT NULL, role name DEFAULT current_user, padding char(200) DEFAULT '');
CREATE TABLE done (n bigint, worker text, job bigint, role name DEFAULT session_user, padding char(1000) DEFAULT '');
CREATE INDEX ON done (worker, n);
CREATE TABLE change (id bigserial PRIMARY KEY, worker text, key bigint, role name DEFAULT current_user, seen_by bigint);
CREATE INDEX ON change (worker, key, role) WHERE seen_by IS NULL;
CREATE TABLE span (worker text, key bigint, job bigint, began timestamptz, ended timestamptz, role name DEFAULT session_user);
CREATE TABLE tick (job bigint, run_at timestamptz);
CREATE TABLE record (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending', runs int NOT NULL DEFAULT 0);

CREATE FUNCTION soon(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '100 ms' $$;
CREATE FUNCTION work(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	IF job.worker = 'fails' AND random() < 0.4 THEN
		RAISE EXCEPTION 'not yet';
	END IF;
	PERFORM pg_sleep(random() * 0.01);
	INSERT INTO done VALUES (n, job.worker, job.id);
	IF job.worker LIKE 'limited%' THEN
		INSERT INTO span VALUES (job.worker, n % 3, job.id, began, clock_timestamp());
	END IF;
END
$$;
CREATE PROCEDURE proceed(n bigint) LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	IF random() < 0.2 THEN
		PERFORM pg_advisory_unlock_all();
	END IF;
	COMMIT;
	PERFORM pg_sleep(random() * 0.02);
	INSERT INTO done VALUES (n, job.worker, job.id);
	COMMIT;
	INSERT INTO span VALUES (job.worker, n % 3, job.id, began, clock_timestamp());
END
$$;
-- A run marks the changes of its key, and role, that it sees; one that it does not see needs another run.
CREATE FUNCTION refresh(key bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	UPDATE change c SET seen_by = job.id WHERE c.worker = job.worker AND c.key = refresh.key AND c.role = session_user AND c.seen_by IS NULL;
	PERFORM pg_sleep(random() * 0.005);
	INSERT INTO span VALUES (job.worker, refresh.key, job.id, began, clock_timestamp());
END
$$;
CREATE FUNCTION ticks() RETURNS void LANGUAGE sql AS $$ INSERT INTO tick SELECT id, run_at FROM queue_jobs.current_job() $$;
CREATE FUNCTION heal(id bigint) RETURNS void LANGUAGE sql AS $$ UPDATE record SET status = 'ready', runs = runs + 1 WHERE record.id = heal.id $$;
CREATE FUNCTION idle(n bigint) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION waits(n bigint) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(600) $$;
CREATE FUNCTION memory() RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_array(pg_backend_pid(), (SELECT sum(used_bytes) FROM pg_backend_memory_contexts)) $$;

SELECT queue_jobs.define_worker(name, handler, max_retries => 10000, retry_backoff => 'public.soon', keep_completed => '1 day')
  FROM (VALUES ('function', 'public.work'), ('fails', 'public.work'), ('procedure', 'public.proceed')) w (name, handler);
SELECT queue_jobs.define_worker('limited', 'public.work', max_retries => 10000, retry_backoff => 'public.soon', max_running_jobs => 2),
	queue_jobs.define_worker('limited procedure', 'public.proceed', max_retries => 10000, retry_backoff => 'public.soon', max_running_jobs => 2),
	queue_jobs.define_worker('limited key', 'public.proceed', max_retries => 10000, retry_backoff => 'public.soon', concurrency_key => 'key', concurrency_limit => 1),
	queue_jobs.define_worker('claimed', max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('executing', 'public.refresh', idempotent => true, max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('again', 'public.refresh', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once',
		max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('ticks', 'public.ticks', max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('heals', 'public.heal', idempotent => true, record => 'record', record_key => 'id', pending => $$status = 'pending'$$,
		heal_every => '2 s', heal_after => '1 s', max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('idle', 'public.idle'), queue_jobs.define_worker('waits', 'public.waits'), queue_jobs.define_worker('memory', 'public.memory');
SELECT queue_jobs.schedule('ticks', '* * * * * *', 'ticks');
SQL

# ---- the load: sessions that go on until they are told to stop, and connect again whatever happens to them ----

my %script = (
	enqueue => <<'SQL',
\set how random(1, 10)
\set a random(1, 30)
\set b random(1, 30)
BEGIN;
WITH a AS (INSERT INTO asked (worker) SELECT unnest(ARRAY['function', 'fails', 'procedure', 'claimed', 'limited', 'limited procedure', 'limited key'])
  RETURNING n, worker) SELECT count(queue_jobs.enqueue(worker, jsonb_build_object('n', n, 'key', n % 3))) FROM a;
INSERT INTO change (worker, key) VALUES ('executing', :a), ('again', :b);
SELECT queue_jobs.enqueue('executing', jsonb_build_object('key', :a));
\if :how = 1
SAVEPOINT s;
INSERT INTO change (worker, key) VALUES ('executing', :b);
SELECT queue_jobs.enqueue('executing', jsonb_build_object('key', :b));
ROLLBACK TO s;
\endif
SELECT queue_jobs.enqueue('again', jsonb_build_object('key', :b));
INSERT INTO record DEFAULT VALUES;
\if :how <= 4
SELECT queue_jobs.enqueue('heals', jsonb_build_object('id', currval('record_id_seq')));
\endif
\if :how >= 8
ROLLBACK;
\else
COMMIT;
\endif
\sleep 60 ms
SQL
	claim => <<'SQL',
\set how random(1, 10)
BEGIN;
SELECT coalesce(max(id), 0) AS id, coalesce(max(attempt), 0) AS attempt, coalesce(max(args ->> 'n')::bigint, 0) AS n
  FROM queue_jobs.claim('pgbench ' || pg_backend_pid(), '{claimed}', lease => '1 s') \gset
\if :id > 0
\if :how > 5
COMMIT;
\sleep 2 ms
BEGIN;
\endif
INSERT INTO done VALUES (:n, 'claimed', :id);
\if :how = 5
ROLLBACK;
\elif :how = 6
ROLLBACK;
BEGIN;
SELECT queue_jobs.fail(:id, :attempt, 'failed');
\else
SELECT queue_jobs.complete(:id, :attempt);
\endif
\endif
COMMIT;
\sleep 5 ms
SQL
);

my $stop = $node->basedir . '/stop';
my @load;
sub start_load
{
	my ($name, $user, $clients) = @_;

	my $file = $node->basedir . "/$name.sql";
	append_to_file($file, $script{$name}) unless -e $file;
	my $log = $node->basedir . "/$name.$user.log";
	push @load, IPC::Run::start([ 'sh', '-c',
		'while [ ! -e "$1" ]; do "$2" -n -M simple -c "$3" -T 2 -f "$4" -h "$5" -p "$6" -U "$7" postgres; sleep 0.1; done >>"$8" 2>&1',
		'load', $stop, $node->installed_command('pgbench'), $clients, $file, $node->host, $node->port, $user, $log ]);
	return;
}
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
start_load('enqueue', $superuser, 3);
start_load('enqueue', 'app', 2);
start_load('claim', $superuser, 4);
start_load('claim', 'app', 2);

# ---- the faults ----

my %count;
my $up = 1;

# The answer, or undef if the server has none at the moment.
sub ask
{
	my ($sql) = @_;

	my ($status, $out) = eval { $node->psql('postgres', $sql) };
	return defined $status && $status == 0 ? $out : undef;
}

sub wait_for_server
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until (defined ask('SELECT true'))
	{
		die 'the server does not come back' if time > $end;
		sleep 0.05;
	}
	return;
}

sub a_process
{
	my ($type) = @_;

	return ask("SELECT pid FROM pg_stat_activity WHERE backend_type = '$type' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");
}

sub send_signal
{
	my ($signal, $type) = @_;

	my $pid = a_process($type);
	return unless $pid;
	kill $signal, $pid;
	$count{"$type $signal"}++;
	wait_for_server() if $signal eq 'KILL';
	return;
}

# Worker slots are few, or enough, from then on.
sub restart_server
{
	my ($mode) = @_;

	$count{"stop $mode"}++;
	$node->stop($mode);
	$node->append_conf('postgresql.conf', 'max_worker_processes = ' . (4 + int(rand(12))));
	sleep rand(0.3);
	$node->start;
	return;
}

# No file of the server's grows beyond one MB, the size of a segment of WAL, while this lasts; new processes inherit it
# from the postmaster. To the server it is an error as ENOSPC would be, on all tables and none of its own files.
sub fill_disk
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my $pids = ask(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type LIKE 'queue_jobs %'});
	return unless defined $pids;
	$count{'disk full'}++;
	set_file_size($_, '1048576') foreach ($postmaster, split / /, $pids);
	sleep 1 + rand(1);
	set_file_size($postmaster, 'unlimited');
	$pids = ask(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity});
	set_file_size($_, 'unlimited') foreach split / /, $pids // '';
	return;
}

sub set_file_size
{
	my ($pid, $size) = @_;

	return system("prlimit --pid $pid --fsize=$size: >/dev/null 2>&1");
}

my $can_fill = set_file_size($$, 'unlimited') == 0;
my @faults = (
	[ 8, sub { send_signal('TERM', 'queue_jobs executor') } ],
	[ 4, sub { send_signal('INT', 'queue_jobs executor') } ],
	[ 3, sub { send_signal('KILL', 'queue_jobs executor') } ],
	[ 2, sub { send_signal('TERM', 'queue_jobs scheduler') } ],
	[ 1, sub { send_signal('KILL', 'queue_jobs scheduler') } ],
	[ 1, sub { send_signal('TERM', 'queue_jobs launcher') } ],
	[ 4, sub { send_signal('TERM', 'client backend') } ],
	[ 1, sub { send_signal('KILL', 'client backend') } ],
	[ 1, sub { restart_server('fast') } ],
	[ 1, sub { restart_server('immediate') } ],
	[ $can_fill ? 1 : 0, \&fill_disk ],
);
my @bag = map { my ($weight, $fault) = @$_; ($fault) x $weight } @faults;
my $end = time + $seconds;
my @queue;
while (time < $end)
{
	# each as often as its weight says, in any order
	@queue = sort { $a->[0] <=> $b->[0] } map { [ rand(), $_ ] } @bag unless @queue;
	(shift @queue)->[1]->();
	sleep 0.05 + rand(0.3);
}

# ---- what is left ----

append_to_file($stop, '');
$_->finish foreach @load;
$node->append_conf('postgresql.conf', 'max_worker_processes = 16');
$node->restart;
$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule('ticks')});

# Sessions that died had claimed jobs, which come back when their leases have run out. Who was killed three times is dead, and says so.
my $claimants = $node->basedir . '/claim.sql';
my $rest = q{SELECT count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead')};
my $give_up = time + $PostgreSQL::Test::Utils::timeout_default;
until (($node->safe_psql('postgres', $rest)) == 0 || time > $give_up)
{
	for my $user ($superuser, 'app')
	{
		IPC::Run::run([ $node->installed_command('pgbench'), '-n', '-c', 4, '-T', 1, '-f', $claimants, '-h', $node->host, '-p', $node->port,
			'-U', $user, 'postgres' ], '>', \my $out, '2>&1') if $node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'claimed' AND state <> 'completed'});
	}
	sleep 0.1;
}
is($node->safe_psql('postgres', 'SELECT worker, state, waits_for, count(*), min(id) FROM queue_jobs.job' . q{
	WHERE state NOT IN ('completed', 'cancelled', 'dead') GROUP BY 1, 2, 3}), '', 'all queues drain');
is( $node->safe_psql('postgres', q{SELECT id, last_error FROM queue_jobs.job WHERE state = 'dead' AND last_error !~ 'executor process crashed'}),
	'', 'no job is dead but by crashes');
note('dead by crashes: ' . $node->safe_psql('postgres', q{SELECT count(queue_jobs.retry(id)) FROM queue_jobs.job WHERE state = 'dead'}));
wait_until($node, "SELECT ($rest) = 0");

for my $worker ('function', 'fails', 'limited', 'claimed')
{
	is($node->safe_psql('postgres', "SELECT n, count(*) FROM done WHERE worker = '$worker' GROUP BY n HAVING count(*) <> 1 LIMIT 5"),
		'', "$worker: nothing was done twice");
}
for my $worker ('function', 'fails', 'limited', 'claimed', 'procedure', 'limited procedure', 'limited key')
{
	is($node->safe_psql('postgres', "SELECT n FROM asked WHERE worker = '$worker' AND n NOT IN (SELECT n FROM done WHERE worker = '$worker') LIMIT 5"),
		'', "$worker: all that was asked for was done");
	is($node->safe_psql('postgres', "SELECT n FROM done WHERE worker = '$worker' AND n NOT IN (SELECT n FROM asked WHERE worker = '$worker') LIMIT 5"),
		'', '… and nothing else');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM asked JOIN done USING (n, worker) WHERE asked.role <> done.role AND worker <> 'claimed'}),
	0, 'each by the role that asked');
is( $node->safe_psql('postgres', q{SELECT worker, key, count(*) FROM change WHERE seen_by IS NULL GROUP BY 1, 2 LIMIT 5}),
	'', 'every committed change was seen by a run');
is( $node->safe_psql('postgres', q{
	SELECT key, job, began FROM (SELECT *, lag(ended) OVER (PARTITION BY key, role ORDER BY began) AS before FROM span WHERE worker = 'again') r WHERE began < before LIMIT 5}),
	'', 'no two runs of an until_executed key overlapped');
my $most = q{SELECT coalesce(max(running), 0) FROM (SELECT sum(change) OVER (PARTITION BY %s ORDER BY at, change) AS running
	FROM span, LATERAL (VALUES (began, 1), (ended, -1)) e (at, change) WHERE worker = '%s') s};
is($node->safe_psql('postgres', sprintf($most, 'worker', 'limited')), 2, 'max_running_jobs was reached, and not exceeded, by functions');
is($node->safe_psql('postgres', sprintf($most, 'worker', 'limited procedure')), 2, 'and by procedures');
is($node->safe_psql('postgres', sprintf($most, 'key', 'limited key')), 1, 'nor was concurrency_limit');
is($node->safe_psql('postgres', 'SELECT run_at FROM tick GROUP BY 1 HAVING count(*) > 1'), '', 'no tick of a schedule fired twice');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM tick'), '>', 2, 'and they did fire');
wait_until($node, q{SELECT count(*) = 0 FROM record WHERE status = 'pending'});
is($node->safe_psql('postgres', 'SELECT count(*) FROM record WHERE runs <> 1'), 0, 'every record was brought on, once, with or without a job of its own');

is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.running_jobs()}), 0, 'nothing is shown as running');
wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
pass('no hold is left');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claimed_slot}), 0, 'no slot of a limit is left');
is(log_count($node, 'PANIC|deadlock detected|signal 11|signal 6|TRAP'), 0, 'no crash of our own, no deadlock');

# All executors can be had, so no slot was leaked; and they do not grow.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('waits', '{"n": 1}') FROM generate_series(1, 6)});
wait_until($node, q{SELECT count(*) = 6 FROM queue_jobs.running_jobs()});
pass('all executors can be had');
$node->safe_psql('postgres', q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'waits'});
$node->safe_psql('postgres', 'ALTER SYSTEM SET queue_jobs.max_executors_per_database = 1');
$node->safe_psql('postgres', 'ALTER SYSTEM SET queue_jobs.idle_timeout = 60000');
$node->restart;
my @memory;
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('idle', jsonb_build_object('n', n))) FROM generate_series(1, 3000) n});
	my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('memory', priority => 10)});
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'idle' AND state <> 'completed'});
	wait_for_job($node, $id, 'completed');
	push @memory, $node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('memory')});
	wait_for_job($node, $memory[-1], 'completed');
}
my @used = map { [ split /\|/, $node->safe_psql('postgres', "SELECT result ->> 0, result ->> 1 FROM queue_jobs.job WHERE id = $_") ] } @memory;
is($used[2][0], $used[1][0], 'one executor ran them all');
cmp_ok($used[2][1] - $used[1][1], '<', 65536, 'and its memory did not grow over 3000 jobs');

note("$_: $count{$_}") foreach sort keys %count;
note($node->safe_psql('postgres', q{SELECT worker, count(*) AS asked, (SELECT count(*) FROM done WHERE done.worker = a.worker) AS done FROM asked a GROUP BY 1 ORDER BY 1}));
note(log_count($node, 'all server processes terminated; reinitializing') . ' crashes of the server, '
	  . log_count($node, 'could not extend file') . ' refusals to grow a file');
note('the disk was never full: prlimit(1) is not here') unless $can_fill;
$node->stop;
done_testing();
