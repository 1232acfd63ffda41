# The Node client's own tests (clients/node/test/*.test.mjs), each file a process with a database of its own.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $node = new_node('node_client', extension => 0);

local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => $node->safe_psql('postgres', 'SELECT current_user'));
delete $ENV{DATABASE_URL};

foreach my $file (sort glob "$root/clients/node/test/*.test.mjs")
{
	my $ok = IPC::Run::run([ 'node', '--test', '--test-reporter=tap', $file ], '<', \'', '>', \my $out, '2>', \my $err, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default));

	ok($ok, $file =~ s|.*/||r) or diag(substr($out . $err, 0, 10000));
}

done_testing();
