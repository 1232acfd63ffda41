# Claims whose session ends in the middle of their transaction: three times over, and the job is dead. A rollback is no such end.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('lost_claims', conf => "restart_after_crash = on\nqueue_jobs.idle_timeout = '1h'");
$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('work', max_retries => 0); SELECT queue_jobs.define_worker('other')});

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub enqueue { return sql(q{SELECT queue_jobs.enqueue('work')}) }

# A session that has claimed the job, in a transaction.
sub claim
{
	my ($job, $before) = @_;
	my $session = in_background($node);

	wait_until($node, q{SELECT count(*) > 0 FROM queue_jobs.job WHERE worker = 'work' AND state = 'available'});
	$session->query('BEGIN');
	$session->query($before) if $before;
	is($session->query(q{SELECT id FROM queue_jobs.claim('works', '{work}')}), $job, 'the job is claimed');
	return $session;
}

# The server's session has ended.
sub wait_for_end
{
	my ($pid) = @_;

	wait_until($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
	return;
}

sub state_of
{
	my ($job) = @_;

	return sql("SELECT state, attempt, coalesce(jsonb_array_length(errors), 0) FROM queue_jobs.job WHERE id = $job");
}

# The client is killed, as by the kernel's OOM killer: the server sees the connection's end.
my %ends = (
	'kill -9 of the client' => sub { $_[0]->kill_client },
	'a client that closes its connection' => sub { $_[0]->quit },
	'pg_terminate_backend()' => sub { sql('SELECT pg_terminate_backend(' . $_[0]->pid . ')'); },
	'idle_in_transaction_session_timeout' => sub { $_[0]->query(q{SET idle_in_transaction_session_timeout = '10 ms'}) });
$ends{transaction_timeout} = sub { $_[0]->query(q{SET transaction_timeout = '10 ms'}) } if $node->pg_version >= 17;
for my $end (sort keys %ends)
{
	my $job = enqueue();

	for my $time (1 .. 3)
	{
		my $session = claim($job);
		my $pid = $session->pid;

		$ends{$end}->($session);
		wait_for_end($pid);
		is(state_of($job), ($time < 3 ? 'available' : 'dead') . "|0|$time", "$end, $time. time");
		$session->quit;
	}
	is(sql("SELECT last_error FROM queue_jobs.job WHERE id = $job"),
		'session of claimant "works" ended in the middle of its transaction' . ($end =~ /_timeout$/ ? ": $end" : ''), 'the error says so');
	is(sql("SELECT queue_jobs.retry($job)"), 't', 'it can be retried');
	is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('works', '{work}')}), '1', '… and completed');
}

# What is no such end.
my $job = enqueue();
my $session = in_background($node);
for my $time (1 .. 5)
{
	for my $claim ('BEGIN; SELECT id FROM claim', 'BEGIN; SAVEPOINT s; SELECT id FROM claim; ROLLBACK TO s', 'BEGIN; SELECT id FROM claim; SELECT 1 / 0')
	{
		$session->query($claim =~ s/claim/queue_jobs.claim('works', '{work}')/r);
		$session->query('ROLLBACK');
	}
}
is(state_of($job), 'available|0|0', 'rollbacks are not charged, nor errors');
my %harmless = (
	'a rolled back savepoint' => q{BEGIN; SAVEPOINT s; SELECT id FROM claim; ROLLBACK TO s},
	'an error' => q{BEGIN; SELECT id FROM claim; SELECT 1 / 0},
	'a rollback' => q{BEGIN; SELECT id FROM claim; ROLLBACK; BEGIN; SELECT 1});
