# queue_jobs.run = off, for a database or the server: no executors, no ticks, no healing; jobs wait, say so, and can be claimed. Switched on
# again, they run, without a restart. So it is while default_transaction_read_only is on for the server.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('run', conf => "queue_jobs.idle_timeout = '300ms'\nqueue_jobs.max_databases = 2\n");
$node->safe_psql('postgres', 'CREATE ROLE dev LOGIN; CREATE DATABASE devs OWNER dev');
for my $db ('postgres', 'devs')
{
	$node->safe_psql($db, 'CREATE EXTENSION IF NOT EXISTS queue_jobs');
	define_gated($node, db => $db);
	$node->safe_psql($db, <<'SQL');
SELECT queue_jobs.define_worker('claimed');
CREATE TABLE record (id int PRIMARY KEY, done boolean NOT NULL DEFAULT false);
CREATE FUNCTION heal(n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.ran (n) VALUES (-3);
	UPDATE public.record SET done = true WHERE id = n;
$$;
SELECT queue_jobs.define_worker('heal', 'public.heal', record => 'public.record', record_key => 'n', pending => 'NOT done', heal_every => '1 s');
CREATE FUNCTION work_left() RETURNS SETOF jsonb LANGUAGE sql AS $$SELECT '{"n": -4}'::jsonb WHERE (SELECT count(*) FROM public.ran WHERE n = -4) < 2$$;
SELECT queue_jobs.define_worker('filled', 'public.quick', max_running_jobs => 1, remaining_work => 'SELECT public.work_left()');
SQL
	wait_until($node, 'SELECT count(*) = 2 FROM ran WHERE n = -4', db => $db);
}

my $n = 0;

sub enqueue
{
	my ($db, $worker, $options) = @_;

	$n++;
	return $node->safe_psql($db, "SELECT queue_jobs.enqueue('$worker', '{\"n\": $n}'" . ($options // '') . ')');
}

sub waits_for
{
	my ($db, $id) = @_;

	return $node->safe_psql($db, "SELECT waits_for FROM queue_jobs.job WHERE id = $id");
}

# ---- one database, by its owner ----

is($node->psql('postgres', q{SET SESSION AUTHORIZATION dev; ALTER DATABASE devs SET queue_jobs.run = off}), 0, 'the owner of the database may switch it off');
wait_for_no_processes($node, 'devs');
my $id = enqueue('devs', 'quick');
is(waits_for('devs', $id), '"queue_jobs.run" is off', 'a job says what it waits for');
$node->safe_psql('devs', q{SELECT queue_jobs.schedule('tick', 'every 1 second', 'quick', '{"n": -1}'); INSERT INTO record VALUES (1); TRUNCATE ran});
my $future = enqueue('devs', 'claimed', ", delay => '2 s'");
my $waiter = in_background($node, db => 'devs');
$waiter->query(q{CALL queue_jobs.wait_for_jobs('{claimed}', '1 min')});
is($waiter->query(q{SELECT id FROM queue_jobs.claim('me')}), $future, 'what applications claim falls due');
is($waiter->query("SELECT queue_jobs.complete($future, 1)") . $waiter->error, '', '… and is completed');
wait_for_no_processes($node, 'devs');
is($node->safe_psql('devs', 'SELECT count(*) FROM ran'), '0', 'nothing has run by then: no job, no tick, no healing, no filling');
# A scheduler that found nothing left to promote comes back once, for the history.
my %seen;
foreach (1 .. 30)
{
	enqueue('devs', 'quick');
	$seen{$_} = 1 foreach split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE datname = 'devs' AND backend_type ~ '^queue_jobs'});
}
cmp_ok(scalar(keys %seen), '<=', 1, 'enqueues start no process there');
my $here = enqueue('postgres', 'quick');
wait_for_job($node, $here, 'completed');
pass('other databases go on');

# What is not committed does not count.
$node->psql('postgres', 'BEGIN; ALTER DATABASE devs SET queue_jobs.run = on; ROLLBACK');
enqueue('devs', 'quick');
is(waits_for('devs', $id), '"queue_jobs.run" is off', 'an ALTER DATABASE that is rolled back changes nothing');

$node->restart;
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'devs' AND pid <> pg_backend_pid() AND backend_type ~ '^queue_jobs'});
enqueue('devs', 'quick');
is(waits_for('devs', $id), '"queue_jobs.run" is off', 'it is off after a restart');

$node->safe_psql('postgres', 'ALTER DATABASE devs SET queue_jobs.run = on');
wait_for_job($node, $id, 'completed', db => 'devs');
wait_until($node, 'SELECT count(*) > 30 AND count(*) FILTER (WHERE n = -1) >= 2 AND bool_or(n = -3) FROM ran', db => 'devs');
pass('switched on: jobs, ticks and healing go on, by themselves');

# Beside a job that runs.
$id = enqueue('devs', 'gated');
wait_for_job($node, $id, 'executing', db => 'devs');
$node->safe_psql('postgres', 'ALTER DATABASE devs SET queue_jobs.run = off');
# Once the scheduler has heeded it, it leaves, though the executor has to stay.
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'devs' AND backend_type = 'queue_jobs scheduler'});
my $next = enqueue('devs', 'quick');
$node->safe_psql('devs', "INSERT INTO gate VALUES ($n - 1)");
wait_for_job($node, $id, 'completed', db => 'devs');
wait_for_no_processes($node, 'devs');
is($node->safe_psql('devs', "SELECT state FROM queue_jobs.job WHERE id = $next"), 'available', 'a job that runs ends, and the next one waits');

