# Places of the source at which a test has a process wait, fail or die (src/base/test_point.h), for a build that has them.
package QueueJobs::Points;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;

our @EXPORT = qw(use_points arm counted wait_for wait_at go_on);

my $points;

# From now on points are those of this server. Returns their folder.
sub use_points
{
	my ($node) = @_;

	$points = $node->data_dir . '/queue_jobs.points';
	-d $points or mkdir $points or die "$points: $!";
	return $points;
}

# What is to happen to the next process that comes by.
sub arm
{
	my ($point, $action) = @_;

	append_to_file("$points/new", "$action\n");
	rename "$points/new", "$points/$point" or die "$point: $!";
	return;
}

# How many processes have come by a point that is armed to count, since the last call.
sub counted
{
	my ($point) = @_;

	my $count = -s "$points/$point.counted" // 0;
	unlink "$points/$point.counted";
	return $count;
}

sub wait_for
{
	my ($condition, $what) = @_;

	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($condition->())
	{
		die "gave up waiting until $what" if time > $end;
		select undef, undef, undef, 0.01;
	}
	return;
}

# Until a process has come by and waits; and on it goes.
sub wait_at
{
	my ($point) = @_;

	wait_for(sub { -e "$points/$point.waiting" }, "a process is at $point");
	return;
}

sub go_on
{
	my ($point) = @_;

	unlink "$points/$point.waiting" or die "$point: $!";
	return;
}

1;