for my $what (sort keys %harmless)
{
	my $pid = $session->pid;

	$session->query($harmless{$what} =~ s/claim/queue_jobs.claim('works', '{work}')/r);
	$session->kill_client;
	wait_for_end($pid);
	is(state_of($job), 'available|0|0', "a session that ends after $what is not charged");
	$session->quit;
	$session = in_background($node);
}
$session->query(q{SELECT id FROM queue_jobs.claim('works', '{work}', lease => '1 hour')});
my $pid = $session->pid;
$session->kill_client;
wait_for_end($pid);
is(state_of($job), 'executing|1|0', 'a claim that is committed is a lease');
is(sql("SELECT queue_jobs.complete($job, 1)"), '', '… and is completed');

# A claim in a savepoint that was released is one of the transaction.
$job = enqueue();
$session = claim($job, 'SAVEPOINT s');
$session->query('RELEASE s');
$pid = $session->pid;
$session->kill_client;
wait_for_end($pid);
is(state_of($job), 'available|0|1', 'a claim in a released savepoint is charged');

# So is one whose lease from before had run out; a claimant that says fail() or snooze() begins the count anew.
is(sql("SELECT queue_jobs.snooze(id, attempt, '0') FROM queue_jobs.claim('works', '{work}')"), '', 'snoozed');
for my $time (1 .. 2)
{
	$session = claim($job);
	$pid = $session->pid;
	$session->kill_client;
	wait_for_end($pid);
}
is(state_of($job), 'available|1|3', 'three losses, but not in a row');
is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('works', '{work}')}), '1', 'completed');

# A shutdown of the server is no job's fault.
$job = enqueue();
for my $time (1 .. 3)
{
	$session = claim($job);
	$node->stop('fast');
$node->start;
	$session->quit;
}
is(state_of($job), 'available|0|0', 'a fast shutdown is not charged');

# In a batch, the job that kills its claimant is found, and the others are completed.
sql("SELECT queue_jobs.discard($job)");
my @jobs = split /\n/, sql(q{SELECT queue_jobs.enqueue('work', jsonb_build_object('n', n)) FROM generate_series(1, 6) n});
my $deaths = 0;
while (sql(q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'work' AND args ? 'n' AND state = 'available'}) > 0)
{
	my $worker = in_background($node);
	my $worker_pid = $worker->pid;
	my $poison = $worker->query(q{BEGIN; SELECT count(*) FROM queue_jobs.claim('works', '{work}', 10) WHERE args ->> 'n' = '4'});

	if ($poison)
	{
		$worker->kill_client;
		wait_for_end($worker_pid);
		die 'no end' if ++$deaths > 3;
	}
	else
	{
		$worker->query(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE claimant = 'works' AND state = 'executing'; COMMIT});
	}
	$worker->quit;
}
is(sql(q{SELECT string_agg(state, ' ' ORDER BY id) FROM queue_jobs.job WHERE worker = 'work' AND args ? 'n'}), 'completed completed completed dead completed completed',
	'a batch loses the one job that kills its claimant');

# A server process that is killed takes all others along: it alone is to be charged.
$job = enqueue();
my $innocent = sql(q{SELECT queue_jobs.enqueue('other')});
for my $time (1 .. 3)
{
	my $bystander = in_background($node);
	$bystander->query(q{BEGIN; SELECT id FROM queue_jobs.claim('bystander', '{other}')});
	$session = claim($job);
	my $before = log_count($node, 'all server processes terminated; reinitializing');
	kill 'KILL', $session->pid;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until (log_count($node, 'all server processes terminated; reinitializing') > $before)
	{
		die 'the server has not noticed the crash' if time > $deadline;
		select undef, undef, undef, 0.02;
	}
	$_->quit foreach ($session, $bystander);
	wait_until($node, "SELECT jsonb_array_length(errors) = $time FROM queue_jobs.job WHERE id = $job");
}
is(state_of($job), 'dead|0|3', 'three crashes of the server process that has claimed it, and the job is dead');
like(sql("SELECT last_error FROM queue_jobs.job WHERE id = $job"), qr/server process crashed/, '… and says why');
is(state_of($innocent), 'available|0|0', 'what others had claimed is not charged');

$node->stop;
done_testing();
