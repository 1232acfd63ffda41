-- if_waiting: the job that waits is changed. The races are in test/isolation.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('waiting');

-- replace: args, context, priority and time; replace_args: args and context; drop: nothing
SELECT queue_jobs.enqueue('waiting', '{"v": 1}', dedup_key => 'k', if_waiting => 'replace', priority => 5, context => '{"c": 1}') AS job \gset
SELECT queue_jobs.enqueue('waiting', '{"v": 2}', dedup_key => 'k', if_waiting => 'replace', priority => 3, context => '{"c": 2}', delay => '1 day') = :job AS same;
SELECT args, context, priority, state, run_at > now() + '23 hours' AS tomorrow FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.try_enqueue('waiting', '{"v": 3}', dedup_key => 'k', if_waiting => 'replace_args', priority => 9) = :job AS same;
SELECT args, context, priority, state, run_at > now() + '23 hours' AS tomorrow FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('waiting', '{"v": 4}', dedup_key => 'k', if_waiting => 'replace') = :job AS same;
SELECT queue_jobs.try_enqueue('waiting', '{"v": 5}', dedup_key => 'k') IS NULL AS dropped,
       queue_jobs.try_enqueue('waiting', '{"v": 6}', dedup_key => 'k', if_waiting => 'drop') IS NULL AS dropped;
SELECT args, context, priority, state FROM queue_jobs.job WHERE id = :job;

-- one that runs is not changed: the next one starts when that run has ended, and gets a failed one merged into it
SELECT id = :job AS job, args FROM queue_jobs.claim('c', '{waiting}');
SELECT queue_jobs.enqueue('waiting', '{"v": 7}', dedup_key => 'k', if_waiting => 'replace') AS next \gset
SELECT :job <> :next AS another, args, state FROM queue_jobs.job WHERE id IN (:job, :next) ORDER BY id;
SELECT count(*) FROM queue_jobs.claim('c', '{waiting}');
SELECT reason FROM queue_jobs.explain_job(:next) WHERE n = 1;
SELECT queue_jobs.fail(:job, 1, 'no');
SELECT id = :next AS next, args, merged, attempt FROM queue_jobs.claim('c', '{waiting}');
SELECT queue_jobs.complete(:next, 1);
-- a failed one that waits for its retry is changed, and is as new
SELECT queue_jobs.enqueue('waiting', '{"v": 8}', dedup_key => 'k', if_waiting => 'replace') AS job \gset
SELECT queue_jobs.fail(id, attempt, 'no') FROM queue_jobs.claim('c', '{waiting}');
SELECT queue_jobs.enqueue('waiting', '{"v": 9}', dedup_key => 'k', if_waiting => 'replace') = :job AS same;
SELECT args, state, attempt, max_attempts FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{waiting}');

-- debounce: due a while after the latest call, but not later than max_delay after the first
SELECT queue_jobs.enqueue('waiting', '{"v": 1}', dedup_key => 'd', if_waiting => 'debounce', delay => '1 hour', max_delay => '90 min') AS job \gset
SELECT run_at - created_at = '1 hour' AS delay FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('waiting', '{"v": 2}', dedup_key => 'd', if_waiting => 'debounce', delay => '80 min', max_delay => '90 min') = :job AS same;
SELECT args, run_at - created_at BETWEEN '80 min' AND '85 min' AS later, state FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('waiting', '{"v": 3}', dedup_key => 'd', if_waiting => 'debounce', delay => '2 hours', max_delay => '90 min') = :job AS same;
SELECT args, run_at - created_at = '90 min' AS latest FROM queue_jobs.job WHERE id = :job;
SELECT reason, detail LIKE '%until%at the latest%' AS latest FROM queue_jobs.explain_job(:job) WHERE n = 1;
SELECT queue_jobs.enqueue('waiting', '{"v": 4}', dedup_key => 'd', if_waiting => 'debounce', delay => '1 min') = :job AS same;
SELECT args, run_at - created_at < '10 min' AS sooner FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('waiting', '{"v": 5}', dedup_key => 'd', if_waiting => 'debounce', delay => '0') = :job AS same;
SELECT id = :job AS job, args FROM queue_jobs.claim('c', '{waiting}');
-- a process that finds it by its first time puts it off
SELECT queue_jobs.enqueue('waiting', '{"v": 1}', dedup_key => 'e', if_waiting => 'debounce', delay => '100 ms') AS job \gset
SELECT queue_jobs.enqueue('waiting', '{"v": 2}', dedup_key => 'e', if_waiting => 'debounce', delay => '1 hour') = :job AS same;
RESET ROLE;
CALL helper.wait_for(format('SELECT quiet_at IS NULL FROM queue_jobs.live_job WHERE id = %s', :job));
SET ROLE regress_app;
SELECT state, run_at > now() + '50 min' AS put_off FROM queue_jobs.job WHERE id = :job;
SELECT count(*) FROM queue_jobs.claim('c', '{waiting}');

