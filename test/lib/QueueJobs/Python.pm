# Unit tests in Python as tests of ours.
package QueueJobs::Python;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use Test::More;

our @EXPORT = qw(run_unit_tests);

# Runs a file of clients/python/test against the server: one test of ours for each of its own, and one for the whole.
#   environment  more variables; PYTHON: another interpreter
sub run_unit_tests
{
	my ($node, $file, %environment) = @_;
	my $root = $ENV{TESTDIR} // '.';

	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => $node->safe_psql('postgres', 'SELECT current_user'), %environment);
	IPC::Run::run([ delete $ENV{PYTHON} // '/usr/bin/python3', '-B', "$root/clients/python/test/$file" ], '>', \my $out, '2>', \my $err);
	# "test_name (module.Case.test_name) ... ok", with the test's first comment on a line between them.
	while ($err =~ /^(test_\w+) \([\w.]+\)(?:\n[^\n]*?)? \.\.\. (\w+)$/mg) { is($2, 'ok', $1) }
	like($err, qr/^OK/m, "all of $file") or diag($err);
	return;
}

1;
