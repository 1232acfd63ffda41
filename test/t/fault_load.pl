# Faults, under load of every kind: executors of functions and of procedures, claimants, schedules, deduplication, retries,
# healing and limits, as two roles; while processes are terminated, cancelled and killed, the server is stopped and
# started, worker slots run out, and the disk is full for a while.
# A ledger tells afterwards whether each job was done, once, and nothing else: see QueueJobs::Load.
# QUEUE_JOBS_STRESS_SECONDS (make faults SECONDS=…) makes it longer than 25 seconds.
use strict;
use warnings;

use JSON::PP qw(decode_json);
use List::Util qw(min);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Load;
use QueueJobs::Test;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{QUEUE_JOBS_STRESS_SECONDS} || 25;
my $seed = $ENV{QUEUE_JOBS_FAULTS_SEED} || int(time);
srand($seed);
note("QUEUE_JOBS_FAULTS_SEED=$seed");

# Small segments of WAL, so that files of tables can be kept from growing while those of WAL are not.
my $node = new_node('faults', init => [ extra => ['--wal-segsize=1'] ], conf => $QueueJobs::Load::conf . 'restart_after_crash = on');
define_load($node);
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION idle(n bigint) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION memory() RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('pid', pg_backend_pid(), 'sum', sum(used), 'contexts', jsonb_object_agg(context, used))
   FROM (SELECT name || ' ' || left(coalesce(ident, ''), 40) AS context, sum(used_bytes) AS used FROM pg_backend_memory_contexts GROUP BY 1) AS c $$;
SELECT queue_jobs.define_worker('idle', 'public.idle'), queue_jobs.define_worker('memory', 'public.memory');
SQL
my $load = start_load($node);

# ---- the faults ----

my %count;

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
	return if $signal ne 'KILL';
	sleep 0.01 while kill 0, $pid;    # until the postmaster has seen it
	wait_for_server();
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

# The same with a smaller limit, under which not even a segment of WAL can be filled. The server ends, and cannot recover
# before there is room again. (PostgreSQL 18 may neither end nor come back: its startup process has failed, the others stay.)
sub fill_disk_of_wal
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my $end = time + 2 + rand(1);

	$count{'disk full for WAL'}++;
	set_file_size_of_all($postmaster, '262144');
	sleep 0.05 until !kill(0, $postmaster) || time > $end;
	set_file_size_of_all($postmaster, 'unlimited');
	$end = time + 30;
	while (kill(0, $postmaster) && time < $end)
	{
		return if defined ask('SELECT true');
		sleep 0.05;
	}
	$count{'disk full for WAL: the server ended'}++;
	$node->stop('immediate', fail_ok => 1);	# so that it is known to be
	$node->start;
	return;
}

# Of a process and its children.
sub set_file_size_of_all
{
	my ($pid, $size) = @_;

	set_file_size($pid, $size);	# first: children that come now have it from there
	set_file_size($_, $size) foreach split ' ', `ps -o pid= --ppid $pid`;
	return;
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
	[ $can_fill ? 1 : 0, \&fill_disk_of_wal ],
);
my @bag = map { my ($weight, $fault) = @$_; ($fault) x $weight } @faults;
my $end = time + $seconds;
my @queue;
while (time < $end)
{
	# each as often as its weight says, in any order
	@queue = sort { $a->[0] <=> $b->[0] } map { [ rand(), $_ ] } @bag unless @queue;
	(shift @queue)->[1]->();
	eval { $node->psql('postgres', 'SELECT * FROM queue_jobs.queue', stdout => \my $counted, stderr => \my $refused) };    # jobs are counted from here on
	sleep 0.05 + rand(0.3);
}

# ---- what is left ----

$load->stop;
$load->check_counts;
$node->append_conf('postgresql.conf', 'max_worker_processes = 16');
$node->restart;
$node->safe_psql('postgres', q{SELECT queue_jobs.unschedule('ticks')});
$load->drain;
$load->check_ledger;
$load->check_order;
$load->check_nothing_left;
is(log_count($node, 'PANIC:(?!.*(?:File too large|No space left))|deadlock detected|signal 11|TRAP'), 0, 'no crash of our own, no deadlock');

# Executors do not grow. A cache may, once: what grows with the jobs does in each round.
$node->safe_psql('postgres', 'ALTER SYSTEM SET queue_jobs.max_executors_per_database = 1');
$node->safe_psql('postgres', 'ALTER SYSTEM SET queue_jobs.idle_timeout = 60000');
$node->restart;
my @memory;
for my $round (1 .. 5)
{
	$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('idle', jsonb_build_object('n', n))) FROM generate_series(1, 3000) n});
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'idle' AND state <> 'completed'});
	my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('memory')});
	wait_for_job($node, $id, 'completed');
	push @memory, decode_json($node->safe_psql('postgres', "SELECT result FROM queue_jobs.job WHERE id = $id"));
}
my %pids = map { $_->{pid} => 1 } @memory;
is(keys %pids, 1, 'one executor ran them all');
my $least = min(map { $memory[$_]{sum} - $memory[ $_ - 1 ]{sum} } 1 .. $#memory);
cmp_ok($least, '<', 65536, 'and its memory did not grow with the jobs');
for my $round (1 .. $#memory)
{
	my ($now, $before) = map { $_->{contexts} } @memory[ $round, $round - 1 ];
	foreach (sort keys %$now)
	{
		my $growth = $now->{$_} - ($before->{$_} // 0);
		note("round $round: $_ grew by $growth bytes") if $growth > 8192;
	}
}

note("$_: $count{$_}") foreach sort keys %count;
$load->note_counts;
note(log_count($node, 'all server processes terminated; reinitializing') . ' crashes of the server, '
	  . log_count($node, 'could not extend file') . ' refusals to grow a file');
note('the disk was never full: prlimit(1) is not here') unless $can_fill;
$node->stop;
done_testing();