-- also of a worker that deduplicates by its args; one that is due later takes part whatever including_scheduled says
SELECT queue_jobs.define_worker('waiting_args', idempotent => true);
SELECT queue_jobs.enqueue('waiting_args', '{"a": 1}', if_waiting => 'replace', delay => '1 day') AS job \gset
SELECT queue_jobs.enqueue('waiting_args', '{"a": 1}', if_waiting => 'replace') = :job AS same, queue_jobs.enqueue('waiting_args', '{"a": 2}', if_waiting => 'replace') <> :job AS other;
SELECT args FROM queue_jobs.claim('c', '{waiting_args}', 10) ORDER BY id;

-- under until_executed: dropped while it runs, or once more
SELECT queue_jobs.define_worker('waiting_once', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('waiting_again', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.enqueue('waiting_once', dedup_key => 'k', if_waiting => 'replace') AS once, queue_jobs.enqueue('waiting_again', dedup_key => 'k', if_waiting => 'replace') AS again \gset
SELECT count(*) FROM queue_jobs.claim('c', '{waiting_once,waiting_again}', 10);
SELECT queue_jobs.enqueue('waiting_once', '{"v": 1}', dedup_key => 'k', if_waiting => 'replace') = :once AS runs, queue_jobs.try_enqueue('waiting_once', '{"v": 1}', dedup_key => 'k', if_waiting => 'replace') IS NULL AS dropped;
SELECT queue_jobs.enqueue('waiting_again', '{"v": 1}', dedup_key => 'k', if_waiting => 'replace') AS next \gset
SELECT queue_jobs.try_enqueue('waiting_again', '{"v": 2}', dedup_key => 'k', if_waiting => 'replace') = :next AS same, :next <> :again AS another;
SELECT count(*) FROM queue_jobs.claim('c', '{waiting_again}', 10);
SELECT queue_jobs.complete(:again, 1);
SELECT id = :next AS next, args FROM queue_jobs.claim('c', '{waiting_again}', 10);

-- many calls in one transaction are a few versions of one row, and the last one counts, whatever savepoints do
BEGIN;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', jsonb_build_object('n', n), dedup_key => 'crowd', if_waiting => 'replace')) FROM generate_series(1, 2000) n;
SAVEPOINT s;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', jsonb_build_object('undone', n), dedup_key => 'crowd', if_waiting => 'replace')) FROM generate_series(1, 30) n;
ROLLBACK TO s;
COMMIT;
SELECT args FROM queue_jobs.job WHERE worker = 'waiting' AND dedup_key = 'crowd';
BEGIN;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', jsonb_build_object('m', n), dedup_key => 'crowd', if_waiting => 'replace')) FROM generate_series(1, 2000) n;
SELECT args FROM queue_jobs.claim('c', '{waiting}', 10) WHERE dedup_key = 'crowd';
ROLLBACK;
BEGIN;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', jsonb_build_object('o', n), dedup_key => 'crowd', if_waiting => 'replace')) FROM generate_series(1, 2000) n;
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE dedup_key = 'crowd';
COMMIT;
SELECT args, state FROM queue_jobs.job WHERE worker = 'waiting' AND dedup_key = 'crowd';

-- what cannot be, and nothing is written
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', if_waiting => 'replace')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', if_waiting => 'replase')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', if_waiting => 'debounce')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', if_waiting => 'debounce', run_at => now())$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', max_delay => '1 min')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', if_waiting => 'replace', max_delay => '1 min')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting', dedup_key => 'x', if_waiting => 'debounce', delay => '1 s', max_delay => '-1 s')$$);
SELECT count(*) FROM queue_jobs.job WHERE dedup_key = 'x';

