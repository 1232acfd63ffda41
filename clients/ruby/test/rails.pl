# The adapter of ActiveJob (rails.rb), with Debian's Rails, and with a later release's ActiveRecord and
# ActiveJob, whose folders are RAILS_PACKAGES (rails_packages prints them). Each of its tests counts.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Ruby;
use QueueJobs::Test;
use Test::More;

foreach my $later (0, 1)
{
	subtest $later ? 'a later release' : 'this release' => sub {
		plan skip_all => 'no later Rails: RAILS_PACKAGES is not set' if $later && !$ENV{RAILS_PACKAGES};
		my $node = new_node("rails_$later");

		$node->safe_psql('postgres', q{CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$});
		run_unit_tests($node, 'rails.rb', $later ? (RUBYLIB => $ENV{RAILS_PACKAGES}, WITHOUT_RAILTIES => 1) : ());
		$node->stop;
	};
}
done_testing();
