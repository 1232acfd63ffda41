# A database that 0.1.0 made, with its library, is updated in use: under load, with jobs in every state, schedules, tokens, limits that are taken, and
# history. Nothing is lost, doubled or stuck, and the extension is what CREATE EXTENSION makes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Load;
use QueueJobs::Test;
use Test::More;
use Time::HiRes qw(sleep);

my $root = $ENV{TESTDIR} // '.';
my $released = '0.1.0';
my $directory = PostgreSQL::Test::Utils::tempdir;
plan skip_all => "queue_jobs $released is for older PostgreSQL" if PostgreSQL::Test::Cluster->new('server')->pg_version->major >= 19;
my ($bindir) = run_command([ "$root/test/lib/install_released.sh", $released, $directory ]);
die "queue_jobs $released could not be built" unless $bindir && -x "$bindir/postgres";
my $node = new_node('in_use', install_path => $bindir =~ s{/bin$}{}r, conf => $QueueJobs::Load::conf);
is($node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'}), $released, "a server with $released");
# Under this load 0.1.0 may fail an assertion of the server's, which this version does not (it updated rows that others had locked).
if ($node->safe_psql('postgres', 'SHOW debug_assertions') eq 'on')
{
	done_testing();
	exit;
}

# ---- what it has ----

define_load($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ran (n int, attempt int);
CREATE FUNCTION quick(n int) RETURNS void LANGUAGE sql AS $$ INSERT INTO ran SELECT quick.n, attempt FROM queue_jobs.current_job() $$;
CREATE FUNCTION failing(n int) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'no % today', n; END$$;
CREATE FUNCTION tomorrow(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 day'$$;
CREATE PROCEDURE goes_on(n int) LANGUAGE plpgsql AS $$BEGIN INSERT INTO ran SELECT n, attempt FROM queue_jobs.current_job(); COMMIT; PERFORM pg_sleep(600) WHERE (SELECT count(*) FROM ran WHERE ran.n = goes_on.n) = 1; END$$;
SELECT queue_jobs.define_worker('quick', 'public.quick', keep_completed => '30 days'),
	queue_jobs.define_worker('failing', 'public.failing', retry_backoff => 'public.tomorrow'),
	queue_jobs.define_worker('deadly', 'public.failing', max_retries => 0),
	queue_jobs.define_worker('goes on', 'public.goes_on'),
	queue_jobs.define_worker('outside', queue => 'out', namespace => 'ns', version => 7, max_running_jobs => 3),
	queue_jobs.define_worker('tenant', concurrency_key => 'tenant , "of"', concurrency_limit => 1),
	queue_jobs.define_worker('stands', 'public.quick', idempotent => true),
	queue_jobs.define_worker('definer', 'public.quick', idempotent => true, including_scheduled => true, run_as => 'definer'),
	queue_jobs.define_worker('record', 'public.quick', record => 'public.record', record_key => 'n', pending => $$record.status = 'pending'$$),
	queue_jobs.define_worker('held');
SELECT queue_jobs.disable_worker('held');
SELECT queue_jobs.pause(q) FROM unnest('{stands,definer,record,ns:out,tenant}'::text[]) q;
SELECT queue_jobs.resume('ns:out'), queue_jobs.resume('tenant');
SELECT queue_jobs.set_routing('[["urgency=high", "fast"], ["*", ""]]');
SELECT queue_jobs.set_flag('half', 50);
SELECT queue_jobs.add_replica('away', 'host=/nowhere');
SELECT queue_jobs.pause_replica('away');
SELECT queue_jobs.schedule('yearly', '0 0 1 1 *', 'quick', '{"n": 30}', timezone => 'Europe/Paris');
SELECT queue_jobs.schedule('command', 'every 90 days', command => 'VACUUM ran');
SELECT queue_jobs.enqueue('failing', '{"n": 1}'), queue_jobs.enqueue('deadly', '{"n": 2}'), queue_jobs.enqueue('quick', '{"n": 3}');
SELECT queue_jobs.cancel(queue_jobs.enqueue('quick', '{"n": 4}', delay => '1 day'));
SELECT queue_jobs.run_once('token', 'SELECT 42');
SQL
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE worker IN ('failing', 'deadly', 'quick') AND state IN ('retryable', 'dead', 'completed')});
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.enqueue('quick', '{"n": 5}', delay => '1 day', context => '{"who": "me"}', expires_in => '1 hour', priority => -3);
SELECT queue_jobs.enqueue('outside', '{"n": 6}') FROM generate_series(1, 2);
SELECT queue_jobs.enqueue('tenant', '{"tenant": 1}') FROM generate_series(1, 3);
SELECT queue_jobs.claim('claimant', '{ns:*}', max_jobs => 1, lease => '1 day');
SELECT queue_jobs.claim('claimant', '{tenant}', max_jobs => 1, lease => '1 day');
SELECT queue_jobs.heartbeat('claimant');
SELECT queue_jobs.enqueue('stands', '{"n": 7, "deep": [1.0, {"a": null}]}'), queue_jobs.enqueue('stands', '{"n": 8}', dedup_key => 'a token');
SELECT queue_jobs.enqueue('definer', '{"n": 9}'), queue_jobs.enqueue('definer', '{"n": 10}', delay => '1 day');
SELECT queue_jobs.enqueue('record', '{"n": 1, "more": true}');
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.enqueue('stands', '{"n": 7, "deep": [1, {"a": null}]}'), queue_jobs.run_once('token', 'SELECT 43');
SQL
my $unfinished = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('goes on', '{"n": 20}')});
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 20');

