# pg_upgrade from an older major version: nothing is lost, nothing runs meanwhile, and the queue goes on by itself.
# OLD_INSTALLATION is the directory of that version, with queue_jobs, as test/lib/pack_installation.sh makes it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'no older PostgreSQL to upgrade from (make test-matrix has one)' unless $ENV{OLD_INSTALLATION};

# Checksums are on or off by default, depending on the version, and must not differ.
my @init = (init => [ extra => ['--data-checksums'] ]);
my $old = new_node('old', install_path => $ENV{OLD_INSTALLATION}, @init);
my $new = new_node('new', start => 0, @init);

define_gated($old);
$old->safe_psql('postgres', <<'SQL');
CREATE ROLE gone;	-- so that the roles' OIDs are not those of a fresh restore
CREATE ROLE app LOGIN;
DROP ROLE gone;
GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
CREATE FUNCTION failing(n int) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'no % today', n; END$$;
CREATE FUNCTION tomorrow(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 day'$$;
SELECT queue_jobs.define_worker('failing', 'public.failing', retry_backoff => 'public.tomorrow');
SELECT queue_jobs.define_worker('deadly', 'public.failing', max_retries => 0);
SELECT queue_jobs.define_worker('outside', queue => 'out', namespace => 'ns', version => 7);
SELECT queue_jobs.define_worker('once', 'public.quick', queue => 'once', idempotent => true);
SELECT queue_jobs.define_worker('late', 'public.quick', queue => 'late');
SELECT queue_jobs.set_routing('[["urgency=high", "fast"], ["*", ""]]');
SELECT queue_jobs.schedule('yearly', '0 0 1 1 *', 'quick', '{"n": 30}', timezone => 'Europe/Paris');
SELECT queue_jobs.schedule('command', 'every 90 days', command => 'VACUUM gate');
SELECT queue_jobs.enqueue('failing', '{"n": 1}');
SELECT queue_jobs.enqueue('deadly', '{"n": 2}');
SELECT queue_jobs.enqueue('quick', '{"n": 3}');
SQL
wait_until($old, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE state IN ('retryable', 'dead', 'completed')});
$old->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.pause(queue) FROM unnest('{quick,once}'::text[]) AS queue;
SELECT queue_jobs.enqueue('once', '{"n": 9}');
SELECT queue_jobs.enqueue('gated', '{"n": 4}', delay => '1 day', context => '{"who": "me"}', expires_in => '1 hour');
SELECT queue_jobs.enqueue('outside', '{"n": 5}') FROM generate_series(1, 2);
SELECT queue_jobs.claim('claimant', lease => '1 day');
SET SESSION AUTHORIZATION app;
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n), priority => n) FROM generate_series(10, 19) n;
SELECT queue_jobs.run_once('token', 'SELECT 42');
SQL

my %queries = (
	jobs => q{SELECT id, worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at, run_at, expires_at,
		errors, result, dedup_key, owner, claimant FROM queue_jobs.job ORDER BY id},
	workers => 'SELECT * FROM queue_jobs.worker ORDER BY name',
	schedules => q{SELECT * FROM queue_jobs.schedule ORDER BY name},
	'routing rules' => 'SELECT * FROM queue_jobs.routing_rule ORDER BY 1',
	'paused queues' => 'SELECT queue FROM queue_jobs.queue WHERE paused ORDER BY 1',
);
my %before = map { $_ => $old->safe_psql('postgres', $queries{$_}) } keys %queries;
my $last = $old->safe_psql('postgres', q{SELECT queue_jobs.enqueue('late', '{"n": 40}', delay => '4 s')});
$old->stop;

command_ok([
	'pg_upgrade', '--no-sync', '--old-datadir' => $old->data_dir, '--new-datadir' => $new->data_dir,
	'--old-bindir' => "$ENV{OLD_INSTALLATION}/bin", '--new-bindir' => $new->config_data('--bindir'),
	'--socketdir' => $new->host, '--old-port' => $old->port, '--new-port' => $new->port ], 'pg_upgrade');
$new->start;
wait_for_job($new, $last, 'completed');
pass('a job that fell due meanwhile runs, by itself');

for my $name (sort keys %queries)
{
	is($new->safe_psql('postgres', $queries{$name} =~ s/FROM queue_jobs.job\K/ WHERE id < $last/r), $before{$name}, "$name are as they were");
}

$new->safe_psql('postgres', 'SELECT queue_jobs.resume(queue) FROM queue_jobs.queue WHERE paused');
wait_until($new, 'SELECT count(*) = 13 FROM ran');
is($new->safe_psql('postgres', q{SELECT string_agg(DISTINCT role, ' '), count(DISTINCT n) FROM ran WHERE n BETWEEN 10 AND 19}), 'app|10',
	'those that waited have run, as the role that enqueued them');
is($new->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE state = 'executing'}), '',
	'a claimant completes what it had claimed');
cmp_ok($new->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 50}')}), '>', $last, 'ids go on');
$new->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION failing(n int) RETURNS void LANGUAGE sql AS 'SELECT'});
is($new->safe_psql('postgres', q{SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE state IN ('dead', 'retryable')}), "t\nt", 'failed jobs are retried');
wait_until($new, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE worker IN ('deadly', 'failing') AND state = 'completed'});
$new->safe_psql('postgres', q{SELECT queue_jobs.run_now(name) FROM queue_jobs.schedule});
wait_until($new, 'SELECT count(*) = 1 FROM ran WHERE n = 30');
wait_until($new, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE schedule = 'command' AND state = 'completed'});
pass('schedules run');
is($new->safe_psql('postgres', q{SET SESSION AUTHORIZATION app; SELECT queue_jobs.run_once('token', 'SELECT 43')}), '42', 'a token was used');

# The extension's objects are those of a fresh one, and the next upgrade would find them so.
$new->safe_psql('postgres', 'DROP EXTENSION queue_jobs');
$new->safe_psql('postgres', 'CREATE EXTENSION queue_jobs');
pass('the extension can be dropped, and made again');

$new->stop;
done_testing();
