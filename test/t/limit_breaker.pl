# Breakers through restarts, kill -9 of a process and an immediate shutdown: a worker that is broken stays so, and one job at a time is tried.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('breaker', conf => "restart_after_crash = on\n");
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE service (down boolean, slow boolean);
INSERT INTO service VALUES (true, false);
CREATE FUNCTION called() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG 'called';
	PERFORM pg_sleep(1000) FROM service WHERE slow;
	IF (SELECT down FROM service) THEN
		RAISE 'down';
	END IF;
END
$$;
SELECT queue_jobs.define_worker('hour', 'public.called', break_after => 2, break_for => '1 hour');
SELECT queue_jobs.define_worker('second', 'public.called', max_retries => 0, break_after => 1, break_for => '1 s');
SQL

sub calls { return log_count($node, qr/LOG:  called/) }
sub broken { return $node->safe_psql('postgres', qq{SELECT broken_until FROM queue_jobs.worker WHERE name = '$_[0]'}) }
sub holds_back
{
	my ($worker) = @_;
	wait_until($node, qq{SELECT count(*) > 0 AND bool_and(waits_for LIKE '%is broken%') FROM queue_jobs.job WHERE worker = '$worker' AND state = 'available'});
	return;
}

# One after the other, so that it is known how many have begun.
sub fails
{
	my ($worker) = @_;
	my $before = calls();
	$node->safe_psql('postgres', qq{SELECT queue_jobs.enqueue('$worker')});
	wait_until($node, qq{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = '$worker' AND state IN ('available', 'executing'))});
	is(calls(), $before + 1, "$worker: a job has failed");
	return;
}

fails('hour');
is(broken('hour'), '', 'one failure is not enough');
$node->restart;
fails('hour');
my $until = broken('hour');
isnt($until, '', 'failures before and after a restart are in a row');
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('hour')) FROM generate_series(1, 5)});
my $job = $node->safe_psql('postgres', q{SELECT max(id) FROM queue_jobs.job WHERE worker = 'hour'});
is($node->safe_psql('postgres', qq{SELECT reason FROM queue_jobs.explain_job($job) WHERE n = 1}), 'broken', 'explain_job() says why it waits');

foreach my $end ('restart', 'kill', 'immediate')
{
	if ($end eq 'restart') { $node->restart }
	elsif ($end eq 'kill')
	{
		my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
		kill 'KILL', $pid;
		wait_until($node, qq{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)});
	}
	else { $node->stop('immediate'); $node->start }
	my $before = calls();
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('hour')});
	holds_back('hour');
	is(broken('hour'), $until, "$end: it is broken as it was");
	is(calls(), $before, "$end: no job has begun");
}
is($node->safe_psql('postgres', q{SELECT ok, value FROM queue_jobs.health() WHERE name = 'breakers'}), 'f|broken: hour', 'health() names it');

# The trial's executor is killed: the job is charged with that, which makes the break longer, or another is tried. One at a time.
$node->safe_psql('postgres', q{UPDATE service SET down = true});
fails('second');
$node->safe_psql('postgres', q{UPDATE service SET slow = true});
$node->safe_psql('postgres', q{SELECT count(queue_jobs.enqueue('second')) FROM generate_series(1, 10)});
my $running = q{SELECT executor_pid FROM queue_jobs.job WHERE worker = 'second' AND state = 'executing'};
foreach my $signal ('TERM', 'KILL')
{
	wait_until($node, qq{SELECT count(*) = 1 FROM ($running) r});
	my $trial = $node->safe_psql('postgres', $running);
	holds_back('second');
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM ($running) r}), 1, "SIG$signal: one job is tried, and the others wait");
	kill $signal, $trial;
	wait_until($node, qq{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $trial)});
	isnt(broken('second'), '', "SIG$signal: the worker is broken as before");
}
wait_until($node, qq{SELECT count(*) = 1 FROM ($running) r});
holds_back('second');
pass('the next one is tried');
$node->safe_psql('postgres', q{UPDATE service SET down = false, slow = false});
$node->safe_psql('postgres', qq{SELECT pg_terminate_backend(executor_pid) FROM ($running) r});
wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'second' AND state IN ('available', 'executing'))});
is(broken('second'), '', 'when one succeeds, all go on');

# By hand.
$node->safe_psql('postgres', q{SELECT queue_jobs.close_breaker('hour')});
wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'hour' AND state IN ('available', 'executing'))});
is(broken('hour'), '', 'close_breaker() has all begin at once');
$node->stop;
done_testing();
