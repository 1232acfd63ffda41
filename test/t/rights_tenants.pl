# Many databases with jobs, few worker slots and executors: each is served, none waits for ever while others keep enqueuing;
# also after a restart, a crash and a promotion.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Tenants;
use QueueJobs::Test;
use Test::More;

# No process leaves because it is idle: only to make way.
my $node = new_node('tenants', extension => 0, init => [ allows_streaming => 1 ], conf => <<'CONF');
max_worker_processes = 16
queue_jobs.idle_timeout = '1h'
CONF
my @tenants = map { "tenant_$_" } 1 .. 60;

is($node->safe_psql('postgres', 'SHOW queue_jobs.max_executors'), '4', 'with 16 worker slots, four executors by default');
make_tenants($node, @tenants);

sub wait_everywhere
{
	my ($condition, @where) = @_;

	@where = @tenants unless @where;
	my $limit = time() + 3 * $PostgreSQL::Test::Utils::timeout_default;
	my @values;

	do
	{
		@values = everywhere($node, "SELECT $condition", @where);
		return 1 unless grep { $_ ne 't' } @values;
		select(undef, undef, undef, 0.2);
	} while (time() < $limit);
	diag("not in $where[$_]: $condition") foreach grep { $values[$_] ne 't' } 0 .. $#where;
	return 0;
}

sub run_round
{
	my ($n, $what) = @_;

	everywhere($node, "SELECT queue_jobs.enqueue('once', '{\"n\": $n}') IS NULL", @tenants);
	ok(wait_everywhere("count(*) = 1 FROM ran WHERE n = $n"), "60 databases, 16 worker slots: each runs its job, $what");
	return;
}

run_round(1, 'the first one');
run_round(2, 'and another');

# Several at once, some of which fall due.
everywhere($node, q{SELECT count(queue_jobs.enqueue('once', '{"n": 3}', delay => CASE WHEN n % 2 = 0 THEN interval '200 ms' END)) FROM generate_series(1, 6) n}, @tenants);
ok(wait_everywhere('count(*) = 6 FROM ran WHERE n = 3'), '… and six jobs of each, three of which fall due later');

# More tenants than executors enqueue all the time: they take turns, and the others get theirs.
my @busy = @tenants[ 0 .. 9 ];
my @others = @tenants[ 10 .. 59 ];
everywhere($node, q{SELECT count(queue_jobs.enqueue('again')) FROM generate_series(1, 5)}, @busy);
ok(wait_everywhere('count(*) >= 20 FROM ran WHERE n = -1', @busy), 'ten tenants whose jobs never end, and four executors: each has its turns');
everywhere($node, q{SELECT queue_jobs.enqueue('once', '{"n": 4}') IS NULL}, @others);
ok(wait_everywhere('count(*) = 1 FROM ran WHERE n = 4', @others), '… beside which all others run their jobs');
everywhere($node, 'DELETE FROM ran WHERE n = -1', @busy);
ok(wait_everywhere('count(*) >= 20 FROM ran WHERE n = -1', @busy), '… and they go on');

foreach my $mode ('fast', 'immediate')
{
	my $n = $mode eq 'fast' ? 5 : 6;

	$node->stop($mode);
	$node->start;
	run_round($n, "right after a restart ($mode), beside ten that are busy");
	everywhere($node, 'TRUNCATE ran', @busy);
	ok(wait_everywhere('count(*) > 0 FROM ran', @busy), '… which go on without being called');
}

# Promoted, with jobs that no session has called for since.
$node->stop;
$node->append_conf('postgresql.conf', "restore_command = 'false'");
$node->set_standby_mode;
$node->start;
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queue\_jobs%'}), '0', 'on a standby nothing runs');
$node->promote;
run_round(7, 'right after a promotion');
everywhere($node, 'TRUNCATE ran', @busy);
ok(wait_everywhere('count(*) > 0 FROM ran', @busy), '… and so do those that were busy before');

# At rest no process is left, and nothing stands in the way of a command.
everywhere($node, 'INSERT INTO gate VALUES (0)', @busy);
ok(wait_everywhere(q{count(*) = 0 FROM queue_jobs.live_job}), 'all is done in the end');
$node->safe_psql('postgres', "CREATE DATABASE copy TEMPLATE $tenants[0]");
$node->safe_psql('postgres', join "\n", map { "DROP DATABASE $_;" } @tenants);
pass('databases are copied and dropped');
is(log_count($node, 'PANIC|signal 11'), 0, 'no process failed');
$node->stop;
done_testing();