# Columns that 0.1.0 has, of what stands still.
my $workers = q{('quick', 'failing', 'deadly', 'outside', 'tenant', 'stands', 'definer', 'record', 'held')};
my %queries = (
	jobs => qq{SELECT id, worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at, run_at, started_at, finished_at, expires_at,
		errors, result, owner, claimant, merged FROM queue_jobs.job WHERE worker IN $workers ORDER BY id},
	'finished jobs' => qq{SELECT count(*) > 0 FROM queue_jobs.finished_job WHERE keep_until > now()},
	workers => q{SELECT name, definer, handler, queue, version, idempotent, deduplicate, if_deduplicated, max_retries, retry_backoff, urgency, max_running_jobs, concurrency_key,
		record, record_key, pending, heal_every, run_as, keep_completed, enabled FROM queue_jobs.worker ORDER BY name},
	schedules => q{SELECT name, cron, timezone, worker, args, command, owner, next_run, last_run, last_job FROM queue_jobs.schedule WHERE name <> 'ticks' ORDER BY name},
	'routing rules' => 'SELECT * FROM queue_jobs.routing_rule ORDER BY 1',
	'paused queues' => 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1',
	flags => 'SELECT * FROM queue_jobs.feature_flag',
	replicas => 'SELECT name, state, conninfo FROM queue_jobs.replica',
	'rights of roles' => q{SELECT has_function_privilege('app', 'queue_jobs.pause(text)', 'EXECUTE'), has_table_privilege('app', 'queue_jobs.job', 'SELECT'), has_table_privilege('app', 'queue_jobs.worker', 'SELECT')},
);
my %before = map { $_ => $node->safe_psql('postgres', $queries{$_}) } keys %queries;

# What users have made of it.
$node->safe_psql('postgres', q{CREATE VIEW open_jobs AS SELECT id, worker, state FROM queue_jobs.job WHERE finished_at IS NULL});

# ---- the update, under load ----

