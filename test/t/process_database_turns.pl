# More databases with jobs than queue_jobs.max_databases: they take turns, and none is forgotten.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

# No process leaves because it is idle: only to make room.
my $node = new_node('turns', extension => 0, conf => <<'CONF');
queue_jobs.max_databases = 2
queue_jobs.idle_timeout = '1h'
max_worker_processes = 12
CONF
my @databases = map { "d$_" } 1 .. 6;

sub everywhere
{
	my ($sql, @where) = @_;

	$node->safe_psql($_, $sql) foreach @where ? @where : @databases;
	return;
}

sub wait_everywhere
{
	my ($condition, @where) = @_;

	wait_until($node, $condition, db => $_) foreach @where ? @where : @databases;
	return;
}

foreach my $db (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION queue_jobs');
	define_gated($node, db => $db);
	$node->safe_psql($db, <<'SQL');
CREATE FUNCTION again() RETURNS void LANGUAGE sql AS $$
	INSERT INTO ran (n) VALUES (-1);
	SELECT queue_jobs.enqueue('again') WHERE NOT EXISTS (SELECT FROM gate WHERE n = -1);
	SELECT pg_sleep(0.001);
$$;
SELECT queue_jobs.define_worker('again', 'public.again');
SELECT queue_jobs.define_worker('claimed');
SQL
}

# Twice over, with a rest in between, which is when a database's slot can be given to another.
foreach my $round (1, 2)
{
	my $start = time;
	everywhere("SELECT queue_jobs.enqueue('quick', '{\"n\": $round}', delay => CASE WHEN n % 2 = 0 THEN interval '500 ms' END) FROM generate_series(1, 6) n");
	wait_everywhere("SELECT count(*) = 6 FROM ran WHERE n = $round");
	cmp_ok(time - $start, '<', 55, "six databases, two slots: each runs its jobs, round $round");
}
is(log_count($node, 'HINT:  You may need to increase "queue_jobs.max_databases"'), 1, 'the log says once what to increase');

# A job that falls due in a database without a slot, where nothing else happens.
everywhere(q{SELECT queue_jobs.enqueue('quick', '{"n": 3}', delay => '3 s')});
wait_everywhere('SELECT count(*) = 1 FROM ran WHERE n = 3');
pass('jobs that fall due later');

# Ticks.
everywhere(q{SELECT queue_jobs.schedule('tick', 'every 1 second', 'quick', '{"n": 4}')});
wait_everywhere('SELECT count(*) >= 3 FROM ran WHERE n = 4');
everywhere(q{SELECT queue_jobs.unschedule('tick')});
pass('schedules tick in all of them');

# All of them have something to do all the time.
everywhere(q{SELECT queue_jobs.enqueue('again') FROM generate_series(1, 3)});
wait_everywhere('SELECT count(*) >= 50 FROM ran WHERE n = -1');
everywhere('TRUNCATE ran');
wait_everywhere('SELECT count(*) >= 50 FROM ran WHERE n = -1');
pass('busy all the time they share the slots by turns');

# New roles, schedules and jobs of the busy ones get there, too.
$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN; GRANT queue_jobs_enqueue TO bob');
everywhere(q{SET SESSION AUTHORIZATION bob; SELECT queue_jobs.enqueue('quick', '{"n": 5}')});
wait_everywhere('SELECT count(*) = 1 FROM ran WHERE n = 5');
pass('… other roles there as well');

# Claimants: they wait in all databases, and are woken in all.
my %waiting = map { $_ => in_background($node, db => $_) } @databases;
$waiting{$_}->send(q{CALL queue_jobs.wait_for_jobs('{claimed}', timeout => '1 hour')}) foreach @databases;
wait_until($node, q{SELECT count(*) = 6 FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.wait_for_jobs%' AND wait_event_type = 'Extension'});
everywhere(q{SELECT queue_jobs.enqueue('claimed', delay => CASE WHEN current_database() > 'd3' THEN interval '1 s' END)});
$waiting{$_}->result foreach @databases;
is(join('', map { $waiting{$_}->error } @databases), '', 'claimants wait and are woken in each of them');
is($waiting{$_}->query(q{SELECT count(*) FROM queue_jobs.claim('me')}), '1', "… and there is a job for the one in $_") foreach @databases;
$waiting{$_}->quit foreach @databases;
everywhere('INSERT INTO gate VALUES (-1)');
wait_everywhere(q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state NOT IN ('completed', 'executing')});

# Two restores have the slots: the others' jobs say what they wait for. (Those of a role for which no executor is there.)
$node->safe_psql('postgres', 'CREATE ROLE carol LOGIN; GRANT queue_jobs_enqueue, queue_jobs_read TO carol');
everywhere("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND datname = 'd3'", 'd3');
my @restores = map { in_background($node, db => $_) } @databases[0, 1];
$_->query('INSERT INTO queue_jobs.live_job SELECT * FROM queue_jobs.live_job WHERE false') foreach @restores;
my $id = $node->safe_psql('d3', q{SET SESSION AUTHORIZATION carol; SELECT queue_jobs.enqueue('quick', '{"n": 6}')});
wait_until($node, "SELECT waits_for ~ 'turn.*queue_jobs.max_databases' FROM queue_jobs.job WHERE id = $id", db => 'd3');
is($node->safe_psql('d3', "SELECT reason FROM queue_jobs.explain_job($id) WHERE reason = 'max_databases'"), 'max_databases', 'to programs, too');
pass('while two restores have both slots, a job of another database says that it waits for its turn');
is($node->safe_psql('d3', "SELECT state FROM queue_jobs.job WHERE id = $id"), 'available', '… and waits');
my $third = in_background($node, db => 'd4');
$third->send('INSERT INTO queue_jobs.live_job SELECT * FROM queue_jobs.live_job WHERE false');
wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'd4' AND state = 'active' AND wait_event_type = 'Extension'});
pass('a third restore waits for a slot, so that nothing is run beside it');

