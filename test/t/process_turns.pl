# What one role has the scheduler look at, much of it at once, keeps nothing of other roles waiting: jobs that fall due, batches that end and a new
# role's first executor come before the end of a cascade, which loses nothing, also over a restart.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Points;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'built without test points (make test has them)' unless $ENV{TEST_POINTS};

my $many = 20_000;
my $node = new_node('turns', conf => "fsync = off\nrestart_after_crash = on");

sub sql
{
	my ($sql, $role) = @_;

	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role // $ENV{PGUSER} // scalar getpwuid $< ]);
}

# What is left of alice's, as jobs of others see it: read by the tables' owner.
sql(<<'SQL');
CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN;
GRANT queue_jobs_enqueue, queue_jobs_define, queue_jobs_claim TO alice, bob, carol;
CREATE FUNCTION left_of_alice() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT (SELECT count(*) FROM queue_jobs.live_job WHERE waits IS NOT NULL)
	     + (SELECT count(*) FROM queue_jobs.tracked_batch WHERE settled_at IS NULL AND owner = 'alice'::regrole) $$;
CREATE TABLE seen (what text, round text, alices bigint);
GRANT INSERT ON seen TO bob, carol;
CREATE FUNCTION see(what text, round text) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.seen SELECT what, round, public.left_of_alice() $$;
SQL
sql(q{SELECT queue_jobs.define_worker('hand', max_retries => 0), queue_jobs.define_worker('later')}, 'alice');
sql(q{SELECT queue_jobs.define_worker('see', 'public.see'), queue_jobs.define_worker('mine', max_retries => 0)}, 'bob');

my $points = use_points($node);

sub args
{
	my ($what, $round) = @_;

	return qq{jsonb_build_object('what', '$what', 'round', '$round')};
}

# While the scheduler waits at that point, a job of bob's falls due. Lets it go on until it has come to that job.
sub falls_due_at
{
	my ($point) = @_;

	my $job = sql(q{SELECT queue_jobs.enqueue('later', delay => '1 ms')}, 'bob');
	wait_until($node, "SELECT run_at < clock_timestamp() FROM queue_jobs.job WHERE id = $job");
	arm('due_promoted', 'wait');
	go_on($point);
	wait_at('due_promoted');
	return $job;
}

# Bob's job falls due, bob's batch ends and calls back, and carol, who has no executor yet, enqueues: each before alice's cascade has ended.
sub others_come_between
{
	my ($round, $cascade) = @_;

	my $batch = sql("SELECT queue_jobs.new_batch(on_ended => 'see', args => @{[args('batch', $round)]}, open => true)", 'bob');
	# Within a role the scheduler looks at first what came first: it has looked at that batch once it has at this one, and the next look is alice's.
	my $later = sql('SELECT queue_jobs.new_batch()', 'bob');
	wait_until($node, "SELECT state = 'succeeded' FROM queue_jobs.batch WHERE id = $later");
	arm('looks', 'wait');
	$cascade->();
	wait_at('looks');
	sql("SELECT count(queue_jobs.enqueue('see', @{[args('due', $round)]}, delay => n * interval '10 ms')) FROM generate_series(1, 100) n", 'bob');
	sql("SELECT queue_jobs.close_batch($batch)", 'bob');
	sql("SELECT queue_jobs.enqueue('see', @{[args('first', $round)]})", 'carol');
	go_on('looks');
	wait_until($node, "SELECT count(*) = 102 FROM seen WHERE round = '$round'");
	foreach my $what ('due', 'batch', 'first')
	{
		cmp_ok(sql("SELECT max(alices) FROM seen WHERE round = '$round' AND what = '$what'"), '>', 0, "$round: what is $what does not wait for the end");
	}
	wait_until($node, 'SELECT left_of_alice() = 0');
	pass("$round: which comes");
	return;
}

