# The load that faults are injected under: executors of functions and of procedures, claimants, schedules, deduplication,
# retries, healing and limits, as two roles; and the ledger, ordinary tables outside of the queue. What was asked for is
# written there in the transaction that enqueues, what was done in the transaction that does it. So it tells afterwards
# that each committed job ran exactly once (what a handler writes in its transaction) or at least once (procedures), that
# nothing ran that was rolled back, and that nothing is stuck or left. Whether a commit whose answer was lost took place,
# it tells as well: its rows are there or not, as the job is.
package QueueJobs::Load;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(define_load start_load);

# Settings of a server under the load.
our $conf = <<'CONF';
max_connections = 60
log_statement = none
queue_jobs.max_executors = 8
queue_jobs.max_executors_per_database = 6
queue_jobs.max_executors_per_role = 6
queue_jobs.idle_timeout = 1s
CONF

# The ledger has wide rows, to need new pages when there are none.
my $definitions = <<'SQL';
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
CREATE FUNCTION pause(seconds float8) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(seconds) $$;
CREATE FUNCTION work(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
	began timestamptz := clock_timestamp();
BEGIN
	IF job.worker = 'fails' AND random() < 0.4 THEN
		RAISE EXCEPTION 'not yet';
	END IF;
	PERFORM pause(random() * 0.01);
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
	PERFORM pause(random() * 0.02);
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
	PERFORM pause(random() * 0.005);
	INSERT INTO span VALUES (job.worker, refresh.key, job.id, began, clock_timestamp());
END
$$;
CREATE FUNCTION ticks() RETURNS void LANGUAGE sql AS $$ INSERT INTO tick SELECT id, run_at FROM queue_jobs.current_job() $$;
CREATE FUNCTION heal(id bigint) RETURNS void LANGUAGE sql AS $$ UPDATE record SET status = 'ready', runs = runs + 1 WHERE record.id = heal.id $$;
CREATE FUNCTION waits(n bigint) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(600) $$;

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
	queue_jobs.define_worker('waits', 'public.waits');
SELECT queue_jobs.schedule('ticks', '* * * * * *', 'ticks');
SQL

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

# The ledger, and the workers.
sub define_load
{
	my ($node) = @_;

	$node->safe_psql('postgres', $definitions);
	return;
}

# Starts sessions that go on until they are told to stop, and connect again whatever happens to them. They leave their
# files with the node's. Returns what is to be told so.
#   light  as few of them as there can be, which the executors keep up with on a busy machine, too
sub start_load
{
	my ($node, %opts) = @_;
	my $light = $opts{light};

	my $self = bless {
		superuser => $node->safe_psql('postgres', 'SELECT current_user'),
		directory => $node->basedir,
		runs => []
	}, __PACKAGE__;
	$self->go_on_with($node);
	$self->start_sessions('enqueue', $self->{superuser}, $light ? 1 : 3);
	$self->start_sessions('enqueue', 'app', $light ? 1 : 2);
	$self->start_sessions('claim', $self->{superuser}, $light ? 1 : 4);
	$self->start_sessions('claim', 'app', $light ? 1 : 2);
	return $self;
}

# The load is for that server from now on, as soon as its sessions have lost the one before.
sub go_on_with
{
	my ($self, $node) = @_;

	my $file = "$self->{directory}/target";
	append_to_file("$file.new", $node->host . ' ' . $node->port . "\n");
	rename "$file.new", $file or die "could not rename $file.new: $!";
	$self->{node} = $node;
	return;
}

sub start_sessions
{
	my ($self, $name, $user, $clients) = @_;

	my $file = "$self->{directory}/$name.sql";
	append_to_file($file, $script{$name}) unless -e $file;
	push @{ $self->{runs} }, IPC::Run::start([ 'sh', '-c', <<'SH', 'load', $self->{directory}, $self->{node}->installed_command('pgbench'), $clients, $file, $user, "$self->{directory}/$name.$user.log" ]);
while [ ! -e "$1/stop" ] && [ -e "$1/target" ]; do
	read -r host port <"$1/target"
	"$2" -n -M simple -c "$3" -T 2 -f "$4" -h "$host" -p "$port" -U "$5" postgres
	sleep 0.1
done >>"$6" 2>&1
SH
	return;
}

# No more work, and no more ticks.
sub stop
{
	my ($self) = @_;

	append_to_file("$self->{directory}/stop", '');
	$_->finish foreach @{ $self->{runs} };
	return;
}

# Also if the test has died.
sub DESTROY
{
	my ($self) = @_;

	append_to_file("$self->{directory}/stop", '') if -d $self->{directory};
	return;
}

# Sessions that died had claimed jobs, which come back when their leases have run out. Who was killed three times is dead,
# and says so.
sub drain
{
	my ($self) = @_;

	my $node = $self->{node};
	my $rest = q{SELECT worker, state, waits_for, count(*), min(id) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead') GROUP BY 1, 2, 3};
	my $give_up = time + $PostgreSQL::Test::Utils::timeout_default;
	my $left;		# healing may enqueue some later
	until (($left = $node->safe_psql('postgres', $rest)) eq '' || time > $give_up)
	{
		retry_crashed($node);
		for my $user ($self->{superuser}, 'app')
		{
			IPC::Run::run([ $node->installed_command('pgbench'), '-n', '-c', 4, '-T', 1, '-f', "$self->{directory}/claim.sql", '-h', $node->host, '-p', $node->port,
				'-U', $user, 'postgres' ], '>', \my $out, '2>&1') if $node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'claimed' AND state <> 'completed'});
		}
		select undef, undef, undef, 0.1;
	}
	is($left, '', 'all queues drain');
	is( $node->safe_psql('postgres', q{SELECT id, last_error FROM queue_jobs.job WHERE state = 'dead' AND last_error !~ 'executor process crashed'}),
		'', 'no job is dead but by crashes');
	note('dead by crashes: ' . $node->safe_psql('postgres', q{SELECT count(queue_jobs.retry(id)) FROM queue_jobs.job WHERE state = 'dead'}));
	wait_until($node, $rest, expected => '', retry_crashed => 1);
	return;
}

