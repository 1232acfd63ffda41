# A standby runs nothing; promoted, it goes on at once with whatever waits, is scheduled, or was running.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $primary = new_node('primary', init => [ allows_streaming => 1 ]);
define_gated($primary);
$primary->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside')});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

# One that runs, one that was cut off while it committed, some that wait, one claimed, some for later.
my $running = $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}')});
wait_for_job($primary, $running, 'executing');
my $done = $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}')});
wait_for_job($primary, $done, 'completed');
$primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('outside'); SELECT queue_jobs.claim('c')});
$primary->safe_psql('postgres', q{SELECT queue_jobs.pause('quick')});
$primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(11, 30) n});
my $soon = $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}', delay => '1 day')});
my $later = $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('gated', '{"n": 1}', delay => '1 hour')});
$primary->wait_for_catchup($standby);

# The standby.
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queue_jobs%'"), '0', 'a standby has no process of ours');
is( $standby->safe_psql('postgres', 'SELECT worker, state, count(*) FROM queue_jobs.job GROUP BY 1, 2 ORDER BY 1, 2'),
	"gated|available|1\ngated|scheduled|2\noutside|executing|1\nquick|available|20\nquick|completed|1", 'a standby shows the jobs');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.queue WHERE paused'), '1', 'and queues');
is( $standby->safe_psql('postgres', q{SELECT string_agg(e.reason, ' ' ORDER BY n) FROM queue_jobs.job, queue_jobs.explain_job(id) e WHERE worker = 'quick' AND state = 'available' GROUP BY id LIMIT 1}),
	'paused replica', 'and says why none of them runs here');
like($standby->safe_psql('postgres', "SELECT waits_for FROM queue_jobs.job WHERE id = $running"), qr/ primary/, 'in the view, too');
for my $call (
	q{enqueue('quick')}, q{try_enqueue('quick')}, q{enqueue_many('quick', '{}')}, q{claim('c')}, "complete($running, 1)",
	"fail($running, 1, 'x')", "snooze($running, 1, '1 s')", q{heartbeat('c')}, "cancel($running)", "retry($done)",
	"discard($running)", q{remove_jobs('quick')}, q{pause('quick')}, q{resume('quick')}, q{define_worker('w')},
	q{drop_worker('quick')}, q{disable_worker('quick')}, q{enable_worker('quick')})
{
	my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT queue_jobs.$call");
	like($err, qr/ERROR:  25006:/, "on a standby, refused: $call");
}
my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nCALL queue_jobs.wait_for_jobs(timeout => '100 ms')");
like($err, qr/ERROR:  25006:/, 'and wait_for_jobs()');

# The primary dies in the middle, shortly before a job is due; the standby is promoted.
$primary->safe_psql('postgres', "UPDATE queue_jobs.live_job SET run_at = now() + '3 s' WHERE id = $soon");
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
$standby->safe_psql('postgres', 'INSERT INTO gate VALUES (1)');
$standby->safe_psql('postgres', q{SELECT queue_jobs.resume('quick')});
wait_for_job($standby, $running, 'completed');
wait_until($standby, 'SELECT count(*) = 21 FROM ran WHERE n > 1');
wait_for_job($standby, $soon, 'completed');
is($standby->safe_psql('postgres', 'SELECT n, count(*), max(attempt) FROM ran WHERE n IN (1, 2) GROUP BY n ORDER BY n'),
	"1|2|1\n2|1|1", 'promoted: what was interrupted and what was scheduled ran, what was done did not');
is($standby->safe_psql('postgres', 'SELECT count(DISTINCT n), count(*), max(attempt) FROM ran WHERE n > 2'), '20|20|1', 'promoted: those that waited ran once');
is($standby->safe_psql('postgres', "SELECT started_at >= run_at FROM queue_jobs.job WHERE id = $soon"), 't', '… the scheduled one not before its time');
is($standby->safe_psql('postgres', "SELECT state FROM queue_jobs.job WHERE id = $later"), 'scheduled', '… or is still waiting for it');
is($standby->safe_psql('postgres', q{SELECT state, claimant FROM queue_jobs.job WHERE worker = 'outside'}), 'executing|c', '… a lease holds');
is($standby->safe_psql('postgres', q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'outside'}), '', '… and its claimant completes');
my $new = $standby->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 40}')});
wait_for_job($standby, $new, 'completed');
pass('and new jobs run');

$standby->stop;
done_testing();
