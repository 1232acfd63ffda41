# Jobs that do not end, of one role, never take all executors of a database from the other roles that have jobs there; a role that is alone in its
# database has all of them. When a role's jobs have to wait for those of others, the log and waits_for say so.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('roles', conf => <<'CONF');
queue_jobs.max_executors = 3
queue_jobs.max_executors_per_database = 3
CONF
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE greedy LOGIN; CREATE ROLE modest LOGIN; CREATE ROLE late LOGIN;
GRANT queue_jobs_enqueue TO greedy, modest, late;
SELECT queue_jobs.define_worker('gated elsewhere', 'public.gated');
SQL

my $n = 0;

# Enqueues as that role; returns the ids.
sub enqueue_as
{
	my ($role, $worker, $count) = @_;
	my $first = $n + 1;

	$n += $count // 1;
	return split /\n/, $node->safe_psql('postgres',
		"SET SESSION AUTHORIZATION $role; SELECT queue_jobs.enqueue('$worker', jsonb_build_object('n', n)) FROM generate_series($first, $n) n");
}

sub wait_for_executing
{
	my ($role, $count) = @_;

	return wait_until($node, "SELECT count(*) = $count FROM queue_jobs.job WHERE owner = '$role' AND state = 'executing'");
}

sub open_gates
{
	$node->safe_psql('postgres', "INSERT INTO gate SELECT generate_series(1, $n)");
	return wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE state IN ('available', 'executing')});
}

# Alone.
enqueue_as('greedy', 'gated', 5);
wait_for_executing('greedy', 3);
pass('a role that is alone in its database has all executors');
open_gates();

# With another role about.
wait_for_job($node, enqueue_as('modest', 'quick'), 'completed');
foreach (1 .. 2)
{
	enqueue_as('greedy', 'gated', 10);
	wait_for_executing('greedy', 2);
	my $id = enqueue_as('modest', 'quick');
	wait_for_job($node, $id, 'completed');
	pass('one executor is kept for the jobs of another role');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE owner = 'greedy' AND state = 'executing'}), '2', '… while two run endless jobs');
	open_gates();
}

# All of them are busy with endless jobs of several roles.
enqueue_as('greedy', 'gated', 3);
my ($blocks) = enqueue_as('modest', 'gated');
my $gate = $n;
wait_for_executing('greedy', 2);
wait_for_executing('modest', 1);
my ($waits) = enqueue_as('late', 'quick');
wait_until($node, "SELECT waits_for LIKE 'all executors are busy with jobs of other roles%' FROM queue_jobs.job WHERE id = $waits");
pass('a job that waits for the end of other roles\' jobs says so');
my $pattern = 'jobs of role "late" wait, as all executors are busy with jobs of other roles';
wait_until($node, 'SELECT true') until log_count($node, $pattern);
like(slurp_file($node->logfile), qr/$pattern.*\n.*DETAIL:.*\n.*HINT:.*queue_jobs.max_executors_per_role/, 'the log says so, and what to set');
wait_until($node, 'SELECT true') foreach 1 .. 40;
is(log_count($node, $pattern), 1, '… once');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ($gate)");
wait_for_job($node, $waits, 'completed');
pass('and it runs when one of them has ended');
open_gates();

# A most per role, from a reload on.
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors_per_role = 1');
$node->reload;
wait_until($node, q{SELECT current_setting('queue_jobs.max_executors_per_role') = '1'});
# (Processes that have not read it yet would start more.)
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^queue_jobs (scheduler|executor)'});
wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'});
enqueue_as('greedy', 'gated', 5);
enqueue_as('modest', 'gated', 5);
enqueue_as('late', 'gated', 5);
wait_for_executing($_, 1) foreach qw(greedy modest late);
is($node->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.job WHERE state = 'executing'}), '3', 'at most one of each role');
open_gates();
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors_per_role = 3');
$node->reload;
enqueue_as('greedy', 'gated', 5);
wait_for_executing('greedy', 3);
pass('or all of them, if it is set so');
my @pids = executor_pids($node);
$node->append_conf('postgresql.conf', 'queue_jobs.max_executors_per_role = 2');
$node->reload;
wait_until($node, q{SELECT current_setting('queue_jobs.max_executors_per_role') = '2'});
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (' . ($n - 4) . '), (' . ($n - 3) . '), (' . ($n - 2) . ')');
wait_for_executing('greedy', 2);
wait_until($node, q{SELECT count(*) <= 2 FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND usename = 'greedy'});
pass('lowered, those beyond it leave after their jobs');
open_gates();

# In pools.
$node->append_conf('postgresql.conf', "queue_jobs.max_executors_per_role = 0\nqueue_jobs.pools = 'first 2 name=gated|name=quick; second 1 *'");
$node->reload;
wait_until($node, q{SELECT current_setting('queue_jobs.pools') <> ''});
enqueue_as('greedy', 'gated', 3);
enqueue_as('greedy', 'gated elsewhere', 3);
wait_until($node, q{SELECT count(*) = 2 FROM queue_jobs.job WHERE owner = 'greedy' AND state = 'executing'});
wait_for_job($node, enqueue_as('modest', 'quick'), 'completed');
pass('one executor of a pool is kept, too');
open_gates();

$node->stop;
done_testing();
