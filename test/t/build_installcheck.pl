# `make installcheck` passes on a server as packages make it: a superuser of another name, another locale, encoding and time zone, no prepared
# transactions, eight worker processes, and another database in which jobs run. Where it cannot pass it says at once what it needs.
use strict;
use warnings;

use File::Path qw(rmtree);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $folder = PostgreSQL::Test::Utils::tempdir();
my $pg_config = $ENV{SERVER_PG_CONFIG} // 'pg_config';

# The tests write next to themselves.
system_or_bail('cp', '-r', map({ "$root/$_" } qw(Makefile META.json queue_jobs.control sql expected)), $folder);
mkdir "$folder/test";
system_or_bail('cp', '-r', "$root/test/lib", "$root/test/isolation", "$folder/test");

my $node = PostgreSQL::Test::Cluster->new('ordinary');
$node->init(extra => [ '--username=landlord', '--locale=C' ]);
# PostgreSQL::Test::Cluster gives other defaults than the server.
$node->append_conf('postgresql.conf', <<'CONF');
wal_level = replica
max_wal_senders = 10
max_prepared_transactions = 0
max_worker_processes = 8
timezone = 'Asia/Kathmandu'
datestyle = 'German, DMY'
CONF

sub installcheck
{
	my ($user, @arguments) = @_;
	my $output = '';

	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => $user);
	delete @ENV{qw(PGDATABASE MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL)};	# as from a shell: this test may be run by make itself
	IPC::Run::run([ 'make', '-s', '-C', $folder, "PG_CONFIG=$pg_config", 'installcheck', @arguments ], '<', \'', '>', \$output, '2>&1');
	return ($? >> 8, $output);
}

# What it says is one line, and then make its own.
sub refused
{
	my ($reason, $user, @arguments) = @_;
	my ($status, $output) = installcheck($user, @arguments);

	isnt($status, 0, "refused: $reason");
	like($output, qr/\Amake installcheck: [^\n]*$reason[^\n]*\nmake: [^\n]*\n\z/, '… in one line');
	return;
}

# ---- what it needs ----

local $ENV{PGUSER} = 'landlord';
refused('PGHOST, PGPORT and PGUSER name the server', 'landlord');
$node->start;
refused('role "nobody" does not exist', 'nobody');
refused('shared_preload_libraries lacks queue_jobs', 'landlord');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'queue_jobs'\nqueue_jobs.max_executors = 1");
$node->restart;
refused('the tests need queue_jobs.max_executors', 'landlord');
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors = 4');
$node->restart;
$node->safe_psql('postgres', 'CREATE ROLE tenant LOGIN');
refused('role tenant is no superuser', 'tenant');

# ---- all tests but those that start servers ----

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', <<'SQL');
CREATE EXTENSION queue_jobs;
GRANT queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO tenant;
CREATE TABLE tick (at timestamptz DEFAULT now());
SELECT queue_jobs.schedule('tick', '* * * * * *', command => 'INSERT INTO tick DEFAULT VALUES');
SQL
for my $time ('first', 'second')
{
	my ($status, $output) = installcheck('landlord', 'TAP_TESTS=', $time eq 'second' ? ('REGRESS=setup enqueue teardown', 'ISOLATION=claim_claim') : ());

	is($status, 0, "passes, the $time time")
	  or diag($output, map { -s "$folder/$_" ? slurp_file("$folder/$_") : () } 'regression.diffs', 'output_iso/regression.diffs');
}
wait_until($node, 'SELECT count(*) > 3 FROM tick', db => 'shop');
is($node->safe_psql('shop', q{SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname !~ '^pg_'}),
	'landlord queue_jobs_claim queue_jobs_define queue_jobs_enqueue queue_jobs_operate queue_jobs_read tenant', 'it leaves no role behind');
is($node->safe_psql('shop', q{SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member WHERE r.rolname = 'tenant'}), 5,
	'… and takes none from others');

$node->stop;
done_testing();
