# A system clock that is ahead of the machine's, for one server (test/lib/clock_ahead.c).
package QueueJobs::Clock;

use strict;
use warnings;

use Exporter 'import';
use FindBin;

our @EXPORT = qw(start_with_clock set_clock);

sub clock_file { return $_[0]->basedir . '/clock'; }

# Starts a server that is set up, with the machine's time. False if that cannot be done here.
sub start_with_clock
{
	my ($node) = @_;
	my $library = $node->basedir . '/clock_ahead.so';

	return 0 if $^O ne 'linux' || system($ENV{CC} // 'cc', '-shared', '-fPIC', '-o', $library, "$FindBin::Bin/../lib/clock_ahead.c") != 0;
	set_clock($node, 0);
	local %ENV = (%ENV, LD_PRELOAD => $library, CLOCK_AHEAD => clock_file($node));
	$node->start;
	return 1;
}

# The server's clock is ahead by so many seconds.
sub set_clock
{
	my ($node, $ahead) = @_;
	my $clock = clock_file($node);

	open my $file, -e $clock ? '+<:raw' : '>:raw', $clock or die "could not open $clock: $!";
	syswrite($file, pack('q', $ahead)) == 8 or die "could not write $clock: $!";
	close $file;
	return;
}

1;
