# Conditions and queries of workers that take long, here for ever, keep no other role waiting: not its jobs, retries, schedules, nor its own
# healing and filling. Executors of the definer call them, and the scheduler never does.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('upkeep', conf => "queue_jobs.max_executors = 4\nqueue_jobs.max_executors_per_database = 4");

sub sql
{
	my ($role, $sql) = @_;

	return $node->safe_psql('postgres', (defined $role ? "SET SESSION AUTHORIZATION $role; " : '') . $sql);
}

sql(undef, <<'SQL');
CREATE ROLE slow LOGIN;
CREATE ROLE quick LOGIN;
CREATE ROLE mute NOLOGIN;
GRANT queue_jobs_define, queue_jobs_enqueue, queue_jobs_read TO slow, quick, mute;
GRANT EXECUTE ON FUNCTION queue_jobs.cancel TO slow;
GRANT CREATE ON DATABASE postgres TO slow, quick, mute;
SQL
sql('slow', <<'SQL');
CREATE SCHEMA slow;
CREATE TABLE slow.record (id int PRIMARY KEY, done boolean NOT NULL DEFAULT false);
CREATE TABLE slow.asked (n bigint GENERATED ALWAYS AS IDENTITY, what text);
INSERT INTO slow.record SELECT generate_series(1, 3);
CREATE FUNCTION slow.gate() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(4711);
	RETURN true;
END
$$;
CREATE FUNCTION slow.work(id int) RETURNS void LANGUAGE sql AS 'UPDATE slow.record SET done = true WHERE record.id = work.id';
CREATE FUNCTION slow.ask() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO slow.asked (what) VALUES (current_user || ' ' || session_user);
	RETURN '{"id": 1}';
END
$$;
SQL
sql('quick', <<'SQL');
CREATE SCHEMA quick;
CREATE TABLE quick.record (id int PRIMARY KEY, done boolean NOT NULL DEFAULT false);
CREATE TABLE quick.ran (what text);
CREATE FUNCTION quick.work(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF args ? 'fails' AND (queue_jobs.current_job()).attempt = 1 THEN
		PERFORM queue_jobs.retry_in('1 s');
		RAISE EXCEPTION 'once';
	END IF;
	INSERT INTO quick.ran VALUES (args ->> 'what');
	UPDATE quick.record SET done = true WHERE id = (args ->> 'id')::int;
END
$$;
SELECT queue_jobs.define_worker('work', 'quick.work', urgency => 'high');
SELECT queue_jobs.schedule('tick', '* * * * * *', 'work', '{"what": "tick"}', if_running => 'allow');
SQL
sub ran
{
	my ($what) = @_;

	wait_until($node, "SELECT count(*) > 0 FROM quick.ran WHERE what = '$what'");
	return;
}
ran('tick');

# More of them than there are executors, of either kind.
my $gate = in_background($node);
$gate->query('SELECT pg_advisory_lock(4711)');
sql('slow', <<'SQL');
SELECT queue_jobs.define_worker('heals ' || n, 'slow.work', record => 'slow.record', record_key => 'id', pending => 'NOT done AND slow.gate()', heal_every => '1 s'),
	queue_jobs.define_worker('fills ' || n, 'slow.work', max_running_jobs => 1, remaining_work => $$SELECT '{"id": 1}'::jsonb WHERE slow.gate()$$)
  FROM generate_series(1, 10) n;
SQL
my $blocked = q{SELECT count(*) %s FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.objid = 4711 AND NOT l.granted
	AND a.backend_type = '%s'};
wait_until($node, sprintf($blocked, '= 3', 'queue_jobs executor'));
is(sql(undef, q{SELECT string_agg(DISTINCT usename, ' ') FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE l.locktype = 'advisory' AND l.objid = 4711 AND NOT l.granted}),
	'slow', 'all executors but one, as the definer');

sql('quick', 'DELETE FROM quick.ran');
sql('quick', <<'SQL');
SELECT queue_jobs.enqueue('work', '{"what": "now"}'), queue_jobs.enqueue('work', '{"what": "later"}', delay => '1 s'), queue_jobs.enqueue('work', '{"what": "again", "fails": 1}');
SQL
ran($_) foreach qw(now later again tick);
pass('jobs, retries and schedules of others go on');
sql('quick', <<'SQL');
INSERT INTO quick.record VALUES (1), (2);
SELECT queue_jobs.define_worker('heals', 'quick.work', record => 'quick.record', record_key => 'id', pending => 'NOT done AND id = 1', heal_every => '1 s');
SELECT queue_jobs.define_worker('fills', 'quick.work', max_running_jobs => 1, remaining_work => 'SELECT ''{"id": 2}''::jsonb FROM quick.record WHERE NOT done AND id = 2');
SQL
wait_until($node, 'SELECT bool_and(done) FROM quick.record');
pass('so do their healing and filling');
is(sql(undef, sprintf($blocked, '> 0', 'queue_jobs executor')), 't', 'the others still wait');
is(sql(undef, sprintf($blocked, '', 'queue_jobs scheduler')), '0', 'the scheduler does not');
is(sql('slow', q{SELECT count(*) > 0, count(*) = count(DISTINCT args) FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND state IN ('available', 'executing')}), 't|t',
	'of each worker one healing waits or runs');
is(sql('quick', q{SELECT count(*) FROM queue_jobs.job WHERE worker LIKE 'queue_jobs.%' AND args ->> 'worker' LIKE '% %'}), '0', 'which others do not see');

# A healing may be cancelled, as any job.
my $cancelled = sql('slow', q{SELECT id FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND state = 'executing' LIMIT 1});
sql('slow', "SELECT queue_jobs.cancel($cancelled)") if $cancelled;
$gate->quit;
wait_until($node, 'SELECT bool_and(done) FROM slow.record');
wait_until($node, q{SELECT bool_and(remaining = 1) FROM queue_jobs.capacity WHERE worker LIKE 'fills %'});
pass('with the gate open, all is healed and filled');
sql('slow', q{SELECT queue_jobs.drop_worker(name) FROM queue_jobs.worker WHERE name LIKE '% %'});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker IN ('queue_jobs.heal', 'queue_jobs.fill') AND owner = 'slow' AND state NOT IN ('dead', 'cancelled')});
is(sql(undef, q{SELECT count(*) FROM queue_jobs.job WHERE worker IN ('queue_jobs.heal', 'queue_jobs.fill') AND state = 'completed'}), '0', 'their jobs are not kept');

