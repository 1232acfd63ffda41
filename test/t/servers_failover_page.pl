# The configuration files that docs/how-to/failover.md shows are those that make failover uses.
# The matrix runs it once.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $page = slurp_file("$root/docs/how-to/failover.md");
my @files = glob "$root/test/failover/*/*.{conf,yml}";

cmp_ok(scalar @files, '>=', 3, 'the files are found');
for my $file (@files)
{
	my $name = $file =~ s/^\Q$root\E\///r;
	my $text = slurp_file($file);

	like($page, qr/^```\w+\n\Q$text\E```$/m, "$name is in the page as it is");
}
done_testing();
