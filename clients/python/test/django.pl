# The backend of Django's tasks (django_backend.py); each of its tests counts. DJANGO_PACKAGES is the folder that django_packages prints.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Python;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'no Django with tasks: DJANGO_PACKAGES is not set' unless $ENV{DJANGO_PACKAGES};

my $node = new_node('django', extension => 0);

run_unit_tests($node, 'django_backend.py', PYTHONPATH => $ENV{DJANGO_PACKAGES});
$node->stop;
done_testing();
