# docs/how-to/shards.md, run by test/shards/run.py: its examples; a shard that is killed while the others go on; a
# tenant moved to another shard and back under load, with a server killed while its jobs are in no queue; and the
# ledger. `make shards` runs it with a kill before each step.
# The matrix runs it once.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $programs = $ENV{SHARDS_PROGRAMS} // '';
my $output = '';

plan skip_all => 'no PL/Proxy: the folder that test/shards/programs prints, in SHARDS_PROGRAMS' unless -d $programs;
plan skip_all => "Debian's PL/Proxy is for Debian's PostgreSQL" unless $ENV{PATH} =~ /^[^:]*\/usr\/lib\/postgresql\//;
plan skip_all => 'no Python 3' unless run_quietly('/usr/bin/python3', '--version');

chdir $root or die "$root: $!";
local $ENV{TMPDIR} = $ENV{TMPDIR} // PostgreSQL::Test::Utils::tempdir_short();
IPC::Run::run([ '/usr/bin/python3', '-u', '-B', 'test/shards/run.py', $programs, '3' ], '>', \$output, '2>&1');
my $status = $?;

for my $line (split /\n/, $output)
{
	if ($line =~ /^(ok|not ok) - (.*)/) { ok($1 eq 'ok', $2) }
	else { note($line) }
}
is($status, 0, 'it ran to its end') or diag($output);
done_testing();
