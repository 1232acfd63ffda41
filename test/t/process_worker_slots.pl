# More databases with jobs than the server has worker slots, in which schedulers and executors are: they take turns, and no database is forgotten.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Tenants;
use QueueJobs::Test;
use Test::More;

# The launcher, that of logical replication, and six more.
my $node = new_node('worker_slots', extension => 0, conf => <<'CONF');
max_worker_processes = 8
max_parallel_workers = 0
queue_jobs.max_databases = 64
CONF
my @databases = map { "d$_" } 1 .. 10;

make_tenants($node, @databases);

sub enqueue_everywhere { everywhere($node, "SELECT queue_jobs.enqueue('once', '{\"n\": $_[0]}')", @databases); return }

foreach my $n (1 .. 3)
{
	enqueue_everywhere($n);
	wait_until($node, "SELECT count(*) = 1 FROM ran WHERE n = $n", db => $_) foreach @databases;
	pass("ten databases, six worker slots: each runs its job, round $n");
}

# Those whose jobs never end leave room for the others.
$node->safe_psql($_, q{SELECT queue_jobs.enqueue('again') FROM generate_series(1, 8)}) foreach @databases[ 0 .. 5 ];
enqueue_everywhere(4);
wait_until($node, 'SELECT count(*) = 1 FROM ran WHERE n = 4', db => $_) foreach @databases;
pass('also beside six databases whose jobs never end');
cmp_ok(log_count($node, 'has no free background worker slot'), '<', 10, 'the log says it, not at each turn');
$node->safe_psql($_, 'INSERT INTO gate VALUES (1)') foreach @databases;
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.live_job}, db => $_) foreach @databases;
pass('and all is done in the end');
# (A scheduler may be starting in the database that was their template as that is dropped.)
is(log_count($node, 'PANIC|FATAL:  (?!terminating|the database system|database \S+ does not exist)|signal 11'), 0, 'no process failed');
$node->stop;
done_testing();