-- the worker says it for all calls, and which args make two jobs the same
SELECT queue_jobs.define_worker('waiting_page', idempotent => true, if_waiting => 'replace', dedup_args => '{page}');
SELECT if_waiting, max_delay, dedup_args FROM queue_jobs.worker WHERE name = 'waiting_page';
SELECT queue_jobs.enqueue('waiting_page', '{"page": 1, "v": 1}') AS job \gset
SELECT queue_jobs.enqueue('waiting_page', '{"v": 2, "page": 1}') = :job AS same, queue_jobs.enqueue('waiting_page', '{"page": 2, "v": 1}') <> :job AS other,
       queue_jobs.enqueue('waiting_page', '{"v": 1}') <> :job AS other, (SELECT count(DISTINCT id) FROM queue_jobs.enqueue_many('waiting_page', ARRAY['{"page": 3, "v": 1}', '{"page": 3, "v": 2}']::jsonb[]) id);
SELECT queue_jobs.try_enqueue('waiting_page', '{"page": 1, "v": 3}', if_waiting => 'drop') IS NULL AS dropped;
SELECT args FROM queue_jobs.claim('c', '{waiting_page}', 10) ORDER BY id;
SELECT queue_jobs.change_worker('waiting_page', if_waiting => 'debounce', max_delay => '1 min');
SELECT if_waiting, max_delay, dedup_args, idempotent FROM queue_jobs.worker WHERE name = 'waiting_page';
SELECT queue_jobs.enqueue('waiting_page', '{"page": 9}', delay => '2 min') AS job \gset
SELECT run_at - created_at = '1 min' AS latest FROM queue_jobs.job WHERE id = :job;
SELECT helper.error_of($$SELECT queue_jobs.enqueue('waiting_page')$$);
SELECT helper.error_of($$SELECT queue_jobs.enqueue_many('waiting_page', '{}')$$);
SELECT helper.error_of($$SELECT queue_jobs.define_worker('x', if_waiting => 'debounced')$$);
SELECT helper.error_of($$SELECT queue_jobs.define_worker('x', if_waiting => 'replace', max_delay => '1 min')$$);
SELECT helper.error_of($$SELECT queue_jobs.define_worker('x', dedup_args => '{}')$$);

-- values that are stored out of line are written at the commit, too
BEGIN;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', (SELECT jsonb_build_object('n', n, 'text', string_agg(md5((n * 1000 + i)::text), '')) FROM generate_series(1, 200) i), dedup_key => 'large', if_waiting => 'replace')) FROM generate_series(1, 40) n;
COMMIT;
SELECT args -> 'n' AS n, length(args ->> 'text') FROM queue_jobs.job WHERE dedup_key = 'large';
BEGIN;
SELECT count(DISTINCT queue_jobs.enqueue('waiting', (SELECT jsonb_build_object('n', -n, 'text', string_agg(md5(i::text), '')) FROM generate_series(1, 200) i), dedup_key => 'large', if_waiting => 'replace')) FROM generate_series(1, 40) n;
COMMIT;
SELECT args -> 'n' AS n, length(args ->> 'text') FROM queue_jobs.job WHERE dedup_key = 'large';
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE dedup_key = 'large';

-- a job whose call said nothing has freed its key when it is claimed
SELECT queue_jobs.enqueue('waiting', '{"v": 1}', dedup_key => 'plain') AS job \gset
SELECT id = :job AS job FROM queue_jobs.claim('c', '{waiting}', 10);
SELECT queue_jobs.enqueue('waiting', '{"v": 2}', dedup_key => 'plain', if_waiting => 'replace') AS next \gset
SELECT id = :next AS next FROM queue_jobs.claim('c', '{waiting}', 10);
SELECT queue_jobs.complete_many(ARRAY[:job, :next], ARRAY[1, 1]);

-- a debounced job that comes after another waits for it
SELECT queue_jobs.enqueue('waiting', delay => '1 day') AS job \gset
SELECT queue_jobs.enqueue('waiting', dedup_key => 'after', if_waiting => 'debounce', delay => '1 s', max_delay => '0', after => ARRAY[:job]) AS next \gset
SELECT state FROM queue_jobs.job WHERE id = :next;
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE id IN (:job, :next);
