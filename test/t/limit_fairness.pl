# Who goes first, where there is more to do than can be done: shares by weight, urgency without starvation, and a queue
# that one of a hundred tenants has flooded.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('fairness', conf => <<'CONF');
synchronous_commit = off
queue_jobs.max_executors_per_database = 3
CONF

# In which order jobs start: the sequence counts across all executors.
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE start;
CREATE TABLE ran (n bigint, worker text, tenant int);
CREATE FUNCTION notes(tenant int DEFAULT 0, pause float8 DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n bigint := nextval('start');
BEGIN
	PERFORM pg_sleep(pause) WHERE pause > 0;
	INSERT INTO ran SELECT n, worker, tenant FROM queue_jobs.current_job();
END
$$;
SELECT queue_jobs.define_worker('weight ' || w, 'public.notes', weight => w) FROM unnest(ARRAY[1, 2, 4]) w;
SELECT queue_jobs.define_worker('tenants', 'public.notes', concurrency_key => 'tenant', concurrency_limit => 1);
SELECT queue_jobs.define_worker(u, 'public.notes', urgency => u) FROM unnest(ARRAY['high', 'low', 'throttled']) u;
SELECT queue_jobs.define_worker('same ' || n, 'public.notes', queue => 'same') FROM generate_series(1, 3) n;
SQL

# Enqueues in one transaction, so that all is there at once, and waits until none of it is left.
sub run_all
{
	my (@enqueues) = @_;

	$node->safe_psql('postgres', join(";\n", 'BEGIN', 'TRUNCATE ran', q{SELECT setval('start', 1, false)}, @enqueues, 'COMMIT'));
	wait_until($node, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE state IN ('available', 'executing', 'retryable', 'scheduled'))});
	return;
}

# Weights.
run_all(map { "SELECT count(*) FROM queue_jobs.enqueue_many('weight $_', array_fill('{}'::jsonb, ARRAY[3000]))" } 1, 2, 4);
my %share = map { split /\|/ } split /\n/,
  $node->safe_psql('postgres', 'SELECT worker, count(*) FROM ran WHERE n <= 3500 GROUP BY 1');
foreach my $weight (1, 2, 4)
{
	my $due = 500 * $weight;
	cmp_ok(abs($share{"weight $weight"} - $due), '<', $due / 10, "weight $weight has its share within 10 %: " . $share{"weight $weight"} . " of $due");
}

# A flood of one tenant, before all others.
run_all(
	q{SELECT count(*) FROM queue_jobs.enqueue_many('tenants', array_fill('{"tenant": 0, "pause": 0.001}'::jsonb, ARRAY[4000]))},
	q{SELECT count(*) FROM queue_jobs.enqueue_many('tenants', ARRAY(SELECT jsonb_build_object('tenant', t, 'pause', 0.001)
	    FROM generate_series(1, 5) n, generate_series(1, 99) t))});
cmp_ok($node->safe_psql('postgres', 'SELECT max(n) FROM ran WHERE tenant > 0'), '<', 4000,
	'99 tenants do not wait for the flood of another');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ran'), 4495, 'which is worked off as well');

# Urgency, while there is no reason to fear for the others.
run_all(map { "SELECT count(*) FROM queue_jobs.enqueue_many('$_', array_fill('{}'::jsonb, ARRAY[200]))" } qw(throttled low high));
is( $node->safe_psql('postgres', 'SELECT worker FROM ran GROUP BY worker ORDER BY avg(n)'),
	"high\nlow\nthrottled", 'high before low before throttled');
# (The last few may be held up in processes that have taken them, while others go on.)
SKIP:
{
	skip 'so slow that the others had their turns', 1
	  if $node->safe_psql('postgres', q{SELECT max(started_at) - min(created_at) > '3 s' FROM queue_jobs.job WHERE worker = 'high'}) eq 't';
	cmp_ok($node->safe_psql('postgres', q{SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY n) FROM ran WHERE worker = 'high'}),
		'<=', 185, 'strictly, but for what runs side by side');
}

# And when there is: long after all that waits should have had a turn, there is still a flood of what goes first.
run_all(
	(map { "SELECT count(*) FROM queue_jobs.enqueue_many('$_', array_fill('{\"tenant\": 1}'::jsonb, ARRAY[20]))" } qw(throttled low)),
	q{SELECT count(*) FROM queue_jobs.enqueue_many('high', array_fill('{"pause": 0.005}'::jsonb, ARRAY[3600]))});
my $last_high = $node->safe_psql('postgres', q{SELECT max(n) FROM ran WHERE worker = 'high'});
cmp_ok($node->safe_psql('postgres', "SELECT max(n) FROM ran WHERE worker = '$_'"), '<', $last_high, "$_ does not starve")
  foreach qw(low throttled);
is($node->safe_psql('postgres', q{SELECT min(started_at - created_at) > '2 s' FROM queue_jobs.job WHERE worker IN ('low', 'throttled') AND args = '{"tenant": 1}'}),
	't', 'but waits for its turn');

# One queue of several workers: by priority, then by age.
run_all(q{SELECT count(queue_jobs.enqueue('same ' || 1 + n % 3, jsonb_build_object('tenant', (n * 7) % 10 * 1000 + n), priority => (n * 7) % 10)) FROM generate_series(1, 300) n});
cmp_ok($node->safe_psql('postgres', q{
	SELECT max(abs(n - due))
	  FROM (SELECT row_number() OVER (ORDER BY started_at, id) AS n, row_number() OVER (ORDER BY (args->>'tenant')::int) AS due
	          FROM queue_jobs.job WHERE worker LIKE 'same %') r}),
	'<=', 6, 'priority and age count across the workers of a queue, but for what runs side by side');
$node->stop;

# Processes that live for one job: two roles have to share one executor, so that none is there for as long as an urgency's
# patience. What has waited for long, by the job's own time, has its turns nevertheless.
$node = new_node('short', conf => 'queue_jobs.max_executors = 1');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE r1 LOGIN; CREATE ROLE r2 LOGIN;
GRANT queue_jobs_enqueue TO r1, r2;
CREATE TABLE ran (role regrole, pid int, worker text);
GRANT INSERT ON ran TO r1, r2;
CREATE FUNCTION flood() RETURNS void LANGUAGE sql AS $$
	INSERT INTO ran VALUES (current_user::regrole, pg_backend_pid(), 'flood');
	SELECT queue_jobs.enqueue('flood') WHERE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'stopped');
	SELECT pg_sleep(0.15);
$$;
CREATE FUNCTION old() RETURNS void LANGUAGE sql AS $$INSERT INTO ran VALUES (current_user::regrole, pg_backend_pid(), 'old')$$;
SELECT queue_jobs.define_worker('flood', 'public.flood', urgency => 'high'), queue_jobs.define_worker('old', 'public.old');
SQL
foreach my $role (qw(r1 r2))
{
	$node->safe_psql('postgres', "SET SESSION AUTHORIZATION $role; BEGIN; SELECT queue_jobs.enqueue('flood') FROM generate_series(1, 3);"
		  . " SELECT queue_jobs.enqueue('old', run_at => now() - interval '1 min'); COMMIT");
}
wait_until($node, q{SELECT count(DISTINCT role) = 2 FROM ran WHERE worker = 'old'});
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT pid) FROM ran'), '>=', 2, 'where no process lives for long, nothing starves');
$node->safe_psql('postgres', 'CREATE TABLE stopped ()');
$node->stop;
done_testing();
