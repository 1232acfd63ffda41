# pg_dump carries workers, unfinished jobs and dead ones; restored, the queue goes on by itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('dump', conf => "queue_jobs.idle_timeout = '1s'");
my $dir = PostgreSQL::Test::Utils::tempdir;
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION failing(n int) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'no % today', n; END$$;
SELECT queue_jobs.define_worker('failing', 'public.failing');
SELECT queue_jobs.define_worker('deadly', 'public.failing', max_retries => 0);
SELECT queue_jobs.define_worker('outside', queue => 'out', namespace => 'ns', version => 7);
SELECT queue_jobs.define_worker('held');
SELECT queue_jobs.disable_worker('held');
SELECT queue_jobs.enqueue('failing', '{"n": 1}');
SELECT queue_jobs.enqueue('deadly', '{"n": 2}');
SELECT queue_jobs.enqueue('quick', '{"n": 3}');
SQL
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE state IN ('retryable', 'dead', 'completed')});
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.pause('quick');
SELECT queue_jobs.pause('empty');
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n), priority => n) FROM generate_series(10, 19) n;
SELECT queue_jobs.enqueue('gated', '{"n": 4}', delay => '1 day', context => '{"who": "me"}', expires_in => '1 hour');
SELECT queue_jobs.enqueue('outside', '{"n": 5}') FROM generate_series(1, 2);
SELECT queue_jobs.claim('claimant', lease => '1 hour');
SELECT queue_jobs.heartbeat('claimant');
SQL

my $what = q{SELECT id, worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at, run_at, expires_at, last_error,
	result, owner, claimant FROM queue_jobs.job ORDER BY id};
my $jobs = $node->safe_psql('postgres', $what);
my $workers = $node->safe_psql('postgres', 'SELECT * FROM queue_jobs.worker ORDER BY name');
my $paused = $node->safe_psql('postgres', 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1');
is($paused, "empty\nquick", 'two queues are paused');

# Custom format and plain; whole, and in one transaction, as the documents say: what is paused is restored after the jobs.
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--single-transaction', '-d', $node->connstr('restored'), "$dir/dump" ], 'pg_restore');
is($node->safe_psql('restored', $what), $jobs, 'jobs of all states are restored');
is($node->safe_psql('restored', 'SELECT * FROM queue_jobs.worker ORDER BY name'), $workers, 'workers too');
is($node->safe_psql('restored', 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1'), $paused, 'and what is paused');
$node->safe_psql('restored', q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 11 FROM ran', db => 'restored');
is($node->safe_psql('restored', 'SELECT count(DISTINCT n) FROM ran'), '11', 'those that waited run');
cmp_ok($node->safe_psql('restored', q{SELECT queue_jobs.enqueue('held') IS NULL, queue_jobs.enqueue('quick', '{"n": 50}')}),
	'=~', qr/^t\|\d+$/, 'the kill switch is off, still');
is($node->safe_psql('restored', 'SELECT count(*) = count(DISTINCT id) FROM queue_jobs.job'), 't', 'new ids are new');
is($node->safe_psql('restored', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'outside'}),
	'', 'a claimant can complete what it had claimed');
$node->safe_psql('restored', q{CREATE OR REPLACE FUNCTION failing(n int) RETURNS void LANGUAGE sql AS 'SELECT'});
is($node->safe_psql('restored', q{SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE state = 'dead'}), 't', 'a dead job can be retried');
wait_until($node, q{SELECT state = 'completed' FROM queue_jobs.job WHERE worker = 'deadly'}, db => 'restored');
is($node->safe_psql('postgres', $what), $jobs, 'the original is as it was');

# Nobody resumes or enqueues anything: the restored jobs start by themselves, with no restart.
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
wait_until($node, 'SELECT count(*) = 11 FROM ran');
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('later', 'public.quick', queue => 'later')});
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('later', '{"n": 60}', delay => '1 h')});
$node->safe_psql('postgres', q{UPDATE queue_jobs.live_job SET run_at = now() + '4 s' WHERE args = '{"n": 60}'});
$node->command_ok([ 'pg_dump', '-f', "$dir/plain.sql", $node->connstr('postgres') ], 'pg_dump, plain');
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', "$dir/plain.sql" ], 'restored by psql');
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 60', db => 'plain');
pass('a future job starts at its time after the restore');

# The data alone, into a database that has the schema.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('quick'); SELECT queue_jobs.enqueue('quick', '{"n": 70}')});
$node->command_ok([ 'pg_dump', '--data-only', '-Fc', '-f', "$dir/data", $node->connstr('postgres') ], 'pg_dump --data-only');
$node->safe_psql('postgres', 'CREATE DATABASE data');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--schema-only', '-d', $node->connstr('data'), "$dir/dump" ], 'the schema');
$node->command_checks_all([ 'pg_restore', '--exit-on-error', '--data-only', '-d', $node->connstr('data'), "$dir/data" ], 0, [], [], 'the data');
$node->safe_psql('data', q{SELECT queue_jobs.resume('quick')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE args = '{"n": 70}' AND state = 'completed'}, db => 'data');
pass('its waiting jobs run');

$node->stop;
done_testing();
