# A system clock that is set, back and forward, by seconds, an hour, and days, under the load of fault_load.pl: the server's
# is ahead of the machine's by what a file says (test/lib/clock_ahead.c).
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Clock;
use QueueJobs::Load;
use QueueJobs::Test;
use Test::More;

my $node = new_node('clocks', conf => $QueueJobs::Load::conf, start => 0);
plan skip_all => 'clock_ahead.c cannot be built here' unless start_with_clock($node);
sub ask { return $node->safe_psql('postgres', $_[0]) }

ask('CREATE EXTENSION queue_jobs');
define_load($node);

# pg_sleep() would go on until the clock shows the time again.
ask('CREATE OR REPLACE FUNCTION pause(seconds float8) RETURNS void LANGUAGE plpgsql AS '
	  . '$$ BEGIN PERFORM count(*) FROM generate_series(1, (1000000 * seconds)::int); END $$');
ask(<<'SQL');
CREATE TABLE ran (what text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO ran VALUES (what) $$;
SELECT queue_jobs.define_worker('note', 'public.note', keep_completed => '1 hour'), queue_jobs.define_worker('held'),
	queue_jobs.define_worker('rated', 'public.note', rate_limit => 20, rate_period => '1 s', max_retries => 0),
	queue_jobs.define_worker('filled', 'public.note', remaining_work => $$SELECT '{"what": "filled"}'::jsonb WHERE NOT EXISTS (SELECT FROM public.ran WHERE what = 'filled')$$, max_running_jobs => 1);
SQL

# Work of all kinds that begins now is done now, schedules tick, records are healed.
sub goes_on
{
	my ($when) = @_;

	my $n = ask('SELECT coalesce(max(n), 0) FROM asked');
	my $job = ask('SELECT coalesce(max(job), 0) FROM tick');
	my $record = ask('SELECT coalesce(max(id), 0) FROM record');
	ask(q{DELETE FROM ran WHERE what = 'rated'});
	ask(q{SELECT count(queue_jobs.enqueue('rated', '{"what": "rated"}')) FROM generate_series(1, 30)});
	wait_until($node, "SELECT count(DISTINCT worker) = 7 FROM done WHERE n > $n");
	wait_until($node, "SELECT count(DISTINCT job) >= 2 FROM tick WHERE job > $job");
	wait_until($node, "SELECT count(*) > 0 FROM record WHERE id > $record AND status = 'ready'");
	wait_until($node, q{SELECT count(*) = 30 FROM ran WHERE what = 'rated'});
	pass("$when: all goes on");
	return;
}

# What is to be seen of steps: a job in half an hour, a schedule for the time that it is then, two leases, one that waits.
my $later = ask(q{SELECT queue_jobs.enqueue('note', '{"what": "later"}', delay => '30 min')});
ask(q{SELECT queue_jobs.schedule('fixed', to_char(now() + '30 min', 'MI HH24 * * *'), 'note', '{"what": "fixed"}')});
ask(q{SELECT queue_jobs.enqueue_many('held', ARRAY['{}', '{}']::jsonb[])});
my ($first, $second) = split /\n/, ask(q{SELECT id FROM queue_jobs.claim('a', '{held}', max_jobs => 2, lease => '10 min') ORDER BY id});
my $kept = ask(q{SELECT queue_jobs.enqueue('note', '{"what": "kept"}')});
wait_for_job($node, $kept, 'completed');

my $load = start_load($node, light => 1);
goes_on('before');

# A little back: no tick comes again.
set_clock($node, -5);
goes_on('5 s back');
is(ask('SELECT run_at FROM tick GROUP BY 1 HAVING count(*) > 1'), '', '… and no tick comes twice');

# History is in partitions for periods of time, and the one before this period is emptied.
set_clock($node, -605);
goes_on('10 min back');
is(ask("SELECT state FROM queue_jobs.job WHERE id = $kept"), 'completed', '… and what was finished is kept');

# Leases hold; who waits does not wait for longer; what was to come is still to come.
my $waiter = in_background($node);
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('nothing')});
$waiter->send(q{CALL queue_jobs.wait_for_jobs('{nothing}', '3 s')});
ask(q{DELETE FROM ran WHERE what = 'filled'});
set_clock($node, -3600);
goes_on('an hour back');
wait_until($node, q{SELECT count(*) > 0 FROM ran WHERE what = 'filled'});
pass('… a limited-capacity worker is filled');
$waiter->result;
is($waiter->error, '', '… wait_for_jobs() returns in time');
$waiter->quit;
is(ask(q{SELECT count(*) FROM queue_jobs.claim('b', '{held}')}), 0, '… leases hold');
is(ask("SELECT queue_jobs.complete($first, 1)"), '', '… and their claimant completes');
is(ask(q{SELECT count(*) FROM ran WHERE what IN ('later', 'fixed')}), 0, '… what was to come is still to come');

set_clock($node, 3600);
goes_on('two hours forward');
wait_for_job($node, $later, 'completed');
is(ask(q{SELECT bool_and(at >= run_at) FROM ran, queue_jobs.job WHERE what = 'later' AND id = } . $later), 't', '… what was to come has come');
wait_until($node, q{SELECT count(*) = 1 FROM ran WHERE what = 'fixed'});
is(ask(q{SELECT id FROM queue_jobs.claim('b', '{held}')}), $second, '… the lease has run out');
like(($node->psql('postgres', "SELECT queue_jobs.complete($second, 1)"))[2], qr/ERROR/, '… and its claimant is told');

# A fixed time that comes again counts once; elapsed time counts as the clock shows it.
set_clock($node, 0);
goes_on('an hour back again');
set_clock($node, 3600);
goes_on('forward again');
is(ask(q{SELECT count(*) FROM ran WHERE what = 'fixed'}), 1, '… a fixed time counts once');

# Days forward, as a wrong clock has it for a moment: nothing stands still until then.
set_clock($node, 20 * 86400);
goes_on('days forward');
wait_until($node, q{SELECT count(*) = 2 FROM ran WHERE what = 'fixed'});
set_clock($node, 3600);
goes_on('days back');
wait_until($node, q{SELECT bool_and(next_run < clock_timestamp() + '25 hours') FROM queue_jobs.schedule});
pass('… and all schedules tick at their next time');

# What is due by a clock that was wrong is due when that time comes.
set_clock($node, 21 * 86400);
$load->stop;
ask(q{SELECT queue_jobs.unschedule('ticks'), queue_jobs.unschedule('fixed')});
ask(q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'held' AND state NOT IN ('completed', 'cancelled', 'dead')});
$load->drain;
$load->check_ledger;
$load->check_nothing_left;
is(ask('SELECT job FROM tick GROUP BY 1 HAVING count(*) > 1'), '', 'no job of a schedule ran twice');

# No process is at work but the launcher, asleep until the next job is due by the clock that it had.
ask(q{SELECT queue_jobs.drop_worker('heals'), queue_jobs.drop_worker('filled')});
$later = ask(q{SELECT queue_jobs.enqueue('note', '{"what": "later"}', delay => '1 day')});
wait_for_no_processes($node, 'postgres');
set_clock($node, 23 * 86400);
wait_for_job($node, $later, 'completed');
pass('a clock set forward is noticed by an idle server');

is(log_count($node, 'PANIC|deadlock detected|signal 11|signal 6|TRAP'), 0, 'no crash, no deadlock');
cmp_ok(log_count($node, 'the system clock was set'), '>=', 9, 'all was noticed');
$load->note_counts;
$node->stop;
done_testing();
