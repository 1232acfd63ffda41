# Enqueues on SQLAlchemy 2 with psycopg 3 as its driver, also asynchronously (sqlalchemy_2.py). LATER_PYTHON is the folder that django_packages 6 prints.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Python;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'no SQLAlchemy 2: see clients/python/test/django_packages' unless $ENV{LATER_PYTHON};

my $node = new_node('sqlalchemy');

run_unit_tests($node, 'sqlalchemy_2.py', PYTHONPATH => "$ENV{LATER_PYTHON}/usr/lib/python3/dist-packages", PYTHON => "$ENV{LATER_PYTHON}/usr/bin/python3-later");
$node->stop;
done_testing();