my $load = start_load($node);
wait_until($node, q{SELECT count(DISTINCT worker) >= 7 FROM done});
$node->stop('immediate');
delete $node->{_install_path};
$node->start;
my ($current) = slurp_file("$root/queue_jobs.control") =~ /^default_version *= *'(.*)'/m;
like(($node->psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}')}))[2], qr/is not of the version of its library/, 'the new library refuses to work with the old tables');
$node->safe_psql('postgres', 'ALTER EXTENSION queue_jobs UPDATE');
is($node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'}), $current, "it is $current now");
my $done = $node->safe_psql('postgres', 'SELECT count(*) FROM done');
wait_until($node, "SELECT count(*) > $done + 200 FROM done");
$load->stop;

my $fingerprint = slurp_file("$root/test/lib/fingerprint.sql");
my $others = qr/^.* rights: app .*\n/m;		# which this test has granted
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', 'CREATE EXTENSION queue_jobs');
is($node->safe_psql('postgres', $fingerprint) =~ s/$others//gr, $node->safe_psql('fresh', $fingerprint), 'it consists of what a fresh one does');
# Roles see hashes that have their own salt in them.
is($node->safe_psql('postgres', q{SELECT count(*) > 0, bool_and(salt = ('x' || encode(substr(sha256(int8send(seed) || owner::text::bytea), 1, 8), 'hex'))::bit(64)::bigint) FROM queue_jobs.lane, queue_jobs.hash_seed}),
	't|t', 'no salt of a role gives away the seed of all');

# ---- all is there ----

is($node->safe_psql('postgres', $queries{$_}), $before{$_}, "$_ are as they were") for sort keys %queries;
wait_for_job($node, $unfinished, 'completed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ran WHERE n = 20'), 2, 'a procedure that the end of the server interrupted runs again');
is($node->safe_psql('postgres', q{SELECT bool_and(queue_jobs.enqueue(worker, args, dedup_key => token) = id)
	FROM (SELECT id, worker, args, CASE WHEN args ->> 'n' = '8' THEN 'a token' END AS token FROM queue_jobs.job
		WHERE owner = current_user AND worker IN ('stands', 'definer', 'record') AND state = 'available') j}), 't', 'jobs stand for duplicates');
is($node->safe_psql('postgres', q{SET SESSION AUTHORIZATION app; SELECT queue_jobs.enqueue('stands', '{"n": 7, "deep": [1, {"a": null}]}') = max(id) FROM queue_jobs.job WHERE worker = 'stands'}),
	't', 'a role\'s for its own');
is($node->safe_psql('postgres', q{SELECT queue_jobs.run_once('token', 'SELECT 1')}), '42', 'a token is used');
is($node->safe_psql('postgres', q{SET SESSION AUTHORIZATION app; SELECT queue_jobs.run_once('token', 'SELECT 1')}), '43', 'each role its own');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('another', '{tenant}', max_jobs => 5)}), 0, 'a limit that a claimant has reached holds');
is($node->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE claimant = 'claimant' AND state = 'executing'}), "\n",
	'and the claimant completes what it had claimed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('another', '{tenant}', max_jobs => 5)}), 1, 'then it lets the next one start');
is($node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('held') IS NULL}), 't', 'the kill switch is off, still');
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION failing(n int) RETURNS void LANGUAGE sql AS 'SELECT'});
$node->safe_psql('postgres', q{SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE worker IN ('deadly', 'failing')});
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE worker IN ('deadly', 'failing') AND state = 'completed'});
$node->safe_psql('postgres', q{SELECT queue_jobs.resume(queue) FROM queue_jobs.queue WHERE paused});
wait_until($node, q{SELECT count(*) = 5 FROM ran WHERE n IN (3, 7, 8, 9)});
pass('what was paused runs, once each');
$node->safe_psql('postgres', q{SELECT queue_jobs.run_now(name) FROM queue_jobs.schedule WHERE name <> 'ticks'});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE schedule = 'command' AND state = 'completed'});
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 30');
pass('schedules run');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM open_jobs'), 't', 'views of users live on');

# ---- and the load has lost nothing ----

$node->safe_psql('postgres', qq{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker IN $workers});
$load->drain;
$load->check_ledger;
$load->check_order;
$load->check_nothing_left;

$node->stop;
done_testing();
