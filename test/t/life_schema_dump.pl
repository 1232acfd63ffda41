# pg_dump of the schema alone, by those who make it every day: the application's role, and the database's owner. (A dump with data needs the right to read them.)
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('schema_dump', extension => 0);
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE boss LOGIN;
CREATE ROLE app LOGIN;
CREATE DATABASE shop OWNER boss;
SQL
$node->safe_psql('shop', <<'SQL');
CREATE EXTENSION queue_jobs;
GRANT queue_jobs_enqueue TO app;
SET ROLE boss;
CREATE TABLE item (id int PRIMARY KEY);
GRANT SELECT ON item TO app;
RESET ROLE;
SELECT queue_jobs.define_worker('outside');
SELECT queue_jobs.enqueue('outside');
SQL
foreach my $role (qw(app boss))
{
	my $connstr = $node->connstr('shop');
	my ($dump, $errors) = run_command([ 'pg_dump', '--schema-only', '-U', $role, '-d', $connstr ]);

	is($errors, '', "$role dumps the schema");
	like($dump, qr/CREATE EXTENSION IF NOT EXISTS queue_jobs.*CREATE TABLE public.item/s, 'of which the extension is a part');
	is(($node->psql('shop', 'SELECT count(*) FROM queue_jobs.live_job', extra_params => [ '-U', $role ]))[0], 3, 'and may read no jobs');
	is(($node->psql('shop', q{SELECT nextval('queue_jobs.job_id')}, extra_params => [ '-U', $role ]))[0], 3, 'nor take ids');
}

$node->stop;
done_testing();