# A prepared transaction counts when it is committed.
$node->safe_psql('devs', q{BEGIN; ALTER DATABASE devs SET queue_jobs.run = on; PREPARE TRANSACTION 'on'});
is($node->safe_psql('devs', "SELECT state FROM queue_jobs.job WHERE id = $next"), 'available', 'a prepared ALTER DATABASE changes nothing yet');
$node->safe_psql('devs', q{COMMIT PREPARED 'on'});
wait_for_job($node, $next, 'completed', db => 'devs');
pass('… until COMMIT PREPARED');
$node->safe_psql('postgres', 'ALTER DATABASE devs SET queue_jobs.run = off');
wait_for_no_processes($node, 'devs');
$next = enqueue('devs', 'quick');

# RESET ALL counts, too.
$node->safe_psql('postgres', 'ALTER DATABASE devs RESET ALL');
wait_for_job($node, $next, 'completed', db => 'devs');
pass('ALTER DATABASE … RESET ALL switches it on');
$node->safe_psql('devs', q{SELECT queue_jobs.unschedule('tick')});

# Switched off and on again at once, over and over, with jobs in between.
foreach (1 .. 20)
{
	$node->safe_psql('devs', 'ALTER DATABASE devs SET queue_jobs.run = off');
	$id = enqueue('devs', 'quick');
	$node->safe_psql('devs', 'ALTER DATABASE devs SET queue_jobs.run = on');
}
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state NOT IN ('completed')}, db => 'devs');
pass('no change is missed');

# ---- the server, but for a database ----

$node->safe_psql('postgres', 'ALTER DATABASE devs SET queue_jobs.run = on');
$node->append_conf('postgresql.conf', 'queue_jobs.run = off');
$node->reload;
wait_for_no_processes($node, 'postgres');
wait_until($node, q{SELECT waits_for = '"queue_jobs.run" is off' FROM queue_jobs.job WHERE id = } . enqueue('postgres', 'gated'));
pass('a reload switches all databases off');
wait_for_no_processes($node, 'postgres');
wait_for_job($node, enqueue('devs', 'quick'), 'completed', db => 'devs');
pass('but for one that is on');
$node->append_conf('postgresql.conf', 'queue_jobs.run = on');
$node->reload;
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'gated' AND state = 'executing'});
pass('and on again');
$node->safe_psql('postgres', 'INSERT INTO gate SELECT generate_series(1, 1000)');
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state <> 'completed'});

# A server that is held read-only, as after a promotion by pg_auto_failover; also a database that is on by itself.
$node->append_conf('postgresql.conf', 'default_transaction_read_only = on');
$node->restart;
my %held = map { $_ => $node->safe_psql($_, q{SET default_transaction_read_only = off; SELECT queue_jobs.enqueue('quick', '{"n": 0}')}) } 'postgres', 'devs';
is(waits_for($_, $held{$_}), '"default_transaction_read_only" is on for the server', "$_: nothing runs while the server is held read-only") foreach sort keys %held;
is($node->safe_psql('devs', "SELECT reason FROM queue_jobs.explain_job($held{devs}) LIMIT 1"), 'read_only', 'and explain_job() has a word for it');
is($node->safe_psql($_, "SELECT state FROM queue_jobs.job WHERE id = $held{$_}"), 'available', "$_: the job has not run") foreach sort keys %held;
$node->append_conf('postgresql.conf', 'default_transaction_read_only = off');
$node->reload;
wait_for_job($node, $held{$_}, 'completed', db => $_) foreach sort keys %held;
pass('it runs when the server no longer is');

# Databases that are off take no place from others.
$node->safe_psql('postgres', "CREATE DATABASE off$_ TEMPLATE devs") foreach 1 .. 3;
$node->safe_psql('postgres', "ALTER DATABASE off$_ SET queue_jobs.run = off") foreach 1 .. 3;
foreach my $round (1 .. 3)
{
	enqueue("off$round", 'quick');
	wait_for_job($node, enqueue($_, 'quick'), 'completed', db => $_) foreach 'postgres', 'devs';
}
pass('those that are on run, though there are more databases than places');
$node->safe_psql('postgres', "ALTER DATABASE off$_ RESET queue_jobs.run") foreach 1 .. 3;
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state NOT IN ('completed')}, db => "off$_") foreach 1 .. 3;
pass('and so do the others when they are on');

# ---- where it cannot be set ----

my ($status, $out, $err) = $node->psql('postgres', 'SET queue_jobs.run = off');
like($err, qr/cannot be set for a session.*HINT:.*ALTER DATABASE/s, 'SET is refused');
($status, $out, $err) = $node->psql('postgres', 'ALTER ROLE dev SET queue_jobs.run = off');
like($err, qr/cannot be set for a role/, 'ALTER ROLE is refused');

$waiter->quit;
$node->stop;
done_testing();
