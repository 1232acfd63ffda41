# What the TAP tests share: a server with queue_jobs, and waiting for something to become true (never for time to pass).
package QueueJobs::Test;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_node wait_until wait_for_job executor_pids);

# Starts a server that has the extension in its database postgres.
#   conf       lines for postgresql.conf, after (and so stronger than) ours
#   init       arguments of PostgreSQL::Test::Cluster->init, e.g. [ allows_streaming => 1 ]
#   start      0: only set up, not started
#   extension  0: no CREATE EXTENSION
sub new_node
{
	my ($name, %opts) = @_;

	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(@{ $opts{init} // [] });
	$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'queue_jobs'
max_worker_processes = 16
max_prepared_transactions = 10
timezone = 'UTC'
log_line_prefix = '%m [%p] %b %d %q%a '
CONF
	$node->append_conf('postgresql.conf', $opts{conf}) if defined $opts{conf};
	return $node unless $opts{start} // 1;

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION queue_jobs')
	  if $opts{extension} // 1;
	return $node;
}

# Waits until the query returns true (or what is expected instead); gives up with the query and the jobs as they stand.
sub wait_until
{
	my ($node, $query, %opts) = @_;
	my $db = $opts{db} // 'postgres';

	return 1 if $node->poll_query_until($db, $query, $opts{expected} // 't');

	my ($status, $jobs) = $node->psql($db,
		'SELECT id, worker, state, attempt, run_at, last_error FROM queue_jobs.job ORDER BY id DESC LIMIT 20');
	croak "gave up waiting for: $query\nlast jobs:\n" . ($jobs || '(none)');
}

# Waits until the job is in the state.
sub wait_for_job
{
	my ($node, $id, $state, %opts) = @_;

	return wait_until($node,
		"SELECT coalesce((SELECT state::text FROM queue_jobs.job WHERE id = $id), '(no such job)')",
		%opts, expected => $state);
}

# The process ids of the executors that are up, in one database or in all.
sub executor_pids
{
	my ($node, $db) = @_;

	my $pids = $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'"
		  . (defined $db ? " AND datname = '$db'" : '')
		  . ' ORDER BY pid');
	return split /\n/, $pids;
}

1;