# Jobs that wait for one that is claimed by hand, which ends now or later.
sub make_dependents
{
	my ($if_dead) = @_;

	my $parent = sql(q{SELECT queue_jobs.enqueue('hand')}, 'alice');
	sql("SELECT count(queue_jobs.enqueue('later', jsonb_build_object('parent', $parent), after => ARRAY[$parent]::bigint[], if_dead => '$if_dead')) FROM generate_series(1, $many)", 'alice');
	wait_until($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND state = 'active'});
	return $parent;
}

my $parent = make_dependents('hold');
others_come_between('release', sub { sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{hand}')}, 'alice') });
is(sql("SELECT count(*) FROM queue_jobs.job WHERE worker = 'later' AND args -> 'parent' = '$parent' AND state = 'available'"), $many, 'release: all go on');

$parent = make_dependents('cancel');
others_come_between('cancel', sub { sql(q{SELECT queue_jobs.fail(id, attempt, 'broken', final => true) FROM queue_jobs.claim('me', '{hand}')}, 'alice') });
is(sql("SELECT count(*) FROM queue_jobs.job WHERE worker = 'later' AND args -> 'parent' = '$parent' AND state = 'cancelled'"), $many, 'cancel: all are cancelled');

# The parent goes on, and is completed, once the scheduler has looked at the first of those that wait, and has more of them to find.
$parent = make_dependents('hold');
arm('looks', 'wait');
sql(q{SELECT queue_jobs.fail(id, attempt, 'broken', final => true) FROM queue_jobs.claim('me', '{hand}')}, 'alice');
wait_at('looks');
sql("SELECT queue_jobs.retry($parent)", 'alice');
sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{hand}')}, 'alice');
go_on('looks');
wait_until($node, 'SELECT left_of_alice() = 0');
is(sql("SELECT count(*) FROM queue_jobs.job WHERE worker = 'later' AND args -> 'parent' = '$parent' AND state = 'available'"), $many, 'all go on, also the first ones');

others_come_between('batches', sub { sql("SELECT count(queue_jobs.new_batch()) FROM generate_series(1, $many)", 'alice') });

# Many jobs of alice's fall due, and one of bob's after them: it does not wait until all of hers are there for executors.
arm('due_promoted', 'wait');
sql("SELECT count(queue_jobs.enqueue('later', jsonb_build_object('due', n), delay => '10 ms')) FROM generate_series(1, 10000) n", 'alice');
wait_at('due_promoted');
my $due = sql(q{SELECT queue_jobs.enqueue('later', delay => '1 ms')}, 'bob');
wait_until($node, "SELECT run_at < clock_timestamp() FROM queue_jobs.job WHERE id = $due");
# 1,000 jobs at a time, and each time of those that have fallen due since then the first ones of each role: bob's is there with the second of these.
foreach my $piece (1 .. 4)
{
	arm('due_promoted', 'wait');
	go_on('due_promoted');
	wait_at('due_promoted');
}
is(sql("SELECT due FROM queue_jobs.live_job WHERE id = $due"), 't', q{a job that falls due behind 10,000 of another role's});
cmp_ok(sql(q{SELECT count(*) FROM queue_jobs.live_job WHERE args ? 'due' AND NOT due}), '>', 0, '… is there for executors before these all are');
go_on('due_promoted');
wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.live_job WHERE args ? 'due' AND NOT due});
pass('all of them are there then');

# Jobs of one key start in order: a younger one does not pass an older one that is not available yet, though the younger is among the first of its role.
sql(q{SELECT queue_jobs.define_worker('in order', concurrency_key => 'k', concurrency_limit => 1)}, 'bob');
arm('due_promoted', 'wait');
sql("SELECT count(queue_jobs.enqueue('later', jsonb_build_object('before', n), delay => '10 ms')) FROM generate_series(1, 3000) n", 'alice');
wait_at('due_promoted');
my $older = sql(q{SELECT queue_jobs.enqueue('in order', '{"k": 1}', delay => '1 ms')}, 'bob');
my $younger = sql(q{SELECT queue_jobs.enqueue('in order', '{"k": 1}', delay => '1 ms')}, 'bob');
$due = sql(q{SELECT queue_jobs.enqueue('later', delay => '1 ms')}, 'bob');
wait_until($node, "SELECT bool_and(run_at < clock_timestamp()) FROM queue_jobs.job WHERE id IN ($older, $younger, $due)");
foreach my $piece (1 .. 4)
{
	arm('due_promoted', 'wait');
	go_on('due_promoted');
	wait_at('due_promoted');
}
is(sql("SELECT string_agg(due::text, ' ' ORDER BY id) FROM queue_jobs.live_job WHERE id IN ($older, $younger, $due)"), 'false false true',
	q{jobs of a key with a limit of one wait for the end of another role's, that older ones come first});
unlink $points . '/due_promoted';
go_on('due_promoted');
wait_until($node, q{SELECT bool_and(due) FROM queue_jobs.live_job WHERE args ? 'before' OR args ? 'k'});

# Many jobs of alice's wait for one of their key, and are put aside: a job of bob's that falls due does not wait for the last of them.
sql(q{SELECT queue_jobs.define_worker('keyed', concurrency_key => 'parks', concurrency_limit => 1)}, 'alice');
sql(q{SELECT count(*) FROM queue_jobs.enqueue_many('keyed', array_fill('{"parks": 1}'::jsonb, ARRAY[10000]))}, 'alice');
my $of_key = sql(q{SELECT id FROM queue_jobs.claim('me', '{keyed}')}, 'alice');
arm('jobs_parked', 'wait');
is(sql(q{SELECT count(*) FROM queue_jobs.claim('me', '{keyed}')}, 'alice'), '0', 'one job of a key can be claimed');
wait_at('jobs_parked');
$due = falls_due_at('jobs_parked');
my $in_the_way = q{SELECT count(*) FROM queue_jobs.live_job WHERE args ? 'parks' AND place >= 0};
cmp_ok(sql($in_the_way), '>', 1, 'a job falls due while 10,000 are put aside');
go_on('due_promoted');
wait_until($node, "SELECT ($in_the_way) = 1");
pass('all of them are put aside then');
# Without the limit they need not wait: they go back, and another job falls due before the last of them.
arm('due_promoted', 'wait');
sql(q{SELECT queue_jobs.enqueue('later', delay => '1 ms')}, 'bob');
wait_at('due_promoted');
sql(q{SELECT queue_jobs.define_worker('keyed')}, 'alice');
arm('jobs_sent_back', 'wait');
go_on('due_promoted');
wait_at('jobs_sent_back');
$due = falls_due_at('jobs_sent_back');
cmp_ok(sql($in_the_way), '<', 10_000, 'a job falls due while they are sent back');
go_on('due_promoted');
wait_until($node, "SELECT ($in_the_way) = 10000");
pass('all of them are sent back then');
sql("SELECT queue_jobs.complete($of_key, 1)", 'alice');
sql(q{SELECT queue_jobs.remove_jobs('keyed')});

# Many schedules of alice's whose ticks are due, and one of bob's: he does not wait for all of hers, nor does a job of his that falls due.
sql('ALTER DATABASE postgres SET queue_jobs.run = off');
wait_for_no_processes($node, 'postgres');
sql("SELECT count(queue_jobs.schedule('alice' || n, '* * * * * *', 'later', jsonb_build_object('tick', n))) FROM generate_series(1, 3000) n", 'alice');
sql(q{SELECT queue_jobs.schedule('bob', '* * * * * *', 'later', '{"tick": 0}')}, 'bob');
wait_until($node, q{SELECT bool_and(next_run < clock_timestamp()) FROM queue_jobs.schedule});
arm('tick_committed', 'wait');
sql('ALTER DATABASE postgres SET queue_jobs.run = on');
wait_at('tick_committed');
$due = falls_due_at('tick_committed');
my $ticks = sql(q{SELECT count(*) FROM queue_jobs.job WHERE args ? 'tick'});
cmp_ok($ticks, '<', 3000, "a job falls due after the ticks of $ticks of 3,001 schedules");
go_on('due_promoted');
wait_for_job($node, $due, 'available');
wait_until($node, q{SELECT count(DISTINCT args -> 'tick') = 3001 FROM queue_jobs.job WHERE args ? 'tick'});
cmp_ok(sql(q{SELECT count(*) FROM queue_jobs.job WHERE args ? 'tick' AND id < (SELECT id FROM queue_jobs.job WHERE args ->> 'tick' = '0' LIMIT 1)}), '<', 300,
	q{another role's schedule has its turn before hers have all had theirs});
sql(q{SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule});

# Many dead jobs of alice's are removed, as she has too many: a job of bob's that falls due does not wait for the last of them.
sql(q{SELECT queue_jobs.define_worker('dies', max_retries => 0)}, 'alice');
sql(q{SELECT queue_jobs.enqueue('dies')}, 'alice');
sql(q{SELECT queue_jobs.fail(id, attempt, 'broken') FROM queue_jobs.claim('me', '{dies}')}, 'alice');
sql('ALTER DATABASE postgres SET queue_jobs.run = off');
wait_for_no_processes($node, 'postgres');
# The latest 10 stay, also of those that stand at the table's end and in between.
sql(<<"SQL");
ALTER SYSTEM SET queue_jobs.max_dead_jobs = 10;
SELECT pg_reload_conf();
INSERT INTO queue_jobs.dead_job SELECT (jsonb_populate_record(d, jsonb_build_object('id', d.id + 1000000 + i, 'finished_at', d.finished_at - (i % 1000) * interval '1 s'))).*
FROM queue_jobs.dead_job d, generate_series(1, $many) AS i WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE worker = 'dies');
SQL
my $dead = q{SELECT count(*) FROM queue_jobs.dead_job WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE worker = 'dies')};
my $latest = qq{SELECT string_agg(id::text, ' ' ORDER BY id) FROM (SELECT id FROM queue_jobs.dead_job WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE worker = 'dies') ORDER BY finished_at DESC, id DESC LIMIT 10) AS l};
my $stay = sql($latest);
# A scheduler that has looked at the history a moment ago does so later.
$node->restart;
my @steps = qw(dead_counted dead_counted dead_ranked dead_ranked dead_trimmed);
arm($steps[0], 'wait');
sql('ALTER DATABASE postgres SET queue_jobs.run = on');
sql(q{SELECT queue_jobs.enqueue('mine')}, 'bob');
wait_at($steps[0]);
while (@steps > 1)
{
	my $step = shift @steps;
	$due = falls_due_at($step);
	arm($steps[0], 'wait');
	go_on('due_promoted');
	wait_at($steps[0]);
	is(sql("SELECT due FROM queue_jobs.live_job WHERE id = $due"), 't', "a job falls due after a piece ($step), and is there for executors before the next");
}
foreach my $piece (1, 2)
{
	$due = falls_due_at('dead_trimmed');
	my $left = sql($dead);
	cmp_ok($left, '>', 10, "a job falls due while $left dead jobs are left");
	arm('dead_trimmed', 'wait');
	go_on('due_promoted');
	wait_at('dead_trimmed');
	is(sql("SELECT due FROM queue_jobs.live_job WHERE id = $due"), 't', '… and is there for executors before the next piece goes');
}
go_on('dead_trimmed');
wait_until($node, "SELECT ($dead) = 10");
is(sql($latest), $stay, 'the latest dead jobs stay');
is(sql(q{SELECT sum(value) FROM queue_jobs.metric WHERE name = 'queue_jobs_dead_removed_total' AND labels ->> 'worker' = 'dies'}), $many - 9, 'all that were removed are counted');

# The same of what jobs that are gone have left behind. The scheduler, whose idle time is over after the first piece, stays until all of it has gone.
sql('ALTER DATABASE postgres SET queue_jobs.run = off');
wait_for_no_processes($node, 'postgres');
sql(<<"SQL");
INSERT INTO queue_jobs.claimed_slot SELECT i, 1000000000 + i, 1 FROM generate_series(1, $many) AS i;
INSERT INTO queue_jobs.saved_step SELECT 1000000000 + i, 'step', to_jsonb(i) FROM generate_series(1, $many) AS i;
INSERT INTO queue_jobs.latest_call SELECT i, NULL, 1, 1000000000 + i, 1, 0, to_jsonb(i) FROM generate_series(1, $many) AS i;
SQL
sql(q{ALTER SYSTEM SET queue_jobs.idle_timeout = '1ms'});
my @leftovers = ('claimed_slot', 'saved_step', 'latest_call');
my $leftovers = 'SELECT ' . join(' + ', map { "(SELECT count(*) FROM queue_jobs.$_)" } @leftovers);
$node->restart;
arm('leftovers_trimmed', 'wait');
sql('ALTER DATABASE postgres SET queue_jobs.run = on');
sql(q{SELECT queue_jobs.enqueue('mine')}, 'bob');
wait_at('leftovers_trimmed');
foreach my $table (@leftovers)
{
	# A piece at a time, until the table is at its end.
	until ((my $left = sql("SELECT count(*) FROM queue_jobs.$table")) < $many)
	{
		$due = falls_due_at('leftovers_trimmed');
		arm('leftovers_trimmed', 'wait');
		go_on('due_promoted');
		wait_at('leftovers_trimmed');
	}
	$due = falls_due_at('leftovers_trimmed');
	cmp_ok(sql("SELECT count(*) FROM queue_jobs.$table"), '>', 0, "a job falls due before all of $table has gone");
	arm('leftovers_trimmed', 'wait');
	go_on('due_promoted');
	wait_at('leftovers_trimmed');
	is(sql("SELECT due FROM queue_jobs.live_job WHERE id = $due"), 't', '… and is there for executors before the next piece goes');
}
go_on('leftovers_trimmed');
wait_until($node, "SELECT ($leftovers) = 0");
pass('all of them go');
sql('ALTER SYSTEM RESET queue_jobs.idle_timeout');

# What the scheduler has not looked at is found after a crash, of each role some.
sql("SELECT count(queue_jobs.new_batch()) FROM generate_series(1, $many)", 'alice');
my $batch = sql("SELECT queue_jobs.new_batch(on_ended => 'see', args => @{[args('batch', 'restart')]})", 'bob');
$node->stop('immediate');
$node->start;
wait_until($node, q{SELECT count(*) = 1 FROM seen WHERE round = 'restart'}, retry_crashed => 1);
wait_until($node, 'SELECT left_of_alice() = 0');
is(sql(q{SELECT count(*) FROM queue_jobs.batch WHERE state <> 'succeeded'}), 0, 'all batches have succeeded after a restart');

$node->stop;

# What the scheduler reads of batches, which it finds a piece at a time, grows with their number, also where they were few when its plans were made.
$node = new_node('reads', conf => "fsync = off\nautovacuum = off\nqueue_jobs.idle_timeout = '2s'");
my $unsettled = 'SELECT count(*) FROM queue_jobs.tracked_batch WHERE settled_at IS NULL';
my $batches = 'SELECT count(queue_jobs.new_batch()) FROM generate_series(1, %d)';
sql(sprintf $batches, 2000);
wait_until($node, "SELECT ($unsettled) = 0");
sql(sprintf $batches, $many);
# (It leaves when it has looked at all of them, and reports what it has read. A look of ours would count, too.)
wait_for_no_processes($node, 'postgres');
my $read = sql(q{SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_all_tables WHERE relid = 'queue_jobs.tracked_batch'::regclass});
note("$read rows of batches are read for $many");
cmp_ok($read, '<', 20 * $many, 'each batch is read a few times');
is(sql($unsettled), '0', 'all of them have ended');

$node->stop;
done_testing();
