# Nothing polls: where there is nothing to do no process runs a query, or even wakes up.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('idle', extension => 0, conf => <<'CONF');
queue_jobs.idle_timeout = '300ms'
autovacuum = off
CONF
$node->safe_psql('postgres', 'CREATE DATABASE idle');
$node->safe_psql('idle', 'CREATE EXTENSION queue_jobs');
define_gated($node, db => 'idle');
$node->safe_psql('idle', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}', delay => '1 hour')});
$node->safe_psql('idle', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}', delay => '1 s')});
my $id = $node->safe_psql('idle', q{SELECT queue_jobs.enqueue('quick', '{"n": 3}')});
wait_until($node, 'SELECT count(*) = 2 FROM ran', db => 'idle');
wait_for_no_processes($node, 'idle');

sub launcher
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs launcher'});
}

# How often these processes have gone to sleep, as Linux knows.
sub sleeps
{
	my $sum = 0;

	foreach my $pid (@_)
	{
		my ($count) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m;
		$sum += $count;
	}
	return $sum;
}

sub commits
{
	return $node->safe_psql('postgres', q{SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'idle'});
}

# The statistics of what has been come late.
my $linux = -r '/proc/self/status';
my ($before, $sleeps) = (-1, -1);
for my $try (1 .. 60)
{
	my ($now, $slept) = (commits(), $linux ? sleeps(launcher()) : 0);
	last if $now == $before && $slept == $sleeps;
	($before, $sleeps) = ($now, $slept);
	sleep 3;    # history is looked at again after 2
}
sleep 11;
is(commits(), $before, 'an idle database has no transaction');
SKIP:
{
	skip 'no /proc', 1 unless $linux;
	is(sleeps(launcher()), $sleeps, 'and the launcher sleeps');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'idle'}), '0', 'no process is connected to it');

# A scheduler that has something to do more often than it might leave does not turn round without rest meanwhile.
sub processor_time
{
	my ($pid) = @_;
	my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return $fields[11] + $fields[12];
}

$node->append_conf('postgresql.conf', q{queue_jobs.idle_timeout = '2s'});
$node->reload;
$node->safe_psql('idle', q{
	CREATE TABLE record (id int PRIMARY KEY, done bool);
	SELECT queue_jobs.define_worker('healed', record => 'record', record_key => 'id', pending => 'NOT done', heal_every => '1 s');
});
SKIP:
{
	skip 'no /proc', 1 unless $linux;
	my $ticks = q{SELECT max(at) > (SELECT finish_at FROM wanted) FROM queue_jobs.heal_tick};
	$node->safe_psql('idle', q{CREATE TABLE wanted AS SELECT now() + interval '4 s' AS finish_at});
	wait_until($node, $ticks, db => 'idle');
	my $scheduler = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler'});
	my ($spent, $start) = (processor_time($scheduler), time);
	$node->safe_psql('idle', q{UPDATE wanted SET finish_at = now() + interval '3 s'});
	wait_until($node, $ticks, db => 'idle');
	cmp_ok((processor_time($scheduler) - $spent) / 100, '<', (time - $start) / 4, 'a scheduler that may not leave sleeps');
}
$node->safe_psql('idle', q{SELECT queue_jobs.drop_worker('healed')});

# Those that stay, because they are told to, sleep too: executors and scheduler with a long idle time, and a claimant.
$node->append_conf('postgresql.conf', q{queue_jobs.idle_timeout = '1h'});
$node->reload;
$node->safe_psql('idle', q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(10, 500) n});
wait_until($node, 'SELECT count(*) = 493 FROM ran', db => 'idle');
my $waiter = in_background($node, db => 'idle');
my $waiter_pid = $waiter->pid;
$waiter->send(q{CALL queue_jobs.wait_for_jobs(timeout => '1 hour')});
wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiter_pid");
SKIP:
{
	skip 'wait events of extensions have no names before PostgreSQL 17', 1 if $node->safe_psql('postgres', 'SHOW server_version_num') < 170000;
	wait_until($node, "SELECT wait_event = 'QueueJobsAwait' FROM pg_stat_activity WHERE pid = $waiter_pid");
	wait_until($node, q{SELECT bool_and(wait_event = 'QueueJobsIdle') FROM pg_stat_activity WHERE backend_type ~ '^queue_jobs'});
	pass('pg_stat_activity says for what each process waits');
}
SKIP:
{
	skip 'no /proc', 3 unless $linux;
	my @pids = split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type ~ '^queue_jobs'});
	cmp_ok(scalar @pids, '>=', 3, 'launcher, scheduler and executors are up');
	# Until they have come to rest.
	foreach (1 .. 60)
	{
		$sleeps = sleeps(@pids);
		sleep 3;
		last if sleeps(@pids) == $sleeps;
	}
	my $waiter_sleeps = sleeps($waiter_pid);
	sleep 4;
	is(sleeps(@pids), $sleeps, 'and sleep');
	# (It looks every 10 s whether its client is still there.)
	cmp_ok(sleeps($waiter_pid) - $waiter_sleeps, '<=', 1, 'so does who waits');
}

$waiter->quit;
$node->stop;
done_testing();