# What was asked for is what was done.
sub check_ledger
{
	my ($self) = @_;

	my $node = $self->{node};
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
	wait_until($node, q{SELECT count(*) = 0 FROM record WHERE status = 'pending'});
	is($node->safe_psql('postgres', 'SELECT count(*) FROM record WHERE runs <> 1'), 0, 'every record was brought on, once, with or without a job of its own');
	return;
}

# What must not happen at the same time, or twice, by the clock that the server had; so for one that was not stepped.
sub check_order
{
	my ($self) = @_;

	my $node = $self->{node};
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
	return;
}

# Nothing is left behind, and all executors can be had, so no slot was leaked.
sub check_nothing_left
{
	my ($self) = @_;

	my $node = $self->{node};
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.running_jobs()});
	pass('nothing is shown as running');
	wait_until($node, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
	pass('no hold is left');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claimed_slot}), 0, 'no slot of a limit is left');
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('waits', '{"n": 1}') FROM generate_series(1, 6)});
	wait_until($node, q{SELECT count(*) = 6 FROM queue_jobs.running_jobs()});
	pass('all executors can be had');
	$node->safe_psql('postgres', q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'waits'});
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'waits' AND state <> 'cancelled'});
	return;
}

# The view queue has what the rows have: by counts that were made at the first look since the last crash, and kept since.
sub check_counts
{
	my ($self) = @_;

	my $states = 'scheduled available executing retryable waiting';
	my $counted = join ', ', map { "sum($_)" } split / /, $states;
	my $rows = join ', ', map { "count(*) FILTER (WHERE state = '$_')" } split / /, $states;
	ok(wait_until($self->{node}, "SELECT NOT EXISTS (SELECT queue, $counted FROM queue_jobs.queue WHERE available + scheduled + executing + retryable + waiting > 0 GROUP BY queue"
				. " EXCEPT SELECT queue, $rows FROM queue_jobs.job GROUP BY queue)"), 'what is counted is what there is');
	return;
}

# How much there was.
sub note_counts
{
	my ($self) = @_;

	note($self->{node}->safe_psql('postgres',
		q{SELECT worker, count(*) AS asked, (SELECT count(*) FROM done WHERE done.worker = a.worker) AS done FROM asked a GROUP BY 1 ORDER BY 1}));
	return;
}

1;
