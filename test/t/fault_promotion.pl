# Promotion under load: of every kind, as in fault_load.pl, while the primary is killed and its standby promoted, more
# than once. The standby is synchronous: what was committed, and said to be, is on the new primary, so each such job runs.
# The ledger is replicated with the jobs, and tells of every other commit whether it took place.
# QUEUE_JOBS_STRESS_SECONDS makes it go on for longer than 20 seconds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Load;
use QueueJobs::Test;
use Test::More;
use Time::HiRes qw(sleep time);

my $end = time + ($ENV{QUEUE_JOBS_STRESS_SECONDS} || 20);

# A standby of it, that its commits wait for.
sub add_standby
{
	my ($primary, $name) = @_;

	$primary->backup($name);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', q{synchronous_standby_names = ''});
	$standby->start;
	$primary->append_conf('postgresql.conf', q{synchronous_standby_names = '*'});
	$primary->reload;
	wait_until($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
	return $standby;
}

# Some jobs more, of which we have heard that they were committed.
sub enqueue_for_sure
{
	my ($node) = @_;

	return split /\n/, $node->safe_psql('postgres', <<'SQL');
WITH a AS (INSERT INTO asked (worker) SELECT unnest(ARRAY['function', 'fails', 'procedure', 'claimed', 'limited']) RETURNING n, worker)
  SELECT n FROM a WHERE queue_jobs.enqueue(worker, jsonb_build_object('n', n, 'key', n % 3)) IS NOT NULL;
SQL
}

my $primary = new_node('first', init => [ allows_streaming => 1 ], conf => $QueueJobs::Load::conf . 'wal_keep_size = 512MB');
define_load($primary);
my $load = start_load($primary);

my @sure;
my @servers = ($primary);
while (time < $end || @servers < 3)
{
	my $standby = add_standby($primary, 'standby' . @servers);
	for (1 .. 10)
	{
		push @sure, enqueue_for_sure($primary);
		sleep rand(0.2);
	}
	push @sure, enqueue_for_sure($primary);
	$primary->stop('immediate');
	$standby->promote;
	$load->go_on_with($standby);
	$primary = $standby;
	push @servers, $primary;
}

# The last one goes on by itself.
wait_until($primary, q{SELECT count(*) > 100 FROM asked WHERE n > } . (sort { $b <=> $a } @sure)[0]);
$load->stop;
$load->check_counts;
$primary->safe_psql('postgres', q{SELECT queue_jobs.unschedule('ticks')});
$load->drain;
$load->check_ledger;
is($primary->safe_psql('postgres', 'SELECT count(DISTINCT n) FROM done WHERE n IN (' . join(',', @sure) . ')'), scalar @sure,
	'and nothing that was known to be committed was lost');
$load->check_order;
$load->check_nothing_left;
is(log_count($_, 'PANIC|deadlock detected|signal 11|signal 6|TRAP'), 0, $_->name . ': no crash, no deadlock') foreach @servers;
note((@servers - 1) . ' promotions');
$load->note_counts;
$primary->stop;
done_testing();
