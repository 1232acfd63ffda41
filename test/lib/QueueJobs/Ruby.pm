# Unit tests in Ruby as tests of ours.
package QueueJobs::Ruby;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(run_unit_tests);

# Runs a file of clients/ruby/test against the server: one test of ours for each of its own, and one for the whole.
#   environment  more variables
sub run_unit_tests
{
	my ($node, $file, %environment) = @_;
	my $root = $ENV{TESTDIR} // '.';

	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => $node->safe_psql('postgres', 'SELECT current_user'), %environment);
	my $ok = IPC::Run::run([ '/usr/bin/ruby', "-I$root/clients/ruby/lib", "$root/clients/ruby/test/$file", '--verbose' ],
		'<', \'', '>', \my $out, '2>', \my $err, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default));
	# "Case#test_name = 0.10 s = ."
	while ($out =~ /^(\w+#test_\w+) = [\d.]+ s = (\S)$/mg)
	{
	  SKIP: {
			skip "$1: not with this version", 1 if $2 eq 'S';
			is($2, '.', $1);
		}
	}
	ok($ok, "all of $file") or diag("$out$err");
	return;
}

1;
