# What is the Python client's own, as unit tests in Python (package.py): each test counts.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $python = python_with('psycopg, psycopg2, sqlalchemy') or die 'no Python with psycopg, psycopg2 and sqlalchemy';
my $node = new_node('python_package');

$node->safe_psql('postgres', q{CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$});
{
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => $node->safe_psql('postgres', 'SELECT current_user'));
	IPC::Run::run([ $python, '-B', "$root/clients/python/test/package.py" ], '>', \my $out, '2>', \my $err);
	# "test_name (module.Case.test_name) ... ok"
	while ($err =~ /^(\w+) \([\w.]+\)(?:\n.*)?? \.\.\. (ok|\S.*)$/mg) { is($2, 'ok', $1) }
	like($err, qr/^OK$/m, 'all of package.py') or diag($err);
}
$node->stop;
done_testing();
