# Deduplication of very many, with few locks for a transaction (max_locks_per_transaction 64, the default before PostgreSQL 19): in one
# transaction, in one call, of one key; and 32 sessions with one token of run_once().
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $many = 100_000;
my $node = new_node('dedup_bulk', conf => "queue_jobs.max_executors = 0\nautovacuum = off\nmax_locks_per_transaction = 64");

$node->safe_psql('postgres', <<"SQL");
CREATE TABLE key AS SELECT jsonb_build_object('n', n) AS args FROM generate_series(1, $many) n;
SELECT queue_jobs.define_worker('executing', idempotent => true);
SELECT queue_jobs.define_worker('executed', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('herd', idempotent => true);
SQL

my $bulk = 'SELECT count(*), count(DISTINCT id) FROM queue_jobs.enqueue_many(%s, (SELECT array_agg(args) FROM key)) id;';
my $locks = q{SELECT count(*) < 200 FROM pg_locks WHERE pid = pg_backend_pid();};
my $live = q{SELECT count(*) FROM queue_jobs.live_job;};
my $start = time;
for my $worker ("'executing'", "'executed'")
{
	my $new = sprintf $bulk, $worker;
	$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
	is($node->safe_psql('postgres', "BEGIN; $new $locks COMMIT"), "$many|$many\nt", "$worker: $many distinct keys in one transaction");
	is($node->safe_psql('postgres', "BEGIN; $new $locks ROLLBACK"), "$many|$many\nt", "$worker: $many duplicates, rolled back");
	is($node->safe_psql('postgres', "BEGIN; $new $locks COMMIT; $live"), "$many|$many\nt\n$many", "$worker: $many duplicates, and no job more");
}
note(time - $start, ' s');

# Two sessions at once, with the same keys in opposite orders, neither waiting for the other.
my @sessions = map { in_background($node) } 1 .. 2;
$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
$_->query('BEGIN') foreach @sessions;
$sessions[0]->send(q{SELECT count(queue_jobs.enqueue('executing', args)) FROM (SELECT args FROM key ORDER BY args LIMIT 20000) k});
$sessions[1]->send(q{SELECT count(queue_jobs.enqueue('executing', args)) FROM (SELECT args FROM (SELECT args FROM key ORDER BY args LIMIT 20000) k ORDER BY args DESC) k});
is($_->result, '20000', 'a session goes through 20,000 keys while another has them, in opposite order') foreach @sessions;
$_->query('COMMIT') foreach @sessions;
is($node->safe_psql('postgres', $live), '40000', 'neither saw the other, nor waited for it');
is($node->safe_psql('postgres', q{SELECT sum(1 + merged), bool_and(merged = 1) FROM queue_jobs.claim('c', '{executing}', 1000)}),
	'2000|t', 'what both enqueued is merged by the claim');
$_->query('BEGIN') foreach @sessions;
$sessions[0]->send(q{SELECT count(queue_jobs.enqueue('executing', args)) FROM (SELECT args FROM key ORDER BY args LIMIT 20000) k});
$sessions[1]->send(q{SELECT count(queue_jobs.enqueue('executing', args)) FROM (SELECT args FROM (SELECT args FROM key ORDER BY args LIMIT 20000) k ORDER BY args DESC) k});
is($_->result, '20000', 'nor does it wait where all are duplicates') foreach @sessions;
$_->query('COMMIT') foreach @sessions;
$_->quit foreach @sessions;

# A herd of one key, all due at once, is one run. And very many that are cancelled in one statement.
$node->safe_psql('postgres', 'TRUNCATE queue_jobs.live_job');
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('herd', delay => '1 ms')) FROM generate_series(1, 20000)});
wait_until($node, q{SELECT bool_and(due) FROM queue_jobs.live_job});
is($node->safe_psql('postgres', q{SELECT merged FROM queue_jobs.claim('c', '{herd}', 10)}), '19999', '20,000 of one key that fall due at once are one run');
$node->safe_psql('postgres', sprintf $bulk, "'executing'");
is($node->safe_psql('postgres', "BEGIN; SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.live_job; $locks COMMIT; $live"),
	$many + 1 . "\nt\n0", "$many cancelled in one statement");

# One token.
$node->safe_psql('postgres', 'CREATE TABLE effect (id bigserial); CREATE TABLE told (result jsonb)');
my $script = $node->basedir . '/run_once.sql';
append_to_file($script, <<'SQL');
BEGIN;
INSERT INTO told SELECT queue_jobs.run_once('token', 'INSERT INTO effect DEFAULT VALUES RETURNING id');
\set how random(1, 2)
\if :how = 1
ROLLBACK;
\else
COMMIT;
\endif
SQL
$node->command_ok([ 'pgbench', '-n', '-c', 32, '-j', 2, '-t', 20, '-f', $script, 'postgres' ], '32 sessions with one token, half of them roll back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), '1', 'one effect');
is($node->safe_psql('postgres', 'SELECT count(*) > 100, bool_and(result = (SELECT to_jsonb(id) FROM effect)) FROM told'), 't|t', 'all were told its result');

is(log_count($node, 'deadlock detected|out of shared memory|ERROR'), 0, 'no error, no deadlock');
$node->stop;
done_testing();
