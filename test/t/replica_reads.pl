# Where jobs read from, with real replicas: two standbys and one that is fed by another. GitLab's table, the locations, replicas
# that are late, down, paused, promoted or on another timeline.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $conf = <<'CONF';
wal_receiver_status_interval = 1
wal_retrieve_retry_interval = 200ms
hot_standby_feedback = on
queue_jobs.replica_timeout = 60s
CONF
my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => $conf);
$primary->safe_psql('postgres', <<'SQL');
CREATE ROLE app LOGIN;
CREATE ROLE operator LOGIN PASSWORD 'secret';
GRANT USAGE ON SCHEMA queue_jobs TO app, operator;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
GRANT SELECT ON queue_jobs.job, queue_jobs.replica TO app;
CREATE SCHEMA app AUTHORIZATION app;
SET ROLE app;
CREATE TABLE app.t (id int PRIMARY KEY, v int NOT NULL);
-- What it reads, and where it was: the handler tells it in its result.
CREATE FUNCTION app.look(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
	SELECT jsonb_build_object('v', (SELECT v FROM app.t WHERE id = (args->>'id')::int), 'standby', pg_is_in_recovery(),
	                          'role', session_user, 'context', current_setting('queue_jobs.context', true));
$$;
CREATE FUNCTION app.tell(args jsonb, read jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT read $$;
CREATE FUNCTION app.tell_named(id int, read jsonb, more int DEFAULT 1) RETURNS jsonb LANGUAGE sql AS $$
	SELECT read || jsonb_build_object('id', id, 'more', more, 'current', (queue_jobs.current_job()).result->'v');
$$;
CREATE PROCEDURE app.tell_procedure(id int, read jsonb, INOUT seen jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN COMMIT; seen := read; END $$;
-- A read handler that would write, and one that fails.
CREATE FUNCTION app.scribble(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN INSERT INTO app.t VALUES (-1, -1); RETURN 'null'; END $$;
CREATE FUNCTION app.fail_on_replica(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN IF pg_is_in_recovery() THEN RAISE EXCEPTION 'not here'; END IF; RETURN '"here"'; END $$;
CREATE FUNCTION app.slow_on_replica(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN IF pg_is_in_recovery() THEN PERFORM pg_sleep(1000); END IF; RETURN '"here"'; END $$;
CREATE FUNCTION app.set_on_replica(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE before text := current_setting('app.leftover', true);
BEGIN PERFORM set_config('app.leftover', 'left', false); RETURN to_jsonb(coalesce(before, '')); END $$;

SELECT queue_jobs.define_worker('always', 'app.tell', read_handler => 'app.look');
SELECT queue_jobs.define_worker('sticky', 'app.tell', read_handler => 'app.look', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('delayed', 'app.tell', read_handler => 'app.look', data_consistency => 'delayed');
SELECT queue_jobs.define_worker('named', 'app.tell_named', read_handler => 'app.look', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('procedure', 'app.tell_procedure', read_handler => 'app.look', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('flagged', 'app.tell', read_handler => 'app.look', data_consistency => 'sticky', feature_flag => 'f');
SELECT queue_jobs.define_worker('dedup', 'app.tell', read_handler => 'app.look', data_consistency => 'sticky', idempotent => true);
SELECT queue_jobs.define_worker('scribble', 'app.tell', read_handler => 'app.scribble', max_retries => 0);
SELECT queue_jobs.define_worker('failing', 'app.tell', read_handler => 'app.fail_on_replica', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('slow', 'app.tell', read_handler => 'app.slow_on_replica', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('slow_timeout', 'app.tell', read_handler => 'app.slow_on_replica', data_consistency => 'sticky', timeout => '60 s', max_retries => 0);
SELECT queue_jobs.define_worker('leftover', 'app.tell', read_handler => 'app.set_on_replica', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('outside', data_consistency => 'sticky');
SELECT queue_jobs.define_worker('outside_delayed', data_consistency => 'delayed');
SQL
$primary->backup('backup');

sub new_standby
{
	my ($name, $from) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "primary_conninfo = '" . $from->connstr . " application_name=$name'\ncluster_name = '$name'\n");
	$standby->start;
	return $standby;
}
my $one = new_standby('one', $primary);
my $two = new_standby('two', $primary);
my $three = new_standby('three', $one);
my @standbys = ($one, $two, $three);

sub as_app
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'app' ]);
}

# What is enqueued from now on is not started before these standbys have replayed it, however long they take.
sub hold
{
	my ($node, $queue) = @_;
	return $node->safe_psql('postgres', "SELECT queue_jobs.pause('$queue')");
}

sub let_go
{
	my ($node, $queue, @standbys) = @_;

	wait_for_replay($node, @standbys);
	return $node->safe_psql('postgres', "SELECT queue_jobs.resume('$queue')");
}

# Writes a value and enqueues a job that is to see it; returns the id.
#   on  standbys that will have the value
my $row = 0;
sub enqueue
{
	my ($worker, %opts) = @_;
	my $node = $opts{node} // $primary;
	$row++;
	hold($node, $worker) if $opts{on};
	my $out = as_app($node, "BEGIN; INSERT INTO app.t VALUES ($row, $row);"
		  . "SELECT queue_jobs.enqueue('$worker', '{\"id\": $row}'" . ($opts{more} // '') . ");" . ($opts{also} // '') . 'COMMIT');
	my ($id) = $out =~ /^(\d+)/;
	let_go($node, $worker, @{ $opts{on} }) if $opts{on};
	return $id;
}

# strategy|data_consistency|on a standby|read its enqueuer's write
sub outcome
{
	my ($id, $node) = @_;
	$node //= $primary;
	wait_for_job($node, $id, 'completed');
	return $node->safe_psql('postgres', "SELECT load_balancing_strategy, data_consistency, result->'standby', result->'v' = args->'id'
		FROM queue_jobs.job WHERE id = $id");
}

sub error_of
{
	my ($node, $sql, @params) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => \@params);
	return $err;
}

sub add
{
	my ($on, $standby) = @_;
	my $name = $standby->name;
	$on->safe_psql('postgres', "SELECT queue_jobs.add_replica('$name', 'host=" . $standby->host . ' port=' . $standby->port
		  . " user=operator password=secret')");
	return;
}

sub replay
{
	my ($what, @standbys) = @_;
	$_->safe_psql('postgres', "SELECT pg_wal_replay_$what()") for @standbys;
	wait_until($_, "SELECT pg_get_wal_replay_pause_state() = '" . ($what eq 'pause' ? 'paused' : 'not paused') . "'") for @standbys;
	return;
}

# ---- replicas ----

like(error_of($primary, "SELECT queue_jobs.add_replica('x', 'host=x')", '-U', 'app'), qr/42501/, 'adding a replica is for the owner');
like(error_of($primary, "SELECT queue_jobs.pause_replica('x')", '-U', 'app'), qr/42501/, 'pausing one, too');
like(error_of($primary, "SELECT queue_jobs.add_replica('x', 'hosts=x')"), qr/22023.*invalid connection string/, 'an invalid string is refused');
like(error_of($primary, "SELECT queue_jobs.add_replica('x', 'service=x')"), qr/22023/, 'so is a service');
like(error_of($primary, "SELECT queue_jobs.add_replica('primary', 'host=x')"), qr/22023/, 'and the name of the primary');
like(error_of($primary, "SELECT queue_jobs.drop_replica('x')"), qr/42704/, 'a replica that is not there cannot be dropped');
like(error_of($primary, "SELECT queue_jobs.set_flag('f', 101)"), qr/22023/, 'a flag is on for no more than all jobs');

# No replica at all.
my %jobs = map { $_ => enqueue($_) } qw(always sticky delayed);
is(outcome($jobs{always}), 'primary|always|false|t', 'always: the primary');
is(outcome($jobs{sticky}), 'primary|sticky|false|t', 'sticky without a replica: the primary');
is(outcome($jobs{delayed}), 'primary|delayed|false|t', 'delayed without a replica: put back, then the primary');
is($primary->safe_psql('postgres', "SELECT attempt, extract(epoch FROM started_at - created_at)::int >= 6 FROM queue_jobs.job WHERE id = $jobs{delayed}"),
	'1|t', 'put back for 5 s, no attempt charged');

# As many as there is room for in shared memory, which no process knows to be no more.
$primary->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.add_replica('never ' || n, 'host=/nowhere') FROM generate_series(1, 64) n;
	SELECT count(*) FROM queue_jobs.replica; ROLLBACK});
add($primary, $_) for $one, $two, $three;
unlike($primary->safe_psql('postgres', 'SELECT * FROM queue_jobs.replica'), qr/secret/, 'the view shows no password');
like(error_of($primary, 'SELECT * FROM queue_jobs.defined_replica', '-U', 'app'), qr/42501/, 'nor can the table be read');
wait_until($primary, "SELECT count(*) = 3 FROM queue_jobs.replica WHERE state = 'ready' AND lag_bytes = 0");
pass('all replicas are ready, asked as the operator');

# ---- caught up ----

$primary->safe_psql('postgres', q{SELECT queue_jobs.set_flag('f', 0)});
%jobs = map { $_ => enqueue($_) } qw(always flagged scribble);
$jobs{$_} = enqueue($_, on => \@standbys) foreach qw(sticky delayed named procedure failing);
my $leftover = [ map { enqueue('leftover', on => \@standbys) } 1 .. 8 ];
my $context = enqueue('sticky', on => \@standbys, more => q{, context => '{"request": 7}'});
is(outcome($jobs{always}), 'primary|always|false|t', 'always: the primary, though replicas are there');
is(outcome($jobs{sticky}), 'replica|sticky|true|t', 'sticky: a replica that has caught up');
is(outcome($jobs{delayed}), 'replica|delayed|true|t', 'delayed: the same');
is(outcome($jobs{named}), 'replica|sticky|true|t', 'a handler with named parameters');
is($primary->safe_psql('postgres', "SELECT result->'id' = args->'id', result->'more', result->'current' = args->'id' FROM queue_jobs.job WHERE id = $jobs{named}"),
	't|1|t', '… gets them as well, and current_job() has what was read');
wait_for_job($primary, $jobs{procedure}, 'completed');
is($primary->safe_psql('postgres', "SELECT load_balancing_strategy, result->'seen'->'standby', result->'seen'->'v' = args->'id' FROM queue_jobs.job WHERE id = $jobs{procedure}"),
	'replica|true|t', 'a procedure');
is(outcome($jobs{flagged}), 'primary|always|false|t', 'a flag that is off: always');
is($primary->safe_psql('postgres', "SELECT result->>'role', read_from IN ('one', 'two', 'three') FROM queue_jobs.job WHERE id = $jobs{sticky}"),
	'app|t', 'the replica is read as the job\'s role, not as the operator');
wait_for_job($primary, $context, 'completed');
is($primary->safe_psql('postgres', "SELECT result->>'context' FROM queue_jobs.job WHERE id = $context"), '{"request": 7}', 'the context is set there');
is($primary->safe_psql('postgres', "SELECT bool_and(started_at >= created_at + interval '1 s') FROM queue_jobs.job WHERE data_consistency <> 'always'"),
	't', 'none of them started before 1 s');
is($primary->safe_psql('postgres', "SELECT run_at < created_at + interval '1 s' FROM queue_jobs.job WHERE id = $jobs{flagged}"), 't', '… but with the flag off');
wait_for_job($primary, $_, 'completed') for @$leftover;
is($primary->safe_psql('postgres', "SELECT string_agg(DISTINCT load_balancing_strategy || '=' || (result #>> '{}'), ' ') FROM queue_jobs.job WHERE worker = 'leftover'"),
	'replica=', 'no job finds what another has left in the session on the replica');

wait_for_job($primary, $jobs{scribble}, 'dead');
like($primary->safe_psql('postgres', "SELECT last_error FROM queue_jobs.job WHERE id = $jobs{scribble}"), qr/read-only transaction/, 'a read handler cannot write on the primary either');
# (For this job only: on a busy machine others might take that long as well.)
$primary->safe_psql('postgres', q{ALTER SYSTEM SET queue_jobs.replica_read_timeout = '1s'; SELECT pg_reload_conf()});
$jobs{slow} = enqueue('slow', on => \@standbys);
wait_for_job($primary, $_, 'completed') for $jobs{failing}, $jobs{slow};
$primary->safe_psql('postgres', q{ALTER SYSTEM RESET queue_jobs.replica_read_timeout; SELECT pg_reload_conf()});
is($primary->safe_psql('postgres', "SELECT load_balancing_strategy, result, attempt FROM queue_jobs.job WHERE worker IN ('failing', 'slow')"),
	qq{primary|"here"|1\nprimary|"here"|1}, 'what fails on a replica, or takes too long there, is done by the primary, and is no failure');
like($primary->safe_psql('postgres', 'SELECT string_agg(last_error, $$ $$) FROM queue_jobs.replica'), qr/SQLSTATE (P0001|57014)|timeout while waiting/, '… but is noted');
wait_until($primary, q{SELECT sum(served) > 0 AND count(*) FILTER (WHERE state = 'ready') = 3 FROM queue_jobs.replica});
pass('… and does the replica no harm');
is($primary->safe_psql('postgres', q{SELECT jobs FROM queue_jobs.load_balancing WHERE worker = 'leftover' AND strategy = 'replica'}), '8', 'choices are counted');

# With a timeout of its own, that has passed by the time at which others would give up.
$jobs{slow_timeout} = enqueue('slow_timeout', on => \@standbys);
wait_until($primary, "SELECT state IN ('completed', 'dead') FROM queue_jobs.job WHERE id = $jobs{slow_timeout}");
is($primary->safe_psql('postgres', "SELECT state, load_balancing_strategy, result, last_error FROM queue_jobs.job WHERE id = $jobs{slow_timeout}"),
	'completed|primary|"here"|', 'what takes too long on a replica for the job\'s timeout is no failure either');

# A flag that is on for some: the same each time.
$primary->safe_psql('postgres', q{SELECT queue_jobs.set_flag('f', 40)});
is($primary->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE c = 'sticky') BETWEEN 300 AND 500, count(*) FILTER (WHERE c = 'sticky' AND d <> 'sticky')
	FROM (SELECT queue_jobs_internal.data_consistency('flagged', n) c, queue_jobs_internal.data_consistency('flagged', n) d FROM generate_series(1, 1000) n) x}), 't|0', 'a flag at 40 percent');

# Deduplication: the second that a job waits does not make it a future one.
hold($primary, 'dedup');
my ($first, $same) = split /\n/, as_app($primary, "INSERT INTO app.t VALUES (90000, 90000)") . as_app($primary,
	q{SELECT queue_jobs.enqueue('dedup', '{"id": 90000}'); SELECT queue_jobs.enqueue('dedup', '{"id": 90000}')});
is($same, $first, 'a duplicate is dropped while its job gives replicas time');
let_go($primary, 'dedup', @standbys);
is(outcome($first), 'replica|sticky|true|t', '… and that reads from a replica');

# ---- late ----

# The location is that of the commit, not one taken inside the transaction: a replica that stops in between has the one, and
# lacks the other.
my $session = in_background($primary, user => 'app');
$row++;
$session->query("BEGIN; INSERT INTO app.t VALUES ($row, $row)");
my $inside_job = $session->query("SELECT queue_jobs.enqueue('sticky', '{\"id\": $row}')");
my $inside = $session->query('SELECT pg_current_wal_insert_lsn()');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
wait_until($_, "SELECT pg_last_wal_replay_lsn() >= '$inside'") for $one, $two, $three;
replay('pause', $one, $two, $three);
$session->query(q{CREATE TABLE app.filler AS SELECT repeat('x', 1000) FROM generate_series(1, 1500)});
$session->query('COMMIT');
my $exact = $session->query('SELECT queue_jobs.last_commit_lsn()');
is($one->safe_psql('postgres', "SELECT queue_jobs.replayed('$inside'), queue_jobs.replayed('$exact'), count(*) FROM app.t WHERE id = $row"),
	't|f|0', 'a location taken inside the transaction would be stale: it is replayed, and the row is not there');
is(outcome($inside_job), 'primary|sticky|false|t', 'the job was not sent there');
is($primary->safe_psql('postgres', "SELECT wal_lsn = '$exact' FROM queue_jobs.job WHERE id = $inside_job"), 't', 'its location is exactly where its commit ends');

# All are late. Not needlessly late: what others have written since does not count.
# (If it was not held before those 5 s had passed: again.)
my ($second, $put_back);
foreach (1 .. 10)
{
	%jobs = map { $_ => enqueue($_) } qw(sticky delayed);
	$second = enqueue('delayed');
	wait_until($primary, "SELECT count(*) = 2 FROM queue_jobs.job WHERE id IN ($jobs{delayed}, $second) AND load_balancing_strategy IS NOT NULL");
	hold($primary, 'delayed');
	$put_back = $primary->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.job WHERE id IN ($jobs{delayed}, $second)
		AND load_balancing_strategy = 'retry' AND run_at >= created_at + interval '5 s' AND attempt = 0");
	last if $put_back == 2;
	$primary->safe_psql('postgres', q{SELECT queue_jobs.resume('delayed')});
	wait_for_job($primary, $_, 'completed') for $jobs{delayed}, $second;
}
is(outcome($jobs{sticky}), 'primary|sticky|false|t', 'sticky, none has caught up: the primary at once');
is($primary->safe_psql('postgres', "SELECT run_at < created_at + interval '5 s' FROM queue_jobs.job WHERE id = $jobs{sticky}"), 't', '… at once');
is($put_back, 2, 'delayed: put back, no attempt charged');
replay('resume', $two);
let_go($primary, 'delayed', $two);
is(outcome($jobs{delayed}), 'replica_retried|delayed|true|t', 'and then from a replica that has caught up meanwhile');
is($primary->safe_psql('postgres', "SELECT read_from, attempt, errors IS NULL FROM queue_jobs.job WHERE id = $jobs{delayed}"), 'two|1|t', '… from the only one that has');
outcome($second);
replay('pause', $two);
my $third = enqueue('delayed');
is(outcome($third), 'primary|delayed|false|t', 'delayed: put back once only, then the primary');

# A duplicate raises the location of the job that stands for it, also when that has been due for a while.
replay('resume', $one, $two, $three);
$primary->safe_psql('postgres', q{SELECT queue_jobs.pause('dedup')});
$first = enqueue('dedup');
wait_until($primary, "SELECT state = 'available' AND wal_lsn IS NOT NULL FROM queue_jobs.job WHERE id = $first");
wait_until($_, "SELECT count(*) = 1 FROM app.t WHERE id = $row") for $one, $two, $three;
replay('pause', $one, $two, $three);
is($session->query("BEGIN; UPDATE app.t SET v = 0 WHERE id = $row; SELECT queue_jobs.enqueue('dedup', '{\"id\": $row}')"), $first, 'a duplicate');
$session->query("UPDATE app.t SET v = id WHERE id = $row; COMMIT");
$exact = $session->query('SELECT queue_jobs.last_commit_lsn()');
$primary->safe_psql('postgres', q{SELECT queue_jobs.resume('dedup')});
is(outcome($first), 'primary|sticky|false|t', '… whose write is not on a replica yet is not missed');
is($primary->safe_psql('postgres', "SELECT wal_lsn = '$exact' FROM queue_jobs.job WHERE id = $first"), 't', '… for the location is now that of its commit');

# Prepared transactions, whose commit is another session's.
$row++;
as_app($primary, "BEGIN; INSERT INTO app.t VALUES ($row, $row); SELECT queue_jobs.enqueue('sticky', '{\"id\": $row}'); PREPARE TRANSACTION 'p'");
$primary->safe_psql('postgres', "COMMIT PREPARED 'p'");
my ($id) = $primary->safe_psql('postgres', "SELECT max(id) FROM queue_jobs.job WHERE worker = 'sticky'");
is(outcome($id), 'primary|sticky|false|t', 'a prepared transaction, none has caught up');
replay('resume', $one, $two, $three);
hold($primary, 'sticky');
$row++;
as_app($primary, "BEGIN; INSERT INTO app.t VALUES ($row, $row); SELECT queue_jobs.enqueue('sticky', '{\"id\": $row}'); PREPARE TRANSACTION 'p'");
$primary->safe_psql('postgres', "COMMIT PREPARED 'p'");
($id) = $primary->safe_psql('postgres', "SELECT max(id) FROM queue_jobs.job WHERE worker = 'sticky'");
# (Of its commit nothing is known: its location is that of when it falls due.)
wait_until($primary, "SELECT state = 'available' AND wal_lsn IS NOT NULL FROM queue_jobs.job WHERE id = $id");
let_go($primary, 'sticky', @standbys);
is(outcome($id), 'replica|sticky|true|t', 'a prepared transaction, caught up');

# recovery_min_apply_delay is a late replica like any other.
$one->append_conf('postgresql.conf', q{recovery_min_apply_delay = '1h'});
$one->reload;
wait_until($one, q{SELECT current_setting('recovery_min_apply_delay') = '1h'});
$primary->safe_psql('postgres', qq{SELECT queue_jobs.pause_replica('$_')}) for 'two', 'three';
is($primary->safe_psql('postgres', q{SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM queue_jobs.replica}), 'one ready, three paused, two paused', 'replicas are paused');
is(outcome(enqueue('sticky')), 'primary|sticky|false|t', 'paused replicas, and one that applies late: the primary');
$one->adjust_conf('postgresql.conf', 'recovery_min_apply_delay', '0');
$one->restart;
$primary->safe_psql('postgres', q{SELECT queue_jobs.resume_replica('two')});

# ---- claimants ----

# A claimant does not ask the replicas, and waits no more than a moment for the scheduler to do so: those that have caught up,
# if the job is to read from one, are known before.
sub claim
{
	my ($queue, $caught_up) = @_;
	as_app($primary, "CALL queue_jobs.wait_for_jobs('{$queue}', '1 min')");
	wait_until($primary, "SELECT count(*) > 0 FROM queue_jobs.replica WHERE state = 'ready' AND last_seen > now() - interval '5 s'
		AND replayed_lsn >= (SELECT wal_lsn FROM queue_jobs.job WHERE queue = '$queue' AND state = 'available')") if $caught_up;
	return as_app($primary, "SELECT worker, data_consistency, read_from, wal_lsn IS NOT NULL, load_balancing_strategy, attempt, queue_jobs.complete(id, attempt)
		FROM queue_jobs.claim('c', '{$queue}', max_jobs => 10)");
}
$primary->wait_for_catchup($one, 'replay');
my $replicas = qr/(one|two)/;
as_app($primary, "SELECT queue_jobs.enqueue('outside')");
is(as_app($primary, q{BEGIN; SELECT count(*) FROM queue_jobs.claim('c', '{outside}') WHERE started_at < created_at + interval '1 s'; ROLLBACK}), '0',
	'a claimant does not get it before 1 s');
like(claim('outside', 1), qr/^outside\|sticky\|$replicas\|t\|replica\|1\|$/, 'a claimant is told where to read from');
replay('pause', $one, $two);
as_app($primary, "SELECT queue_jobs.enqueue('outside')");
is(claim('outside'), 'outside|sticky|primary|t|primary|1|', '… from the primary, if no replica has caught up');
as_app($primary, "SELECT queue_jobs.enqueue('outside_delayed')");
is(claim('outside_delayed'), '', 'delayed: put back once');
replay('resume', $one, $two);
wait_until($primary, "SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'outside_delayed' AND load_balancing_strategy = 'retry' AND attempt = 0");
like(claim('outside_delayed', 1), qr/^outside_delayed\|delayed\|$replicas\|t\|replica_retried\|1\|$/, '… then a replica');
replay('pause', $one, $two);
as_app($primary, "SELECT queue_jobs.enqueue('outside_delayed')");
is(claim('outside_delayed'), '', 'delayed, another one: put back once');
as_app($primary, "CALL queue_jobs.wait_for_jobs('{outside_delayed}', '1 min')");
is(as_app($primary, q{SELECT load_balancing_strategy, queue_jobs.snooze(id, attempt, '0') FROM queue_jobs.claim('c', '{outside_delayed}')}), 'primary|', '… then the primary');
is(claim('outside_delayed'), 'outside_delayed|delayed|primary|t|primary|2|', '… also after the claimant has snoozed it');
replay('resume', $one, $two);

# ---- read your writes, anywhere ----

$session->query("INSERT INTO app.t VALUES (100000, 1)");
my $lsn = $session->query('SELECT queue_jobs.last_commit_lsn()');
$one->safe_psql('postgres', "CALL queue_jobs.wait_for_replay('$lsn', '1 min')");
is($one->safe_psql('postgres', "SELECT queue_jobs.replayed('$lsn'), count(*) FROM app.t WHERE id = 100000"), 't|1', 'wait_for_replay()');
is($one->safe_psql('postgres', 'SELECT queue_jobs.last_commit_lsn() IS NULL'), 't', 'a standby commits nothing');
replay('pause', $one);
$session->query("INSERT INTO app.t VALUES (100001, 1)");
$lsn = $session->query('SELECT queue_jobs.last_commit_lsn()');
like(error_of($one, "CALL queue_jobs.wait_for_replay('$lsn', '200 ms')"), qr/57014: timed out/, '… times out');
like(error_of($one, "BEGIN; CALL queue_jobs.wait_for_replay('$lsn', '1 min')"), qr/2D000/, '… not within a transaction');
my $waiter = in_background($one);
my $pid = $waiter->pid;
$waiter->send("CALL queue_jobs.wait_for_replay('$lsn', '1 hour')");
wait_until($one, "SELECT wait_event_type = 'Extension' AND backend_xmin IS NULL AND xact_start IS NULL FROM pg_stat_activity WHERE pid = $pid");
replay('resume', $one);
$waiter->result;
is($waiter->error, '', '… holds no snapshot, and ends when it is replayed');
$primary->safe_psql('postgres', "CALL queue_jobs.wait_for_replay('$lsn', '1 min')");
like(error_of($primary, "CALL queue_jobs.wait_for_replay('FFFF/0', '1 min')"), qr/55000/, 'a primary has all that was ever written, or never will');
is($primary->safe_psql('postgres', "SELECT queue_jobs.replayed('$lsn'), queue_jobs.replayed('FFFF/0')"), 't|f', '… and says so');

# A position that ends a page, or a segment, is one that an idle standby gets to; the server's own insert position is not.
my $superuser = in_background($primary);
for my $fill ('page', 'segment')
{
	my $emit = $fill eq 'segment' ? 'PERFORM pg_switch_wal();' : <<'SQL';
	FOR try IN 1..20 LOOP
		room := 8192 - mod(pg_current_wal_insert_lsn() - '0/0', 8192);
		PERFORM pg_logical_emit_message(false, 'x', repeat('y', CASE WHEN room < 1000 THEN 1000 ELSE room - 55 END::int));
		EXIT WHEN mod(pg_current_wal_insert_lsn() - '0/0', 8192) = 24;
	END LOOP;
SQL
	my $expected = $fill eq 'segment' ? '40|0' : '24|0';
	my ($position, $found);
	# (Again if one of the server's own processes has written something in between.)
	foreach (1 .. 20)
	{
		(my $insert, $position) = split /\|/, $superuser->query("DO \$\$ DECLARE room numeric; BEGIN $emit END \$\$;"
			  . 'SELECT pg_current_wal_insert_lsn(), replayed FROM queue_jobs.replay_position()');
		$found = $primary->safe_psql('postgres', "SELECT '$insert'::pg_lsn - '$position', mod('$position'::pg_lsn - '0/0', 8192)");
		last if $found eq $expected;
	}
	is($found, $expected, "the end of a $fill");
	is(error_of($one, "CALL queue_jobs.wait_for_replay('$position', '1 min')"), '', '… is replayed');
}

# ---- down, cascaded, promoted ----

$one->stop('immediate');
is(outcome(enqueue('sticky', on => [ $two ])), 'replica|sticky|true|t', 'one replica is down: another');
$two->stop;
is(outcome(enqueue('sticky')), 'primary|sticky|false|t', 'all are down: the primary');
wait_until($primary, q{SELECT count(*) = 2 FROM queue_jobs.replica WHERE state = 'unreachable' AND retry_at IS NOT NULL AND last_error <> ''});
pass('the view tells');
$one->start;
$two->start;
$primary->safe_psql('postgres', qq{SELECT queue_jobs.pause_replica('$_')}) for 'one', 'two';
$primary->safe_psql('postgres', q{SELECT queue_jobs.resume_replica('three')});
wait_until($primary, q{SELECT state = 'ready' AND lag_bytes = 0 FROM queue_jobs.replica WHERE name = 'three'});
is(outcome(enqueue('sticky', on => [ $three ])), 'replica|sticky|true|t', 'a cascaded standby serves, too');

# A promoted one, whose writes go their own way, is none any more.
$primary->safe_psql('postgres', q{SELECT queue_jobs.pause_replica('three'), queue_jobs.resume_replica('two')});
$two->promote;
is(outcome(enqueue('sticky')), 'primary|sticky|false|t', 'a promoted replica is left alone');
is($primary->safe_psql('postgres', q{SELECT state FROM queue_jobs.replica WHERE name = 'two'}), 'not a standby', '… and shown as such');
$two->stop('immediate');

# Failover: "one" becomes the primary, "three" follows it to the new timeline.
$primary->safe_psql('postgres', q{SELECT queue_jobs.pause('sticky')});
my $unsent = enqueue('sticky');
$primary->wait_for_catchup($one, 'replay');
$_->quit for $session, $superuser;
$primary->stop('immediate');
$one->promote;
$one->safe_psql('postgres', q{SELECT queue_jobs.resume_replica('three')});
wait_until($one, q{SELECT state = 'ready' AND lag_bytes = 0 FROM queue_jobs.replica WHERE name = 'three'});
# (Its location is that of when it falls due, or of when this server first looks. What follows waits for both.)
wait_until($one, "SELECT state = 'available' AND wal_lsn IS NOT NULL FROM queue_jobs.job WHERE id = $unsent");
is(outcome(enqueue('sticky', node => $one, on => [ $three ]), $one), 'replica|sticky|true|t', 'after a failover, a replica of the new primary');
is(outcome($unsent, $one), 'replica|sticky|true|t', '… also for a job of the old one');

# A replica that stays on the old timeline, however far it has got, is none of ours.
$primary->append_conf('postgresql.conf', "recovery_target_timeline = 'current'\n");
$primary->set_standby_mode;
$primary->start;
$one->safe_psql('postgres', q{SELECT queue_jobs.pause_replica('three'), queue_jobs.add_replica('old', 'host=} . $primary->host . ' port=' . $primary->port . q{')});
is(outcome(enqueue('sticky', node => $one), $one), 'primary|sticky|false|t', 'a replica on the old timeline is left alone');
is($one->safe_psql('postgres', q{SELECT state FROM queue_jobs.replica WHERE name = 'old'}), 'other timeline', '… and shown as such');

# Who goes on with other jobs holds no connection to a replica that was paused.
$one->safe_psql('postgres', q{SELECT queue_jobs.pause_replica('old'), queue_jobs.resume_replica('three')});
$one->safe_psql('postgres', q{ALTER SYSTEM SET queue_jobs.max_executors_per_database = 1; SELECT pg_reload_conf()});
wait_until($one, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
$one->safe_psql('postgres', q{ALTER SYSTEM SET queue_jobs.idle_timeout = '1 h'; SELECT pg_reload_conf()});
is(outcome(enqueue('sticky', node => $one, on => [ $three ]), $one), 'replica|sticky|true|t', 'an executor has a connection');
$one->safe_psql('postgres', q{SELECT queue_jobs.pause_replica('three')});
my $connections = q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'queue_jobs' AND backend_type = 'client backend'};
my $end = time + $PostgreSQL::Test::Utils::timeout_default;
while ($three->safe_psql('postgres', $connections) ne '0' && time < $end)
{
	outcome(enqueue('always', node => $one), $one);
}
is($three->safe_psql('postgres', $connections), '0', '… that it closes when it next runs any job');

# Another server altogether, and one that has no WAL for replicas. (A copy of the template would have the primary's system identifier.)
my $alien = new_node('alien', init => [ force_initdb => 1 ], conf => "wal_level = minimal\nmax_wal_senders = 0\n");
$one->safe_psql('postgres', q{SELECT queue_jobs.drop_replica('old'), queue_jobs.add_replica('alien', 'host=} . $alien->host . ' port=' . $alien->port . q{')});
$one->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.replica});
wait_until($one, q{SELECT state = 'foreign' FROM queue_jobs.replica WHERE name = 'alien'});
pass('a replica of another server is left alone');
$alien->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside', data_consistency => 'delayed'); SELECT queue_jobs.enqueue('outside')});
$alien->safe_psql('postgres', q{CALL queue_jobs.wait_for_jobs('{outside}', '10 s')});
is($alien->safe_psql('postgres', q{SELECT load_balancing_strategy, read_from FROM queue_jobs.claim('c')}), 'primary_no_wal|primary', 'a server without WAL for replicas: the primary');

$_->stop for $alien, $three, $one, $primary;
done_testing();
