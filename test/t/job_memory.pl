# What definitions cost a session in memory: little, whatever a transaction announces, and however long their texts are.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('memory', conf => "queue_jobs.max_executors = 0\nmax_locks_per_transaction = 256\n");

# By how many kB the memory of a session has grown by a statement, in its transaction.
sub growth
{
	my ($statement, $before) = @_;
	my $total = 'SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts';
	my $out = $node->safe_psql('postgres', qq{
		\\o /dev/null
		SELECT * FROM queue_jobs.worker LIMIT 0;
		SELECT queue_jobs.enqueue('first');
		BEGIN;
		} . ($before // '') . qq{
		$total;
		\\o
		$total \\gset before_
		\\o /dev/null
		$statement;
		\\o
		$total \\gset after_
		SELECT :after_?column? - :before_?column?;
		ROLLBACK;
	} =~ s/\?column\?/size/gr =~ s/1024 FROM/1024 AS size FROM/gr);
	note "$statement: $out kB";
	return $out;
}

$node->safe_psql('postgres', q{SELECT queue_jobs.define_worker('first')});
cmp_ok(growth(q{SELECT count(queue_jobs.define_worker('new ' || i, tags => '{a,b}')) FROM generate_series(1, 2000) AS i}), '<', 8_000, '2,000 definitions in one transaction');
cmp_ok(growth(q{SELECT count(queue_jobs.define_worker('same', version => i)) FROM generate_series(1, 2000) AS i}), '<', 8_000, '… of one worker');
cmp_ok(growth(q{SELECT count(queue_jobs.pause('queue ' || i)) FROM generate_series(1, 2000) AS i}), '<', 4_000, '2,000 paused queues');
cmp_ok(growth(q{SELECT count(queue_jobs.pause('queue ' || i)), count(queue_jobs.resume('queue ' || i)) FROM generate_series(1, 2000) AS i}), '<', 4_000, '… that are resumed');

$node->safe_psql('postgres', q{SELECT count(queue_jobs.define_worker('worker ' || i)) FROM generate_series(1, 1000) AS i});
cmp_ok(growth(q{SELECT count(queue_jobs.enqueue('worker 1', '{}', queue => 'queue ' || i)) FROM generate_series(1, 2000) AS i}), '<', 16_000, '2,000 new queues beside 1,000 workers');
cmp_ok(growth(q{SELECT count(queue_jobs.disable_worker('worker ' || i)) FROM generate_series(1, 1000) AS i}), '<', 4_000, '1,000 disabled workers');
cmp_ok(growth(q{DO $$BEGIN FOR i IN 1..300 LOOP BEGIN PERFORM queue_jobs.define_worker('undone ' || i); RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END$$}), '<', 4_000,
	'300 definitions that are rolled back, each by itself');

# Texts of 10 kB in each option that can have so much.
$node->safe_psql('postgres', q{
	SELECT count(queue_jobs.drop_worker(name)) FROM queue_jobs.worker WHERE name LIKE 'worker %';
	CREATE TABLE record (id int PRIMARY KEY, done boolean);
	CREATE FUNCTION handle(args jsonb) RETURNS void LANGUAGE sql AS '';
	SELECT count(queue_jobs.define_worker('long ' || i, 'public.handle', record => 'record', record_key => 'id', pending => 'NOT done' || repeat(' ', 10000),
			tags => ARRAY(SELECT i || repeat('t', 190) || t FROM generate_series(1, 50) AS t), loggable_args => ARRAY(SELECT i || repeat('a', 190) || a FROM generate_series(1, 50) AS a))),
		count(queue_jobs.define_worker('full ' || i, 'public.handle', max_running_jobs => 1, remaining_work => 'SELECT NULL::jsonb' || repeat(' ', 10000)))
	  FROM generate_series(1, 100) AS i;
});
my $session = $node->safe_psql('postgres', q{
	SELECT queue_jobs.enqueue('first');
	SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts AS c WHERE name LIKE 'queue_jobs %' OR to_jsonb(c) ->> 'parent' LIKE 'queue_jobs %';
}) =~ s/.*\n//r;
cmp_ok($session, '<', 1_000, '200 workers with long texts in a session that enqueues');
cmp_ok(growth(q{SELECT count(queue_jobs.pause('queue ' || i)) FROM generate_series(1, 10) AS i}), '<', 1_000, 'ten queues paused beside them');
cmp_ok(growth(q{SELECT count(queue_jobs.define_worker('short ' || i)) FROM generate_series(1, 100) AS i}), '<', 2_000, '100 workers defined beside them');

# Jobs with args of 64 kB that a claim passes by, as they have leases: their args are not kept. (After COMMIT PREPARED the next claim looks at all jobs.)
$node->safe_psql('postgres', q{
	SELECT queue_jobs.define_worker('large');
	SELECT count(queue_jobs.enqueue('large', jsonb_build_object('n', n, 'text', (SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 2000) AS i)))) FROM generate_series(1, 500) AS n;
	SELECT count(*) FROM queue_jobs.claim('c', '{large}', 1000, lease => '1 day');
	BEGIN;
	SELECT queue_jobs.pause('anything');
	PREPARE TRANSACTION 'p';
	COMMIT PREPARED 'p';
});
my ($taken, $kept) = split /\|/, $node->safe_psql('postgres', q{
	SELECT sum(total_bytes) / 1024 AS size FROM pg_backend_memory_contexts \gset
	SELECT (SELECT count(*) FROM queue_jobs.claim('c', '{large}')), (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts) - :size;
});
note "a claim that passes by 500 jobs: $kept kB";
is($taken, 0, 'a claim passes by jobs with large args');
cmp_ok($kept, '<', 8_000, 'and keeps nothing of them');

# The cost of what is applied in the session itself, and looked at in another, in time: a change does not make a session read everything again.
my $start = $node->safe_psql('postgres', q{
	SELECT count(queue_jobs.define_worker('many ' || i)) FROM generate_series(1, 5000) AS i;
	SELECT count(queue_jobs.define_worker('many ' || i, version => 1)) FROM generate_series(1, 5000) AS i;
});
is($start, "5000\n5000", '5,000 workers are defined, and defined again');

$node->stop;
done_testing();
