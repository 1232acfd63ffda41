# Rate limits are strict through restarts, kill -9 of a process, and of all by an immediate shutdown, in the middle of a period
# that is longer than the test: for executors and for claimants, and for each key.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('rates', init => [ allows_streaming => 1 ], conf => "restart_after_crash = on\nlog_statement = none\n");
$node->safe_psql('postgres', <<'SQL');
-- In the log are also those starts that no transaction tells of.
CREATE FUNCTION noted(hold boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG 'noted %', (queue_jobs.current_job()).id;
	PERFORM pg_sleep(1000) WHERE hold AND (queue_jobs.current_job()).attempt = 1;
END
$$;
CREATE FUNCTION at_once(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$;
CREATE FUNCTION nothing() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('rated', 'public.noted', rate_limit => 7, rate_period => '10 min');
SELECT queue_jobs.define_worker('claimed', rate_limit => 3, rate_period => '10 min', concurrency_key => 'k');
SELECT queue_jobs.define_worker('often', 'public.nothing', rate_limit => 1, rate_period => '100 ms');
SELECT count(queue_jobs.enqueue('rated')) FROM generate_series(1, 4);
SELECT count(queue_jobs.enqueue('claimed', '{"k": 1}')) FROM generate_series(1, 10);
SELECT count(queue_jobs.enqueue('claimed', '{"k": 2}')) FROM generate_series(1, 10);
SQL

sub starts { return log_count($node, qr/LOG:  noted \d/) }

# The jobs that the limit keeps from starting: a claim has looked, and refused them.
sub held_back
{
	my ($count) = @_;
	wait_until($node, q{SELECT count(*) FILTER (WHERE waits_for LIKE '%rate_limit 7%') FROM queue_jobs.job WHERE worker = 'rated' AND state = 'available'}, expected => $count);
	wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'rated' AND state = 'executing')});
	return;
}

sub claim
{
	return $node->safe_psql('postgres', q{SELECT string_agg(args->>'k', '' ORDER BY id) FROM queue_jobs.claim('me', '{claimed}', 10)});
}

# The length of the period, no more than 10 s, is waited for where nothing is known of earlier starts, as on a new server.
# By then the scheduler has left: it is to come back.
wait_until($node, q{SELECT count(*) = 4 FROM queue_jobs.job WHERE worker = 'rated' AND state = 'completed'});
is($node->safe_psql('postgres', q{SELECT string_agg(args->>'k', '') FROM queue_jobs.claim('me', '{claimed}', 2)}), '11', 'two of three starts of a key');

$node->restart;
is(claim(), '1222', 'after a restart one more of that key, and all three of the other');
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('rated')) FROM generate_series(1, 10)});
held_back(7);
is(starts(), 7, 'as many as the limit says, before and after the restart');

# Its own process is killed while the job is running: the start has been one, the next attempt is another.
$node->safe_psql('postgres', q{BEGIN;
	SELECT queue_jobs.define_worker('rated', 'public.noted', rate_limit => 8, rate_period => '10 min', retry_backoff => 'public.at_once');
	SELECT queue_jobs.enqueue('rated', '{"hold": true}', priority => -1);
	COMMIT});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job j JOIN pg_stat_activity a ON a.pid = executor_pid
	WHERE worker = 'rated' AND j.state = 'executing' AND wait_event = 'PgSleep'});
my ($pid) = $node->safe_psql('postgres', q{SELECT executor_pid FROM queue_jobs.job WHERE worker = 'rated' AND state = 'executing'});
kill 'KILL', $pid;
wait_until($node, q{SELECT count(*) FILTER (WHERE waits_for LIKE '%rate_limit 8%') FROM queue_jobs.job WHERE worker = 'rated' AND state = 'available'}, expected => 8);
is(starts(), 8, 'no start is forgotten when its process is killed');
is(claim(), '', 'nor those of claimants');

# All of its processes are killed, and nothing is written on the way.
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('rated')});
wait_until($node, q{SELECT count(*) FILTER (WHERE waits_for LIKE '%rate_limit 8%') FROM queue_jobs.job WHERE worker = 'rated' AND state = 'available'}, expected => 9);
is(starts(), 8, 'nor when all of them are');
is(claim(), '', 'nor those of claimants, either');

# What is over is forgotten.
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('often')) FROM generate_series(1, 3)});
wait_until($node, q{SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'often' AND state = 'completed'});
$node->restart;
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('often')) FROM generate_series(1, 3)});
wait_until($node, q{SELECT count(*) = 6 FROM queue_jobs.job WHERE worker = 'often' AND state = 'completed'});
pass('a short period goes on after a restart');
is(log_count($node, 'PANIC'), 0, 'no crash but ours');
$node->stop;

# A file that says something impossible harms no worker.
my $file = $node->data_dir . '/pg_stat/queue_jobs.rates';
my $size = -s $file;
ok($size > 1_000_000, 'the file is there');
open my $handle, '+<', $file or die $!;
binmode $handle;
seek $handle, 8192, 0;
print $handle "\xff" x ($size - 8192);
close $handle;
$node->start;
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('often')) FROM generate_series(1, 3)});
wait_until($node, q{SELECT count(*) = 9 FROM queue_jobs.job WHERE worker = 'often' AND state = 'completed'});
$node->stop;
unlink $file;
mkdir $file or die $!;
$node->start;
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('often')) FROM generate_series(1, 3)});
wait_until($node, q{SELECT count(*) = 12 FROM queue_jobs.job WHERE worker = 'often' AND state = 'completed'});
like(slurp_file($node->logfile), qr/could not map file "pg_stat\/queue_jobs.rates"/, 'without the file it works, and says so');
$node->stop;
done_testing();