# The third restore may get the first slot that becomes free, and keeps it; there is one for the job after the second.
$restores[0]->quit;
$third->result;
is($third->error, '', '… and goes on when there is one');
$restores[1]->quit;
wait_for_job($node, $id, 'completed', db => 'd3');
pass('… as the job does');
$third->quit;

# A restore comes to the database whose scheduler was asked to leave for another one, and keeps its slot: the other scheduler is asked, too.
my $schedulers = "FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'";
wait_until($node, "SELECT count(*) = 2 $schedulers");
my ($oldest, $newest) = split /\n/, $node->safe_psql('postgres', "SELECT datname || '|' || pid $schedulers ORDER BY backend_start");
my ($asked, $pid) = split /\|/, $oldest;
my ($waits) = grep { $newest !~ /^$_\|/ && $_ ne $asked } @databases;
my $restore = in_background($node, db => $asked);
everywhere("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND datname = '$waits'", $waits);
kill 'STOP', $pid;
$id = $node->safe_psql($waits, q{SET SESSION AUTHORIZATION carol; SELECT queue_jobs.enqueue('quick', '{"n": 8}')});
wait_until($node, "SELECT state = 'completed' OR coalesce(waits_for ~ 'turn.*queue_jobs.max_databases', false) FROM queue_jobs.job WHERE id = $id", db => $waits);
$restore->query('INSERT INTO queue_jobs.live_job SELECT * FROM queue_jobs.live_job WHERE false');
kill 'CONT', $pid;
wait_for_job($node, $id, 'completed', db => $waits);
pass('a database gets the slot of the other scheduler, when the one that was to leave for it makes way for a restore');
$restore->quit;
wait_until($node, "SELECT EXISTS (SELECT $schedulers AND datname = '$asked' AND backend_start < clock_timestamp() - interval '2 s')",
	meanwhile => sub { $node->safe_psql($asked, q{SELECT queue_jobs.enqueue('quick', '{"n": 9}')}) });
pass('the next scheduler there stays: it has not been asked to leave');

# Databases that go make room, and leave no trace.
everywhere('TRUNCATE ran, gate');
everywhere(q{SELECT queue_jobs.enqueue('again')});
wait_everywhere('SELECT count(*) >= 5 FROM ran');
foreach my $db (splice @databases, 0, 3)
{
	is($node->psql('postgres', "DROP DATABASE $db WITH (FORCE)"), 0, "$db is dropped under way");
	everywhere('TRUNCATE ran');
	wait_everywhere('SELECT count(*) >= 5 FROM ran');
}
pass('and the others go on');
everywhere('INSERT INTO gate VALUES (-1)');
wait_everywhere(q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state IN ('available', 'executing') AND worker <> 'claimed'});
is($node->psql('postgres', "DROP DATABASE $databases[0]"), 0, 'at rest one is dropped without force');
shift @databases;

# Restarts, a clean one and a crash.
foreach my $mode ('fast', 'immediate')
{
	everywhere(q{TRUNCATE ran; SELECT queue_jobs.enqueue('quick', '{"n": 7}', delay => '2 s') FROM generate_series(1, 2)});
	push @databases, "after_$mode";
	$node->safe_psql('postgres', "CREATE DATABASE after_$mode TEMPLATE $databases[0]");
	$node->stop($mode);
	$node->start;
	wait_everywhere('SELECT count(*) = 2 FROM ran');
	pass("after a restart ($mode) all of them are looked after");
}

is(log_count($node, 'PANIC|was terminated by signal'), 0, 'nothing has crashed');
$node->stop;
done_testing();
