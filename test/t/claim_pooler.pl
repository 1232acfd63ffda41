# Calls through a pooler in transaction mode: each transaction may come to another server session.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
plan skip_all => 'no pgbouncer (Debian: apt install pgbouncer)' unless $pgbouncer;

my $node = new_node('pooler');
define_gated($node);
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside')});

# Two server sessions for all clients. (A port of its own only names the socket: it does not listen.)
my $dir = PostgreSQL::Test::Utils::tempdir_short;
my $port = $node->port;
my $host = $node->host;
append_to_file("$dir/ini", <<"INI");
[databases]
* = host=$host port=$port
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
admin_users = nobody
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
logfile = $dir/log
INI
# auth_type any takes the user from the database's entry.
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my $ini = slurp_file("$dir/ini");
$ini =~ s/^\* = .*$/$& user=$user/m;
unlink "$dir/ini";
append_to_file("$dir/ini", $ini);
my $pooler = IPC::Run::start([ $pgbouncer, '-q', "$dir/ini" ], '>', \my $out, '2>', \my $err);
my $connstr = "host=$dir port=$port dbname=postgres";
my $end = time + $PostgreSQL::Test::Utils::timeout_default;
until (-S "$dir/.s.PGSQL.$port")
{
	$pooler->pump_nb;
	die "pgbouncer did not start: $err" . (-e "$dir/log" ? slurp_file("$dir/log") : '') if time > $end;
	select undef, undef, undef, 0.02;
}

my @clients = map { in_background($node, connstr => $connstr) } 1 .. 4;
is(join(' ', map { $_->query('SELECT 1') } @clients), '1 1 1 1', 'four clients share two sessions');

# Enqueue, alone and in transactions of several clients by turns.
$clients[0]->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')});
$clients[1]->query(q{BEGIN; SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
$clients[2]->query(q{BEGIN; SELECT queue_jobs.enqueue('quick', '{"n": 3}')});
$clients[1]->query('ROLLBACK');
$clients[2]->query('COMMIT');
$clients[3]->query(q{BEGIN; SET LOCAL queue_jobs.context = '{"who": "me"}'; SELECT queue_jobs.enqueue('quick', '{"n": 4}'); COMMIT});
$clients[0]->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 5}')});
wait_until($node, 'SELECT count(*) = 4 FROM ran');
is($node->safe_psql('postgres', q{SELECT n, context FROM ran JOIN queue_jobs.job ON (args->>'n')::int = n ORDER BY n}),
	qq(1|\n3|\n4|{"who": "me"}\n5|), 'jobs run, with the context of their own transaction');

# Claims by one session, completed by another.
$clients[0]->query(q{SELECT queue_jobs.enqueue('outside', jsonb_build_object('n', n)) FROM generate_series(1, 4) n});
my @claims = map { $clients[$_]->query("SELECT id, attempt FROM queue_jobs.claim('client $_')") } 0 .. 3;
for my $i (0 .. 3)
{
	my ($id, $attempt) = split /\|/, $claims[$i];
	$clients[ 3 - $i ]->query("SELECT queue_jobs.heartbeat('client $i')");
	$clients[ 3 - $i ]->query("SELECT queue_jobs.complete($id, $attempt)");
	is($clients[ 3 - $i ]->error, '', 'claimed in one session, completed in another');
}
is($node->safe_psql('postgres', q{SELECT state, count(DISTINCT claimant) FROM queue_jobs.job WHERE worker = 'outside' GROUP BY 1}), 'completed|4', 'by four claimants');

# In one transaction, rolled back and committed.
$clients[0]->query(q{SELECT queue_jobs.enqueue('outside')});
is($clients[0]->query(q{BEGIN; SELECT attempt, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')}), '1|', 'claim and completion in one transaction');
is($clients[1]->query(q{SELECT count(*) FROM queue_jobs.claim('d')}), '0', '… is its own');
$clients[0]->query('ROLLBACK');
is($clients[1]->query(q{SELECT attempt, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('d')}), '1|', '… until it is rolled back');

# Waiting takes a session of the pool for as long as it lasts, and is woken.
$clients[0]->send(q{CALL queue_jobs.wait_for_jobs('{outside}', '1 hour')});
wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.wait%' AND wait_event_type = 'Extension'});
$clients[1]->query(q{SELECT queue_jobs.enqueue('outside')});
$clients[0]->result;
is($clients[0]->error, '', 'wait_for_jobs()');

# Steering from any session.
$clients[0]->query(q{SELECT queue_jobs.pause('quick')});
my $id = $clients[1]->query(q{SELECT queue_jobs.enqueue('quick', '{"n": 6}')});
is($clients[2]->query("SELECT state, waits_for FROM queue_jobs.job WHERE id = $id"), 'available|queue "quick" is paused', 'pause()');
is($clients[3]->query("SELECT queue_jobs.cancel($id)"), 't', 'cancel()');
# (One that has ended may be seen a little longer.)
wait_until($node, q{SELECT count(DISTINCT pid) = 2 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
pass('all of it in two sessions');

$_->quit foreach @clients;
$pooler->kill_kill;
$node->stop;
done_testing();
