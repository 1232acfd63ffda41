# Two-phase commit: what a prepared transaction did to the queue comes with COMMIT PREPARED, from whatever session, and
# after a restart; and goes with ROLLBACK PREPARED.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('prepared', conf => "queue_jobs.idle_timeout = '1s'");
define_gated($node);
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside')});

sub prepare
{
	my ($name, $sql) = @_;

	$node->safe_psql('postgres', "BEGIN; $sql; PREPARE TRANSACTION '$name'");
	return;
}

# The workers' first jobs ever: with the lanes that come with them.
prepare('committed', q{SELECT queue_jobs.enqueue('quick', '{"n": 1}'); SELECT queue_jobs.enqueue('quick', '{"n": 2}', delay => '1 ms')});
prepare('rolled back', q{SELECT queue_jobs.enqueue('quick', '{"n": 3}'); SELECT queue_jobs.enqueue('outside', '{"n": 4}')});
prepare('after restart', q{SELECT queue_jobs.enqueue('quick', '{"n": 5}'); SELECT queue_jobs.enqueue('quick', '{"n": 6}', delay => '1 ms')});
prepare('rolled back after restart', q{SELECT queue_jobs.enqueue('quick', '{"n": 7}')});
my $other = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 10}')});
wait_for_job($node, $other, 'completed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.job'), '1', 'jobs of prepared transactions are not there, and keep no others');

$node->safe_psql('postgres', q{COMMIT PREPARED 'committed'});
wait_until($node, 'SELECT count(*) = 2 FROM ran WHERE n IN (1, 2)');
pass('COMMIT PREPARED: they run');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'rolled back'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('c')}), '0', 'ROLLBACK PREPARED: not there for claimants');

$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), '2', 'after a crash');
wait_for_no_processes($node, 'postgres');
$node->safe_psql('postgres', q{COMMIT PREPARED 'after restart'});
wait_until($node, 'SELECT count(*) = 2 FROM ran WHERE n IN (5, 6)');
pass('COMMIT PREPARED: they run');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'rolled back after restart'});

# A claim and a completion that are prepared.
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside', jsonb_build_object('n', n)) FROM generate_series(20, 21) n});
prepare('done', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')});
prepare('not done', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.claim('d')}), '0', 'a prepared claim is a claim');
$node->safe_psql('postgres', q{COMMIT PREPARED 'done'});
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'not done'});
is($node->safe_psql('postgres', q{SELECT args->>'n', attempt FROM queue_jobs.claim('d')}), '21|1', 'rolled back, it is free');
is($node->safe_psql('postgres', q{SELECT args->>'n', state FROM queue_jobs.job WHERE worker = 'outside' ORDER BY 1}), "20|completed\n21|executing", 'committed, it is done');

# A waiting job cancelled.
$node->safe_psql('postgres', q{SELECT queue_jobs.pause('quick')});
my ($kept, $gone) = split /\n/, $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 30}') FROM generate_series(1, 2)});
prepare('kept', "SELECT queue_jobs.cancel($kept)");
prepare('gone', "SELECT queue_jobs.cancel($gone)");
$other = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 31}')});
$node->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
wait_for_job($node, $other, 'completed');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'kept'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'gone'});
wait_for_job($node, $kept, 'completed');
wait_for_job($node, $gone, 'cancelled');
pass('a prepared cancel()');

# COMMIT PREPARED would tell no executor of a running one.
my $running = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 40}')});
wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity JOIN queue_jobs.job ON executor_pid = pid WHERE id = $running AND wait_event = 'PgSleep'");
my ($status, $stdout, $stderr) = $node->psql('postgres', "BEGIN; SELECT queue_jobs.cancel($running); PREPARE TRANSACTION 'running'");
like($stderr, qr/cannot PREPARE a transaction that has cancelled or discarded a running job/, 'a running job cannot be cancelled so');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (40)');
wait_for_job($node, $running, 'completed');

is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM ran WHERE n < 30'), '5|5', 'nothing ran twice, or that was rolled back');

$node->stop;
done_testing();
