# What is the Ruby client's own (package.rb, faults.rb); each of its tests counts.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Ruby;
use QueueJobs::Test;
use Test::More;

my $node = new_node('ruby_package');

$node->safe_psql('postgres', q{CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$});
run_unit_tests($node, $_) foreach 'package.rb', 'faults.rb';
$node->stop;
done_testing();
