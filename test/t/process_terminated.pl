# pg_terminate_backend() of a scheduler, of the launcher or of an executor is no failure: the next one starts when there is
# something to do, without a pause that grows; and a session that terminates them in a loop makes nothing spin.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Time::HiRes 'time';
use Test::More;

my $node = new_node('terminated', conf => "queue_jobs.idle_timeout = '1h'");
define_gated($node);

sub pids
{
	my ($process) = @_;

	return split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs $process' ORDER BY 1");
}

# Terminates all processes of that kind, and waits until they are gone.
sub terminate
{
	my ($process) = @_;
	my @pids = pids($process);

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($_)") foreach @pids;
	my $list = join(', ', 0, @pids);
	wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid IN ($list)");
	return @pids;
}

my $n = 0;

# A job that is due soon needs the scheduler, and an executor.
sub run_one
{
	$n++;
	my $id = $node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('quick', '{"n": $n}', delay => '50 ms')});
	return wait_for_job($node, $id, 'completed');
}

# With a pause that doubles, the eighth would come after four minutes.
run_one();
for my $process ('scheduler', 'launcher', 'executor')
{
	my $start = time;
	foreach (1 .. 8)
	{
		terminate($process);
		# A new launcher looks into all databases, and has to be there before a scheduler can be.
		terminate('scheduler') if $process eq 'launcher';
		run_one();
	}
	cmp_ok(time - $start, '<', 150, "$process: terminated eight times, jobs run as they fall due");
}
is(log_count($node, 'ERROR|PANIC'), 0, 'nothing has failed');

# All at once, as before a migration.
foreach (1 .. 3)
{
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type ~ '^queue_jobs'});
	run_one();
}
pass('all of them at once');

# In a loop: each of them starts once a second at most, and does when the loop is over.
my $before = -s $node->logfile;
my $start = time;
while (time - $start < 6)
{
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type ~ '^queue_jobs'});
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1000}')});
}
my $took = time - $start;
my $log = substr(slurp_file($node->logfile), $before);
for my $process ('scheduler', 'launcher')
{
	my $count = () = $log =~ /terminating background worker "queue_jobs $process" due to administrator command/g;
	cmp_ok($count, '<=', $took + 2, "terminated in a loop, the $process does not start over and over ($count times in $took s)");
}
run_one();
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state <> 'completed'});
pass('and all goes on when that is over');

SKIP:
{
	skip 'built without test points (make test has them)', 2 unless $ENV{TEST_POINTS};

	# A scheduler that fails time and again is started ever more seldom; one good turn, and it is as if nothing had been.
	my $points = use_points($node);
	foreach (1 .. 6)
	{
		arm('due_promoted', 'fatal');
		$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2000}')});
		$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2000}', delay => '10 ms')});
		wait_until($node, 'SELECT true') while -e "$points/due_promoted";
		run_one();    # the pause after this failure, which is the first: 2 s
	}
	my @times = slurp_file($node->logfile) =~ /^(\S+ \S+) .*test point "due_promoted" was reached/mg;
	is(scalar @times, 6, 'the scheduler has failed six times');
	# (Pauses that double would be 62 s together.)
	cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM '$times[5]'::timestamptz - '$times[0]')"), '<', 55, 'good turns in between: its pauses do not grow');
}

$node->stop;
done_testing();
