# The backend of Django's tasks (django_backend.py), with Django 5 and django-tasks, and with Django 6, which has tasks itself. DJANGO_PACKAGES and
# LATER_PYTHON are the folders that django_packages prints. Each of its tests counts.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use QueueJobs::Python;
use QueueJobs::Test;
use Test::More;

my $six = $ENV{LATER_PYTHON} // '';
my %frameworks = (
	'django-tasks' => { PYTHONPATH => $ENV{DJANGO_PACKAGES} },
	'Django 6' => { PYTHONPATH => $six && "$six/usr/lib/python3/dist-packages", PYTHON => "$six/usr/bin/python3-later" });

foreach my $name (sort keys %frameworks)
{
	subtest $name => sub {
		my %environment = %{ $frameworks{$name} };
		plan skip_all => "no $name: see clients/python/test/django_packages" unless $environment{PYTHONPATH};
		my $node = new_node(lc($name =~ s/\W/_/gr), extension => 0);

		run_unit_tests($node, 'django_backend.py', %environment, FRAMEWORK => $name);
		$node->stop;
	};
}
done_testing();
