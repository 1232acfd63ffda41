# make demo says that each order was charged and mailed once; the three lines that make play prints work when they are pasted. Neither leaves a
# server behind. (Within the sandbox in which make runs them.)
# The matrix runs it once.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';

# Runs the demo in a folder of its own; returns its exit status and what it printed.
sub demo
{
	my ($input, @arguments) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir_short();
	my $output = '';

	local %ENV = %ENV;
	delete @ENV{ grep { /^PG/ } keys %ENV };
	IPC::Run::run([ 'env', '-C', $folder, "$root/test/demo/demo.sh", @arguments ], '<', \$input, '>', \$output, '2>&1');
	my $status = $? >> 8;
	ok(!-e "$folder/demo_data/postmaster.pid", 'its server is stopped');
	return ($status, $output);
}

my ($status, $output) = demo('');
is($status, 0, 'make demo succeeds') or diag($output);
like($output, qr/exactly once\s*\n[-+]+\n.*\| yes\s*\n.*What next\n.*make play/s, '… says so, and what to try next');

($status, $output) = demo('', 'play');
is($status, 0, 'make play: psql can be left') or diag($output);
my @lines = $output =~ /^((?:CREATE|SELECT) .*;)$/mg;
is(scalar @lines, 3, '… three lines are there to paste');

# The job takes its time, however little that is: wait for it before the line that shows it.
splice @lines, 2, 0, q{DO $$ BEGIN WHILE EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'hello' AND state <> 'completed') LOOP PERFORM pg_sleep(0.05); END LOOP; END $$;};
($status, $output) = demo(join("\n", @lines, '\q', ''), 'play');
is($status, 0, '… and can be pasted');
like($output, qr/\| hello +\| completed +\|.*"Hello, world"/, '… the job has run') or diag($output);
unlike($output, qr/ERROR|WARNING/, '… without a complaint');

# make web-demo has its jobs from this file.
my $node = new_node('web_demo', extension => 0);
$node->safe_psql('postgres', PostgreSQL::Test::Utils::slurp_file("$root/$_")) foreach qw(test/demo/shop.sql web/demo.sql);
is($node->safe_psql('postgres', q{SELECT jobs FROM queue_jobs.batch WHERE name LIKE 'import%'}), '200', 'the jobs of make web-demo can be enqueued');
$node->stop;

done_testing();
