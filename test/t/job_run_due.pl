# run_due() without shared_preload_libraries: two sessions at once; read_handler; options, aliases, callbacks, and what is called again while
# it waits. (sql/run_due has all else, and job_encryption encrypted args.) The matrix runs it once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('run_due', conf => "shared_preload_libraries = ''");

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(q{
CREATE TABLE done (n serial, worker text, args jsonb, attempt int);
CREATE FUNCTION does(args jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO done (worker, args, attempt) SELECT worker, does.args, attempt FROM queue_jobs.current_job();
	IF args ? 'error' THEN RAISE '%', args ->> 'error'; END IF;
	IF args ? 'sleep' THEN PERFORM pg_sleep(100); END IF;
	RETURN 'did';
END$$;
SELECT queue_jobs.define_worker('does', 'public.does'),
	queue_jobs.define_worker('key', 'public.does', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once'),
	queue_jobs.define_worker('newer', 'public.does', aliases => '{older}'),
	queue_jobs.define_worker('limited', 'public.does', max_running_jobs => 1)});

# ---- two sessions ----

my ($one, $two) = map { in_background($node) } 1, 2;
sql(q{SELECT queue_jobs.enqueue('does', '{"i": 1}'), queue_jobs.enqueue('limited', '{"i": 2}'), queue_jobs.enqueue('limited', '{"i": 3}'), queue_jobs.enqueue('key', '{"k": 1}')});
$_->query('BEGIN') foreach $one, $two;
is($one->query(q{SELECT queue_jobs.run_due()}), '4', 'a session runs all that is due');
is($two->query(q{SELECT queue_jobs.run_due()}), '0', '… and another one nothing of it, and does not wait');
is($two->query(q{SELECT queue_jobs.enqueue('limited', '{"i": 4}') > 0, queue_jobs.enqueue('key', '{"k": 1}') > 0, queue_jobs.enqueue('key', '{"k": 2}') > 0}), 't|t|t', 'it enqueues jobs of its own');
is($two->query(q{SELECT queue_jobs.run_due()}), '2', '… which run, but for one whose key runs there');
$one->query('ROLLBACK');
is($two->query(q{SELECT queue_jobs.run_due()}), '4', 'after a rollback the other session runs them');
is($two->query(q{SELECT count(*), count(DISTINCT args) FROM done}), '6|6', '… each once; the two of one key are one run');
$two->query('ROLLBACK');
is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE state = 'available'}), '4', 'nothing is left of all that');
$_->quit foreach $one, $two;
is(sql(q{SELECT queue_jobs.run_due()}), '4', 'by itself a call commits what it does');
is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE state = 'completed'}), '4', '… and the ends');

# ---- read_handler ----

sql(q{
CREATE TABLE seen (consistency text, read jsonb);
CREATE FUNCTION reads(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$SELECT jsonb_build_object('done', count(*)) FROM done$$;
CREATE FUNCTION writes(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN INSERT INTO done (worker) VALUES ('read'); RETURN '1'; END$$;
CREATE FUNCTION takes(args jsonb, read jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO seen SELECT data_consistency, read FROM queue_jobs.current_job()$$;
SELECT queue_jobs.define_worker('reads ' || c, 'public.takes', idempotent => true, read_handler => 'public.reads', data_consistency => c) FROM unnest('{always,sticky,delayed}'::text[]) c;
SELECT queue_jobs.define_worker('reads badly', 'public.takes', read_handler => 'public.writes', max_retries => 0)});
is(sql(q{BEGIN;
	TRUNCATE done;
	INSERT INTO done (worker) VALUES ('not committed');
	SELECT count(queue_jobs.enqueue('reads ' || c)) FROM unnest('{always,sticky,delayed,badly}'::text[]) c;
	SELECT queue_jobs.run_due(now => now() + interval '1 min');
	SELECT string_agg(consistency || ' ' || read, ', ' ORDER BY consistency) FROM seen;
	SELECT state, last_error ~ 'read-only' FROM queue_jobs.job WHERE worker = 'reads badly';
	ROLLBACK}), qq(4\n4\nalways {"done": 1}, always {"done": 1}, always {"done": 1}\ndead|t), 'what is read is the state of the test, read-only');

# ---- a record, and the latest args ----

is(sql(q{CREATE TABLE item (id int PRIMARY KEY, status text);
	SELECT queue_jobs.define_worker('item', 'public.does', record => 'public.item', record_key => 'id', pending => $$status = 'pending'$$, if_waiting => 'replace');
	BEGIN;
	INSERT INTO item VALUES (1, 'pending');
	SELECT count(DISTINCT queue_jobs.enqueue('item', jsonb_build_object('id', 1, 'call', n))) FROM generate_series(1, 3) n;
	SELECT queue_jobs.run_due();
	SELECT args FROM done WHERE worker = 'item';
	ROLLBACK}), qq(\n1\n1\n{"id": 1, "call": 3}), 'calls for one record are one run, with the latest args');

# ---- options of a job, an alias, callbacks, what is called again ----

is(sql(q{BEGIN;
	SELECT queue_jobs.enqueue('does', '{"error": "no"}', max_retries => 0, tags => '{t}') > 0, queue_jobs.enqueue('does', '{"sleep": 1}', max_retries => 0, timeout => '10 ms') > 0,
		queue_jobs.enqueue('does', '{"gone": 1}', keep_completed => '0') > 0;
	SELECT queue_jobs.run_due();
	SELECT string_agg(format('%s %s %s', args, state, tags), ', ' ORDER BY id) FROM queue_jobs.job WHERE args ?| '{error,sleep,gone}';
	ROLLBACK}), qq(t|t|t\n3\n{"error": "no"} dead {t}, {"sleep": 1} dead ), 'options of a job hold');
is(sql(q{BEGIN;
	SELECT count(queue_jobs.enqueue('key', jsonb_build_object('call', n), dedup_key => 'called', if_waiting => 'replace')) FROM generate_series(1, 50) n;
	SELECT queue_jobs.enqueue('key', '{"call": 51}', dedup_key => 'called', if_waiting => 'debounce', delay => '1 min') > 0, queue_jobs.run_due();
	SELECT queue_jobs.run_due(now => now() + interval '61 s');
	SELECT args, attempt FROM done WHERE args ? 'call';
	ROLLBACK}), qq(50\nt|0\n1\n{"call": 51}|1), 'a job that was changed runs once, with the latest args');
is(sql(q{BEGIN;
	SELECT queue_jobs.new_batch(on_success => 'older') AS batch \gset
	SELECT queue_jobs.enqueue('older', '{"m": 1}', batch => :batch) > 0, queue_jobs.enqueue('newer', '{"m": 2}', batch => :batch) > 0;
	SELECT queue_jobs.run_due();
	SELECT string_agg(worker, ' ' ORDER BY n), bool_or(args ? 'batch') FROM done WHERE worker IN ('older', 'newer');
	ROLLBACK}), "t|t\n3\nnewer newer newer|t", 'a batch by an alias, and its callback, without a scheduler');

$node->stop;
done_testing();
