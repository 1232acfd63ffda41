# The bridge through a failover of the managed server, with a slot that its standby has, too (PostgreSQL 17 and later, failover = true): the
# managed server is killed under load, its standby promoted, the subscription pointed at it, and each job that is committed
# there has run once. The statements are those of docs/how-to/bridge.md.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my ($version) = `pg_config --version` =~ /(\d+)/;
plan skip_all => 'no failover slots before PostgreSQL 17' if $version < 17;

my $root = $ENV{TESTDIR} // '.';
my $dir = PostgreSQL::Test::Utils::tempdir;
my $page = slurp_file("$root/docs/how-to/bridge.md");

# The page's block under that name, with addresses of this test in place of its own.
sub example
{
	my ($name, $node) = @_;
	my ($text) = $page =~ /^<!-- failover: \Q$name\E -->\n```\w+\n(.*?)^```$/ms or die "no example $name";
	my ($host, $port) = ($node->host, $node->port);

	return $text =~ s/host=\S+\.example\.com/host=$host port=$port/gr =~ s/host '\S+\.example\.com'/host '$host', SET port '$port'/gr =~ s/user=bridge password=secret/user=postgres/gr;
}

my $managed = PostgreSQL::Test::Cluster->new('managed');
$managed->init(allows_streaming => 'logical');
$managed->append_conf('postgresql.conf', example('primary', $managed));
$managed->start;
$managed->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('standby')});
$managed->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($managed, 'copy', has_streaming => 1);
$standby->append_conf('postgresql.conf', example('standby', $managed));
$standby->start;

$managed->safe_psql('postgres', 'CREATE ROLE shop LOGIN; CREATE DATABASE shop');
$managed->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$root/bridge/managed.sql", $managed->connstr('shop') ], 'managed.sql');
$managed->safe_psql('shop', 'GRANT queue_jobs_enqueue TO shop; CREATE TABLE ledger (n int PRIMARY KEY); CREATE SEQUENCE numbers; GRANT ALL ON ledger, numbers TO shop');

my $queue = new_node('queue', conf => "wal_retrieve_retry_interval = '200 ms'");
define_gated($queue);
$queue->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$root/bridge/receiving.sql", $queue->connstr('postgres') ], 'receiving.sql');
my ($host, $port) = ($managed->host, $managed->port);
$queue->safe_psql('postgres', <<"SQL");
CREATE ROLE shop LOGIN;
GRANT queue_jobs_enqueue TO shop;
CREATE EXTENSION postgres_fdw;
CREATE SERVER managed FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'shop');
CREATE USER MAPPING FOR CURRENT_USER SERVER managed OPTIONS (user 'postgres');
CREATE FOREIGN TABLE queue_jobs_bridge.managed_outbox (id bigint, created_at timestamptz) SERVER managed OPTIONS (schema_name 'queue_jobs_bridge', table_name 'outbox');
SQL
$queue->safe_psql('postgres', example('subscription', $managed));

append_to_file("$dir/load.sql", <<'SQL');
BEGIN;
INSERT INTO ledger VALUES (nextval('numbers'));
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', currval('numbers')));
COMMIT;
SQL
sub start_load
{
	my ($node, $transactions) = @_;
	my $output = '';

	return IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-t', $transactions, '-f', "$dir/load.sql", $node->connstr('shop') . ' user=shop' ], '>', \$output, '2>&1');
}

# ---- killed under load ----

my $load = start_load($managed, 100000);
wait_until($queue, 'SELECT count(*) > 300 FROM ran');
ok(wait_until($standby, example('ready', $managed)), 'the standby has the slot');
my $arrived = $queue->safe_psql('postgres', 'SELECT count(*) FROM ran');
wait_until($queue, "SELECT count(*) > $arrived + 300 FROM ran");
$managed->kill9;
eval { $load->finish };
$standby->promote;
$standby->safe_psql('postgres', example('promoted', $standby));
is($standby->safe_psql('postgres', q{SELECT failover FROM pg_replication_slots WHERE slot_name = 'queue_jobs_bridge'}), 't', 'the promoted standby has it, too');
my $committed = $standby->safe_psql('shop', 'SELECT count(*) FROM ledger');
cmp_ok($committed, '>', 600, 'under load');

$queue->safe_psql('postgres', example('failed over', $standby));
my $numbers = q{SELECT count(*), md5(string_agg(n::text, ',' ORDER BY n)) FROM };
ok(wait_until($queue, $numbers . 'ran', expected => $standby->safe_psql('shop', $numbers . 'ledger')), 'each job that is committed there has run once, and no other');

start_load($standby, 100)->finish;
ok(wait_until($queue, $numbers . 'ran', expected => $standby->safe_psql('shop', $numbers . 'ledger')), 'and new ones arrive');
cmp_ok($standby->safe_psql('shop', 'SELECT count(*) FROM ledger'), '>=', $committed + 400, 'all of them');
cmp_ok($queue->safe_psql('postgres', q{SELECT queue_jobs_bridge.trim('0')}), '>=', 400, 'what has arrived is trimmed there');
is($standby->safe_psql('shop', 'SELECT count(*) FROM queue_jobs_bridge.outbox'), '0', 'all of it');

$queue->stop;
$standby->stop;
done_testing();
