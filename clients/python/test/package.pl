# What is the Python client's own (package.py), and what goes wrong (faults.py); each of their tests counts.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Python;
use QueueJobs::Test;
use Test::More;

my $node = new_node('package');

$node->safe_psql('postgres', q{CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$});
run_unit_tests($node, $_) foreach 'package.py', 'faults.py';
$node->stop;
done_testing();
