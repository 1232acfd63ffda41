# Sessions in await_job(), await_batch() and wait_for_jobs() are woken by what concerns them, and by nothing else, however many of them wait: each
# commit's wake-ups are counted by the process that sends them. Of equals that wait for the same jobs a job wakes one, and none is forgotten.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Clock;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my $node = new_node('waiters', conf => "queue_jobs.idle_timeout = '1h'\nautovacuum = off");
my $points = use_points($node);

arm('waiter_woken', 'count');

sub sql
{
	my ($sql, %opts) = @_;

	return $node->safe_psql($opts{db} // 'postgres', ($opts{role} ? "SET SESSION AUTHORIZATION $opts{role};" : '') . $sql);
}

sql(<<'SQL');
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
CREATE ROLE team LOGIN;
GRANT queue_jobs_define, queue_jobs_enqueue, queue_jobs_claim, queue_jobs_read TO alice, bob, team;
SQL
sql(q{SELECT queue_jobs.define_worker('a'), queue_jobs.define_worker('unkept', keep_completed => '0'), queue_jobs.define_worker('own', run_as => 'definer')}, role => 'alice');
sql(q{SELECT queue_jobs.define_worker('b'), queue_jobs.define_worker('limited', max_running_jobs => 1)}, role => 'bob');
sql(q{SELECT queue_jobs.define_worker('t')}, role => 'team');

my $bob = in_background($node, user => 'bob');

# So many sessions of the role in the call, asleep.
sub waiting
{
	my ($role, $count, $call) = @_;

	my @sessions = map { in_background($node, user => $role) } 1 .. $count;
	my @pids = map { $_->pid } @sessions;
	$_->send($call) foreach @sessions;
	wait_until($node, "SELECT count(*) = $count FROM pg_stat_activity WHERE pid IN (" . join(',', @pids) . ") AND wait_event_type = 'Extension'");
	counted('waiter_woken');
	return @sessions;
}

sub is_woken
{
	my ($count, $name) = @_;

	return is(counted('waiter_woken'), $count, $name);
}

# What a role does with jobs of its own, commit by commit. Returns how often it woke others.
sub works
{
	my ($session, $worker) = @_;

	foreach (1 .. 5)
	{
		$session->query("SELECT queue_jobs.enqueue('$worker', '{\"n\": $_}')");
		$session->query("SELECT queue_jobs.enqueue('$worker', delay => '1 hour' - interval '$_ min')");
		$session->query("SELECT queue_jobs.enqueue('$worker', queue => 'queue ' || $_)");
		$session->query("BEGIN; SELECT count(*) FROM queue_jobs.claim('c', '{$worker}'); ROLLBACK");
		$session->query("BEGIN; SAVEPOINT s; SELECT count(*) FROM queue_jobs.claim('c', '{$worker}'); ROLLBACK TO s; COMMIT");
		$session->query("SELECT queue_jobs.fail(id, attempt, 'no') FROM queue_jobs.claim('c', '{$worker}')");
		$session->query("SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{*}')");
		$session->query("SELECT queue_jobs.close_batch(b) FROM (SELECT queue_jobs.new_batch(open => true) AS b) s");
		$session->query(q{ALTER ROLE bob PASSWORD 'x'});
	}
	is($session->error, '', 'no error');
	return counted('waiter_woken');
}

# ---- another role's ----

my $job = sql(q{SELECT queue_jobs.enqueue('a', queue => 'later')}, role => 'alice');
my $batch = sql(q{SELECT queue_jobs.new_batch(open => true)}, role => 'alice');
my %calls = (
	await_job => "queue_jobs.await_job($job, '1 hour')",
	await_batch => "queue_jobs.await_batch($batch, '1 hour')",
	'wait_for_jobs, of a queue' => q{queue_jobs.wait_for_jobs('{a}', '1 hour')},
	'wait_for_jobs, of all' => q{queue_jobs.wait_for_jobs('{*,namespace:*}', '1 hour')},
	'wait_for_jobs, by attributes' => q{queue_jobs.wait_for_jobs('{urgency=low}', '1 hour')},
);
sql(q{SELECT queue_jobs.pause('later')});
my %sessions = map { $_ => [ waiting('alice', 2, "CALL $calls{$_}") ] } sort keys %calls;
counted('waiter_woken');
is(works($bob, 'b'), 0, "nothing that another role does wakes sessions in @{[ sort keys %calls ]}");
is(works($bob, 'limited'), 0, 'nor with a worker that has a limit');

sql(q{SELECT queue_jobs.enqueue('b', queue => 'a')}, role => 'bob');
is_woken(0, 'nor in a queue of that name');

# ---- their own ----

sql(q{SELECT queue_jobs.enqueue('a', queue => 'other')}, role => 'alice');
$_->result foreach map { @{ $sessions{$_} } } 'wait_for_jobs, of all', 'wait_for_jobs, by attributes';
is_woken(4, 'a job wakes sessions that may claim it: one of each set of equals, which wakes the next one');
sql(q{SELECT queue_jobs.enqueue('a', delay => '1 hour')}, role => 'alice');
is_woken(1, 'one that is due later is for sessions that wait for its queue');
sql(q{SELECT queue_jobs.enqueue('a')}, role => 'alice');
$_->result foreach @{ $sessions{'wait_for_jobs, of a queue'} };
is_woken(2, 'a job in the queue wakes both, one after the other');
sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{*}', 100)}, role => 'alice');

is(sql("SELECT queue_jobs.cancel($job)", role => 'alice'), 't', 'the job is cancelled');
is($_->result, 'cancelled||', 'which a session was waiting for') foreach @{ $sessions{await_job} };
is_woken(2, 'both are woken by its end');
sql("SELECT queue_jobs.close_batch($batch)", role => 'alice');
is($_->result, 'succeeded', 'a batch ends') foreach @{ $sessions{await_batch} };
is_woken(2, 'and so are those that wait for the batch');
$_->quit foreach map { @$_ } values %sessions;

# A batch that has ended, whose member is retried, and ends once more.
my $again = sql(q{SELECT queue_jobs.new_batch(open => true)}, role => 'alice');
sql("SELECT queue_jobs.enqueue('a', batch => $again); SELECT queue_jobs.close_batch($again); SELECT queue_jobs.cancel_batch($again)", role => 'alice');
wait_until($node, "SELECT settled_at IS NOT NULL FROM queue_jobs.tracked_batch WHERE id = $again");
sql("SELECT queue_jobs.retry_batch($again)", role => 'alice');
wait_until($node, "SELECT settled_at IS NULL FROM queue_jobs.tracked_batch WHERE id = $again");
my ($waits_again) = waiting('alice', 1, "CALL queue_jobs.await_batch($again, '1 hour')");
sql("SELECT queue_jobs.cancel_batch($again)", role => 'alice');
is($waits_again->result, 'ended', 'a batch ends once more, without success');
is_woken(1, 'which wakes those that wait for it');
$waits_again->quit;

# ---- several jobs, and a job that is claimed at once ----

my @equals = waiting('alice', 4, q{CALL queue_jobs.wait_for_jobs('{a}', '1 hour')});
sql(q{BEGIN; SELECT count(queue_jobs.enqueue('a')) FROM generate_series(1, 3); ROLLBACK}, role => 'alice');
is_woken(0, 'jobs that are rolled back wake none');
arm('waiter_looks', 'wait');
sql(q{SELECT queue_jobs.enqueue('a')}, role => 'alice');
is_woken(1, 'a job wakes one of four');
wait_at('waiter_looks');
is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{a}')}, role => 'alice'), 1, 'it is claimed before that one looks');
go_on('waiter_looks');
wait_until($node, q{SELECT count(*) = 4 FROM pg_stat_activity WHERE query ~ 'wait_for_jobs' AND usename = 'alice' AND state = 'active' AND wait_event_type = 'Extension'});
counted('waiter_woken');    # by the claim's lease, too
sql(q{SELECT count(queue_jobs.enqueue('a')) FROM generate_series(1, 3)}, role => 'alice');
cmp_ok(counted('waiter_woken'), '>=', 3, 'three jobs wake three');
$_->result foreach @equals;
pass('and as long as there are jobs all return');
sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{a}', 100)}, role => 'alice');

# ---- one that was woken leaves without a look ----

$_->quit foreach @equals;
@equals = waiting('alice', 3, q{CALL queue_jobs.wait_for_jobs('{a}', '1 hour')});
arm('waiter_looks', 'pause');
sql(q{SELECT queue_jobs.enqueue('a')}, role => 'alice');
wait_at('waiter_looks');
is(sql(q{SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE query ~ '^CALL' AND state = 'active' AND xact_start IS NOT NULL}), 1, 'the one that looks is cancelled');
go_on('waiter_looks');
$_->result foreach @equals;
is(scalar(grep { $_->error =~ /canceling statement/ } @equals), 1, 'before it has, and the others find the job');
sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{a}', 100)}, role => 'alice');
$_->quit foreach @equals;

# ---- whose jobs a role may claim ----

my ($definer) = waiting('alice', 1, q{CALL queue_jobs.wait_for_jobs('{own}', '1 hour')});
sql(q{SELECT queue_jobs.enqueue('own')}, role => 'bob');
$definer->result;
pass('a job that runs as its definer wakes sessions of the definer');
is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{own}')}, role => 'alice'), 1, 'which may claim it');

my ($member) = waiting('alice', 1, q{CALL queue_jobs.wait_for_jobs('{t}', '1 hour')});
sql(q{SELECT queue_jobs.enqueue('t', '{"n": 1}')}, role => 'team');
is_woken(0, 'jobs of a role are not for sessions of another');
sql('GRANT team TO alice');
$member->result;
pass('until that is granted the role');
$member->send(q{CALL queue_jobs.wait_for_jobs('{t}', '1 hour')});
$member->result;
is($member->query(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{t}')}), 1, 'then it may claim them');
my $pid = $member->pid;
$member->send(q{CALL queue_jobs.wait_for_jobs('{t}', '1 hour')});
wait_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid");
sql(q{SELECT queue_jobs.enqueue('t', '{"n": 2}')}, role => 'team');
$member->result;
pass('and is woken by new ones');

# A definition that changes beside an enqueue that knows the former one.
sql(q{SELECT queue_jobs.define_worker('moves')}, role => 'bob');
my $enqueues = in_background($node, user => 'bob');
$enqueues->query(q{BEGIN; SELECT queue_jobs.enqueue('moves')});
my ($waits) = waiting('bob', 1, q{CALL queue_jobs.wait_for_jobs('{moves}', '1 hour')});
sql(q{SELECT queue_jobs.define_worker('moves', run_as => 'definer')}, role => 'bob');
$enqueues->query('COMMIT');
$waits->result;
pass('a job whose worker was defined otherwise meanwhile wakes a session, too');
$_->quit foreach $definer, $member, $enqueues, $waits;

# ---- a job that is not kept ----

my $unkept = sql(q{SELECT queue_jobs.enqueue('unkept')}, role => 'alice');
my ($awaits) = waiting('alice', 1, "CALL queue_jobs.await_job($unkept, '1 hour')");
# the scheduler finds out anew which jobs others wait for, and forgets the rest
sql(q{SELECT queue_jobs.pause('anything')});
my $empty = sql(q{SELECT queue_jobs.new_batch()});
wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $empty");
sql(q{SELECT queue_jobs.complete(id, attempt, '7') FROM queue_jobs.claim('c', '{unkept}')}, role => 'alice');
is($awaits->result, 'completed|7|', 'a session that waits for it is told how it has ended');
$awaits->quit;

# ---- jobs that another transaction has made available, and that come back as it is rolled back ----

# No scheduler does what a session is woken for: it stands still.
my $scheduler = stop_scheduler($node);
my $claims = in_background($node, user => 'alice');
sql(q{SELECT queue_jobs.enqueue('a', queue => 'first', priority => -1)}, role => 'alice');
my $due = sql(q{SELECT queue_jobs.enqueue('a', queue => 'second', delay => '10 ms')}, role => 'alice');
wait_until($node, "SELECT run_at < clock_timestamp() FROM queue_jobs.job WHERE id = $due");
$claims->query('BEGIN');
is($claims->query(q{SELECT queue FROM queue_jobs.claim('c', '{first,second}')}), 'first', 'a claim takes one job, and makes another one available');
my ($second) = waiting('alice', 1, q{CALL queue_jobs.wait_for_jobs('{second}', '1 hour')});
$claims->query('ROLLBACK');
is_woken(1, 'its rollback wakes a session that waits for the other one');
$second->result;
kill 'CONT', $scheduler or die "$scheduler: $!";
is(sql(q{SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('c', '{first,second}', 2)}, role => 'alice'), 2, 'both are claimed then');

# ---- a start of a rate limit that is given back ----

sql(q{SELECT queue_jobs.define_worker('other rated', rate_limit => 1000, rate_period => '1 hour'), queue_jobs.define_worker('rated', rate_limit => 1, rate_period => '1 hour')}, role => 'alice');
sql(q{SELECT queue_jobs.enqueue('other rated')}, role => 'alice');
# a server that has just been made starts nothing of that kind
wait_for(sub { sql(q{SELECT queue_jobs.complete(id, attempt) IS NOT NULL FROM queue_jobs.claim('c', '{other rated}')}, role => 'alice') ne '' }, 'a job with a rate limit is started');
$job = sql(q{SELECT queue_jobs.enqueue('rated')}, role => 'alice');
my $holds = in_background($node, user => 'alice');
arm('claim_has_key', 'wait');
# The end of the claim's transaction would wake the session, too.
$claims->query('BEGIN');
$claims->send(q{SELECT id FROM queue_jobs.claim('c', '{rated}')});
wait_at('claim_has_key');
my ($refused) = waiting('alice', 1, q{CALL queue_jobs.wait_for_jobs('{rated}', '1 hour')});
$holds->query("BEGIN; SELECT queue_jobs.change_job($job, priority => 7)");
go_on('claim_has_key');
is($claims->result, '', 'a claim has the only start of a period, and does not get the job');
is_woken(1, 'which wakes a session that was refused meanwhile, before its transaction ends');
$claims->query('COMMIT');
$holds->query('COMMIT');
$refused->result;
is($claims->query(q{SELECT id FROM queue_jobs.claim('c', '{rated}')}), $job, 'the start is there for the next claim');
$_->quit foreach $second, $holds, $refused;

# ---- a lease that runs out just after a session has looked at its lane ----

# The session stops after its look, until the lease has run out. It must look again at once, and not wait for one of the looks that come once a minute.
sub looks_again
{
	my ($on, $then) = @_;
	my $as_alice = sub { $on->safe_psql('postgres', "SET SESSION AUTHORIZATION alice; $_[0]") };
	# Each session that has not looked yet looks at all lanes.
	my $forgets = sub { $as_alice->(q{SELECT id FROM queue_jobs.claim('c', '{nothing}')}) };

	foreach my $try (1 .. 5)
	{
		my $session = in_background($on, user => 'alice');
		my $worker = "leased $try";

		# The hint knows of the lease that ends first alone. It forgets that when the time has come, and a process has looked: then it knows of no lease.
		$as_alice->("SELECT queue_jobs.define_worker('$worker')");
		my $leased = $as_alice->("SELECT queue_jobs.enqueue('$worker')");
		$as_alice->("SELECT id FROM queue_jobs.claim('c', '{$worker}', lease => '6 s')");
		$as_alice->("SELECT queue_jobs.enqueue('$worker')");
		$as_alice->("SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{$worker}', lease => '1 ms')");
		$forgets->();
		$then->($worker) if $then;
		arm('lane_settles', 'wait');
		arm('waiter_looks', 'count');
		counted('waiter_looks');
		$session->send("CALL queue_jobs.wait_for_jobs('{$worker}', '50 s')");
		wait_for(sub { $session->ended || -e "$points/lane_settles.waiting" }, 'the session has looked');
		my $held = !$session->ended && $on->safe_psql('postgres', "SELECT count(*) FROM queue_jobs.job WHERE id = $leased AND state = 'executing' AND clock_timestamp() < lease_until");
		wait_until($on, "SELECT lease_until < clock_timestamp() FROM queue_jobs.job WHERE id = $leased");
		$forgets->();
		go_on('lane_settles') unless $session->ended;
		$session->result;
		$session->quit;
		unlink "$points/waiter_looks", "$points/lane_settles";
		my $looks = counted('waiter_looks');
		return $looks if $held;
	}
	return 'the lease has always run out before';
}

is(looks_again($node), 2, 'a lease that another session has seen run out meanwhile');

# The same where the lane has no hint, as jobs of many others have come since.
my $full = new_node('full', conf => "queue_jobs.idle_timeout = '1h'\nqueue_jobs.max_lanes = 64");
$points = use_points($full);
$full->safe_psql('postgres', q{CREATE ROLE alice LOGIN; GRANT queue_jobs_define, queue_jobs_enqueue, queue_jobs_claim, queue_jobs_read TO alice;
	SET SESSION AUTHORIZATION alice; SELECT queue_jobs.define_worker('crowds')});
is(looks_again($full, sub {
	my ($worker) = @_;

	$full->safe_psql('postgres', q{SET SESSION AUTHORIZATION alice; SELECT count(queue_jobs.enqueue('crowds', queue => 'q' || n)) FROM generate_series(1, 300) n});
	is($full->safe_psql('postgres', "SELECT count(*) FROM queue_jobs_internal.lane_hint WHERE worker = '$worker'"), 0, "no hint is left of the lane of $worker");
}), 2, 'a lease that has run out meanwhile in a lane without a hint');
$full->stop;
$points = use_points($node);

# ---- the look once a minute ----

# It makes up for wake-ups that are lost, and of equals all look, not the first alone.
my $small = new_node('small', conf => "queue_jobs.idle_timeout = '1h'\nqueue_jobs.max_executors = 0", start => 0);
SKIP: {
	skip 'clock_ahead.c cannot be built here', 2 unless start_with_clock($small);
	$small->safe_psql('postgres', 'CREATE EXTENSION queue_jobs; CREATE ROLE alice LOGIN; GRANT queue_jobs_claim TO alice');
	use_points($small);
	arm($_, 'count') foreach 'waiter_looks', 'waiter_woken';
	my @idle = map { in_background($small, user => 'alice') } 1 .. 2;
	my $pids = join ',', map { $_->pid } @idle;
	$_->send(q{CALL queue_jobs.wait_for_jobs('{nothing}', '1 hour')}) foreach @idle;
	wait_until($small, "SELECT count(*) = 2 FROM pg_stat_activity WHERE pid IN ($pids) AND wait_event_type = 'Extension'");
	counted($_) foreach 'waiter_looks', 'waiter_woken';
	foreach my $minute (1, 2)
	{
		my $seen = 0;
		set_clock($small, 61 * $minute);
		wait_for(sub { ($seen += counted('waiter_looks')) >= 2 }, 'two sessions have looked');
		is(counted('waiter_woken'), 0, "sessions look after a minute, though no process has woken them, $minute of 2");
	}
	$_->quit foreach @idle;
	$small->stop;
}
use_points($node);

# ---- a prepared transaction ----

$job = sql(q{SELECT queue_jobs.enqueue('a')}, role => 'alice');
my @all = (waiting('alice', 1, "CALL queue_jobs.await_job($job, '1 hour')"), waiting('bob', 2, q{CALL queue_jobs.wait_for_jobs('{z}', '1 hour')}));
sql(q{BEGIN; SET LOCAL ROLE alice; SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{a}');
	SET LOCAL ROLE bob; SELECT queue_jobs.enqueue('b', queue => 'z'); PREPARE TRANSACTION 'p'});
is_woken(0, 'a prepared transaction wakes none');
sql(q{COMMIT PREPARED 'p'});
is($all[0]->result, 'completed||', 'until it is committed: a job that it has ended');
$_->result foreach @all[1, 2];
pass('and one that it has enqueued');
$_->quit foreach @all, $bob;

$node->stop;
done_testing();
