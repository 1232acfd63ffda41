# An executor that is about to leave, and a job that comes at that moment; a launcher that looks into all databases, beside a scheduler that is asleep.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my $node = new_node('departing', conf => "queue_jobs.max_executors = 2\nqueue_jobs.idle_timeout = '1h'");
use_points($node);
define_gated($node);

sub set_to
{
	my ($setting, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET queue_jobs.$setting = '$value'");
	$node->reload;
	return;
}

my $n = 0;

# With its gate open.
sub enqueue_open
{
	$n++;
	return $node->safe_psql('postgres', "INSERT INTO gate VALUES ($n); SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', $n))");
}

sub enqueue_closed
{
	$n++;
	return $node->safe_psql('postgres', "SELECT queue_jobs.enqueue('gated', jsonb_build_object('n', $n))");
}

sub executors
{
	return $node->safe_psql('postgres', q{SELECT coalesce(string_agg(pid::text, ',' ORDER BY pid), '') FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
}

sub wait_until_none
{
	wait_until($node, q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type IN ('queue_jobs executor', 'queue_jobs scheduler'))});
	return;
}

# Its idle time is over, and it has not left yet: a job has it stay.
set_to('max_executors_per_database', 1);
set_to('idle_timeout', '300ms');
arm('sleep_over', 'wait');
my $id = enqueue_open();
wait_for_job($node, $id, 'completed');
my $executor = executors();
like($executor, qr/^\d+$/, 'one executor is at rest');
wait_at('sleep_over');
wait_until($node, "SELECT finished_at + interval '1 s' < clock_timestamp() FROM queue_jobs.job WHERE id = $id");
$id = enqueue_closed();
set_to('idle_timeout', '1h');
go_on('sleep_over');
wait_for_job($node, $id, 'executing');
is(executors(), $executor, 'a job that comes as the idle time of an executor ends is run by that one');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ($n)");
wait_for_job($node, $id, 'completed');

# It is on its way out: another executor runs what comes, before it is gone.
set_to('max_executors_per_database', 2);
set_to('idle_timeout', '300ms');
# For what follows below, where no scheduler would leave it.
$node->safe_psql('postgres', 'CREATE DATABASE last_one');
$node->safe_psql('last_one', 'CREATE EXTENSION queue_jobs');
wait_until_none();
arm('executor_leaves', 'wait');
wait_for_job($node, enqueue_open(), 'completed');
wait_at('executor_leaves');
wait_for_job($node, enqueue_open(), 'completed');
pass('a job that comes as the only executor leaves does not wait for that');
go_on('executor_leaves');

# The same with no room for another: once it has left, the job is run.
set_to('max_executors_per_database', 1);
wait_until_none();
arm('executor_leaves', 'wait');
wait_for_job($node, enqueue_open(), 'completed');
wait_at('executor_leaves');
$id = enqueue_open();
go_on('executor_leaves');
wait_for_job($node, $id, 'completed');
pass('nor one for which there is no other executor: it is run as soon as that has left');
set_to('max_executors_per_database', 2);
set_to('idle_timeout', '1h');

# A launcher that has just been started looks into all databases. One that has a scheduler, which is asleep, can call it afterwards.
my $busy = enqueue_closed();
wait_for_job($node, $busy, 'executing');
wait_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'postgres' AND state = 'idle'});
arm('scheduler_starts', 'wait');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'queue_jobs launcher'});
wait_at('scheduler_starts');
until ($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'last_one'}))
{
	arm('scheduler_starts', 'wait');
	go_on('scheduler_starts');
	wait_at('scheduler_starts');
}
wait_for_job($node, enqueue_open(), 'completed');
pass('a second executor is started for a job that comes after the look');
go_on('scheduler_starts');
$node->safe_psql('postgres', "INSERT INTO gate SELECT generate_series(1, $n)");
wait_for_job($node, $busy, 'completed');

is(log_count($node, 'PANIC|signal 11'), 0, 'no process failed');
$node->stop;
done_testing();
