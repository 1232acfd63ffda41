# The extension outside of the server's folders, as an image that CloudNativePG mounts has it: PostgreSQL 18 finds script and library by
# extension_control_path and dynamic_library_path, and so do its background workers.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $pg_config = $ENV{SERVER_PG_CONFIG} // 'pg_config';
my ($server) = run_command([ 'pg_config', '--version' ]);
my ($major) = $server =~ /^PostgreSQL (\d+)/;
plan skip_all => "PostgreSQL $major has no extension_control_path, 18 has" if $major < 18;

# ---- an installation without it, and the folder ----

my $folder = PostgreSQL::Test::Utils::tempdir();
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my ($sandbox) = $bindir =~ m{^(.*?/pg)/} or die "$bindir is not in a sandbox (test/lib/sandbox.sh)";
mkdir "$folder/installation";
system_or_bail('cp', '-a', "$sandbox/.", "$folder/installation");
system_or_bail('find', "$folder/installation", '-name', 'queue_jobs*', '-prune', '-exec', 'rm', '-rf', '{}', '+');
$bindir =~ s/^\Q$sandbox\E/$folder\/installation/;
{
	local %ENV = %ENV;
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL DESTDIR)};
	system_or_bail('make', '-s', '-C', $root, "PG_CONFIG=$pg_config", "TREE=$folder/tree", 'install-tree');
}
my @files = sort map { s/^\Q$folder\E\/tree\///r } split /\n/, qx(find '$folder/tree' -type f);
my ($version) = slurp_file("$root/queue_jobs.control") =~ /^default_version = '(.*)'$/m;
is(join(' ', @files), join(' ', sort 'lib/queue_jobs.so', 'licenses/queue_jobs/LICENSE', map { "share/extension/queue_jobs$_" } '.control', "--$version.sql", '--0.1.0.sql', '--0.1.0.control', "--0.1.0--$version.sql"),
	'make install-tree: library, scripts, license');

# ---- a server that has it there only ----

my $node = new_node('relocated', install_path => $bindir =~ s{/bin$}{}r, extension => 0, conf => <<"CONF");
extension_control_path = '\$system:$folder/tree/share'
dynamic_library_path = '\$libdir:$folder/tree/lib'
CONF
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_ls_dir((SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR')) f WHERE f LIKE 'queue_jobs%'}), 0, 'its own folder has no library of ours');
$node->safe_psql('postgres', 'CREATE EXTENSION queue_jobs');
is($node->safe_psql('postgres', q{SELECT count(*) > 0 AND bool_and(probin = '$libdir/queue_jobs') FROM pg_proc WHERE probin LIKE '%queue_jobs%'}), 't', 'functions name the library as everywhere');

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ran (n int, pid int DEFAULT pg_backend_pid());
CREATE FUNCTION work(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO ran SELECT work.n';
SELECT queue_jobs.define_worker('work', 'public.work');
SELECT queue_jobs.enqueue('work', '{"n": 1}');
SELECT queue_jobs.schedule('tick', '* * * * * *', command => 'INSERT INTO ran VALUES (2)');
SQL
wait_until($node, 'SELECT count(DISTINCT n) = 2 FROM ran');
pass('launcher, scheduler and executors start: a job runs, and a schedule');

$node->safe_psql('postgres', 'CREATE DATABASE older');
$node->safe_psql('older', q{CREATE EXTENSION queue_jobs VERSION '0.1.0'});
$node->safe_psql('older', 'ALTER EXTENSION queue_jobs UPDATE');
is($node->safe_psql('older', q{SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'}), $version, 'scripts to update it are found, too');

# A restart and a crash: the library is found again before anything else.
$node->stop('immediate');
$node->start;
my $id = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('work', '{"n": 3}')});
wait_for_job($node, $id, 'completed');
pass('after a crash it goes on');

$node->stop;
done_testing();