# ---- remaining_work is asked once, as the definer ----

sql('slow', q{SELECT queue_jobs.define_worker('asks', 'slow.work', max_running_jobs => 1, remaining_work => 'SELECT slow.ask() WHERE (SELECT count(*) FROM slow.asked) = 0')});
# Its job succeeds, and it is asked again.
wait_until($node, q{SELECT remaining = 0 FROM queue_jobs.capacity WHERE worker = 'asks'});
is(sql(undef, q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'asks'}), '1', 'replaced when a job has succeeded');
is(sql(undef, 'SELECT string_agg(what, \',\') FROM slow.asked'), 'slow slow', 'each row of remaining_work is made once');
sql('slow', q{SELECT queue_jobs.drop_worker('asks')});

# ---- failures are seen ----

sql('slow', q{UPDATE slow.record SET done = false; SELECT queue_jobs.define_worker('broken', 'slow.work', record => 'slow.record', record_key => 'id', pending => '1 / (id - 1) > 0', heal_every => '1 s')});
wait_until($node, q{SELECT count(*) > 0 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND owner = 'slow' AND state = 'dead' AND args = '{"worker": "broken"}'});
is(sql('slow', q{SELECT DISTINCT last_error, max_attempts FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND args = '{"worker": "broken"}' AND state = 'dead'}), 'division by zero|1',
	'a condition that fails is to be seen');
cmp_ok(log_count($node, 'CONTEXT:.*healing of worker "broken"|healing of worker "broken"'), '>=', 1, '… and in the log');
sql('slow', q{SELECT queue_jobs.drop_worker('broken')});

# ---- steered ----

sql(undef, q{SELECT queue_jobs.disable_worker('queue_jobs.heal')});
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND state = 'executing'});
sql('quick', 'UPDATE quick.record SET done = false; DELETE FROM quick.ran');
ran('tick');
my $last = sql(undef, 'SELECT max(at) FROM queue_jobs.heal_tick');
wait_until($node, "SELECT max(at) > '$last' FROM queue_jobs.heal_tick");
is(sql(undef, 'SELECT done FROM quick.record WHERE id = 1'), 'f', 'healing can be disabled as a whole');
sql(undef, q{SELECT queue_jobs.enable_worker('queue_jobs.heal'), queue_jobs.pause('queue_jobs.heal')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND owner = 'quick' AND waits_for = 'queue "queue_jobs.heal" is paused'});
sql(undef, q{SELECT queue_jobs.resume('queue_jobs.heal')});
wait_until($node, 'SELECT done FROM quick.record WHERE id = 1');
pass('or paused');

# ---- definers that cannot log in ----

my ($stdout, $stderr);
sql('mute', 'CREATE SCHEMA mute; CREATE TABLE mute.record (id int PRIMARY KEY)');
$node->psql('postgres', q{SET SESSION AUTHORIZATION mute; SELECT queue_jobs.define_worker('mute', record => 'mute.record', record_key => 'id', pending => 'true', heal_every => '1 s')},
	stdout => \$stdout, stderr => \$stderr);
like($stderr, qr/WARNING:  records of worker "mute" are not healed\nDETAIL:  Role "mute" is not permitted to log in\./, 'a definer that cannot log in is told');
is(sql('mute', q{SELECT finding FROM queue_jobs.check_workers() WHERE worker = 'mute' AND finding LIKE '%log in%'}), 'its records are not healed: role "mute" is not permitted to log in',
	'check_workers() says so');
sql('mute', 'INSERT INTO mute.record VALUES (1)');
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'queue_jobs.heal' AND owner = 'mute' AND waits_for = 'role "mute" is not permitted to log in'});
pass('so does the job');
sql(undef, 'ALTER ROLE mute LOGIN');
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'mute'});
pass('until it can');

# ---- by hand ----

is(sql('slow', 'SELECT count(*) FROM queue_jobs.worker WHERE name LIKE \'queue_jobs.%\''), '0', 'they are no workers that anybody defined');
foreach my $call (q{enqueue('queue_jobs.heal', '{"worker": "heals"}')}, q{try_enqueue('queue_jobs.fill', '{"worker": "fills"}')}, q{define_worker('queue_jobs.heal')},
	q{define_worker('queue_jobs.mine')}, q{drop_worker('queue_jobs.fill')}, q{disable_worker('queue_jobs.heal')}, q{schedule('s', '@daily', 'queue_jobs.heal', '{"worker": "heals"}')},
	q{assert_idempotent('queue_jobs.heal', '{"worker": "heals"}')})
{
	$node->psql('postgres', "SET SESSION AUTHORIZATION slow; SELECT queue_jobs.$call", stdout => \$stdout, stderr => \$stderr);
	like($stderr, qr/ERROR:  .*(?:cannot be enqueued by hand|is reserved|permission denied for worker|cannot be tested)/, $call);
}

$node->stop;
done_testing();
