-- search_jobs(), and what is done to all jobs that it finds: retry_jobs, cancel_jobs, discard_jobs, forget_jobs. And change_job().
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('find', max_retries => 3), queue_jobs.define_worker('find other', queue => 'elsewhere');
SELECT count(*) FROM queue_jobs.enqueue_many('find', ARRAY(SELECT jsonb_build_object('n', n, 'odd', n % 2 = 1) FROM generate_series(1, 6) n));
SELECT count(*) FROM queue_jobs.enqueue_many('find', '{"{\"n\": 7}", "{\"n\": 8}"}', delay => '1 h');
SELECT count(*) FROM queue_jobs.enqueue_many('find other', '{"{\"n\": 9, \"odd\": true}"}');

-- One of each state.
SELECT queue_jobs.fail(id, attempt, 'It broke: 42 %', retry_in => '1 day') FROM queue_jobs.claim('me', '{find}') WHERE args @> '{"n": 1}';
SELECT queue_jobs.fail(id, attempt, 'it is gone', final => true) FROM queue_jobs.claim('me', '{find}') WHERE args @> '{"n": 2}';
SELECT queue_jobs.complete(id, attempt, '"done"') FROM queue_jobs.claim('me', '{find}') WHERE args @> '{"n": 3}';
SELECT args FROM queue_jobs.claim('me', '{find}');
SELECT queue_jobs.cancel(id) FROM queue_jobs.search_jobs('find', args => '{"n": 5}');
SELECT args, state, last_error, result FROM queue_jobs.search_jobs('find');

-- Each condition, and pages.
CREATE FUNCTION numbers(VARIADIC arguments text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    EXECUTE format($q$SELECT string_agg(args ->> 'n', ' ' ORDER BY id DESC) FROM queue_jobs.search_jobs(%s) WHERE worker LIKE 'find%%'$q$,
                   array_to_string(arguments, ', ')) INTO found;
    RETURN found;
END $$;
SELECT numbers($$queue => 'elsewhere'$$) AS by_queue, numbers($$'find', 'elsewhere'$$) AS by_both,
       numbers($$'find', states => '{dead,completed,waiting}'$$) AS by_state, numbers($$'find', states => '{}'$$) AS of_no_state,
       numbers($$args => '{"odd": true}'$$) AS by_args, numbers($$'find', error => '%broke%'$$) AS by_error, numbers($$'find', error => 'IT %'$$) AS in_any_case,
       numbers($$'find', batch => 1$$) AS by_batch, numbers($$'no such worker'$$) AS of_none;
SELECT numbers($$'find', since => now() - interval '1 day'$$) AS since, numbers($$'find', until => now() - interval '1 day'$$) AS until, numbers($$'find', max_jobs => 0$$) AS max_0;
SELECT min(created_at) FILTER (WHERE args @> '{"n": 1}') AS first, min(created_at) FILTER (WHERE args @> '{"n": 7}') AS second, min(id) FILTER (WHERE args @> '{"n": 4}') AS fourth
  FROM queue_jobs.job WHERE worker = 'find' \gset
SELECT numbers(format($$'find', since => %L, until => %L$$, :'first', :'first')) AS created_together, numbers(format($$'find', since => %L$$, :'second')) AS later;
SELECT numbers($$'find', max_jobs => 3$$) AS page_1, numbers(format($$'find', before => %s$$, :fourth), 'max_jobs => 2') AS before_4;
SELECT args, state FROM queue_jobs.search_jobs('find', states => '{executing}');
SELECT count(*) AS equal FROM queue_jobs.search_jobs(max_jobs => NULL) s JOIN queue_jobs.job j USING (id) WHERE s IS NOT DISTINCT FROM j AND s.worker LIKE 'find%';

-- What is refused.
SELECT error_of($$SELECT queue_jobs.search_jobs(states => '{dead,DEAD}')$$);
SELECT error_of($$SELECT queue_jobs.cancel_jobs(states => '{dead,NULL}')$$);
SELECT error_of($$SELECT queue_jobs.search_jobs(max_jobs => -1)$$);
SELECT error_of($$SELECT queue_jobs.cancel_jobs(dry_run => NULL)$$);

-- In a read-only transaction one can look.
BEGIN READ ONLY;
SELECT numbers($$'find', states => '{dead}'$$), queue_jobs.cancel_jobs('find', dry_run => true);
SELECT queue_jobs.cancel_jobs('find');
ROLLBACK;

-- A role steers its own jobs, and sees no others.
RESET ROLE;
SET ROLE regress_other;
SELECT count(*) FROM queue_jobs.search_jobs('find');
SELECT queue_jobs.cancel_jobs('find'), queue_jobs.discard_jobs('find'), queue_jobs.retry_jobs('find'), queue_jobs.forget_jobs('find'), queue_jobs.retry_jobs('find', dry_run => true);
RESET ROLE;
SET ROLE regress_app;

-- What is done is what the dry run counts, and part of the transaction.
CREATE VIEW finds AS SELECT string_agg(format('%s %s', args ->> 'n', state), ', ' ORDER BY id) FROM queue_jobs.job WHERE worker LIKE 'find%';
BEGIN;
SELECT queue_jobs.retry_jobs('find', dry_run => true), queue_jobs.retry_jobs('find'), queue_jobs.retry_jobs('find') AS again;
TABLE finds;
SELECT queue_jobs.retry_jobs('find', states => '{scheduled,completed,executing}') AS only_scheduled;
TABLE finds;
SAVEPOINT s;
SELECT queue_jobs.cancel_jobs('find', dry_run => true), queue_jobs.cancel_jobs('find', max_jobs => 2), queue_jobs.cancel_jobs(queue => 'elsewhere');
TABLE finds;
ROLLBACK TO s;
SELECT queue_jobs.discard_jobs('find', states => '{executing}') AS claimed, queue_jobs.discard_jobs('find', args => '{"odd": true}') AS odd;
TABLE finds;
SELECT queue_jobs.forget_jobs('find', dry_run => true), queue_jobs.forget_jobs('find', states => '{completed,available}') AS completed, queue_jobs.forget_jobs('find') AS others;
TABLE finds;
ROLLBACK;
TABLE finds;
SELECT queue_jobs.retry_jobs('find', error => '%broke%'), queue_jobs.retry_jobs('find', states => '{cancelled}');
TABLE finds;
SELECT args FROM queue_jobs.claim('me', '{find}', 10) ORDER BY id;
SELECT queue_jobs.cancel_jobs('find') AS claimed_and_scheduled;
SELECT queue_jobs.forget_jobs('find') AS finished, queue_jobs.cancel_jobs('find other');

-- Jobs that executors run are interrupted, at commit.
CREATE FUNCTION find_sleep(n int) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT queue_jobs.define_worker('find sleep', 'app.find_sleep');
SELECT queue_jobs.enqueue('find sleep', '{"n": 1}') AS job \gset
CALL wait_for_state(:job, 'executing');
SELECT queue_jobs.cancel_jobs('find sleep', states => '{executing}', dry_run => true), queue_jobs.cancel_jobs('find sleep', states => '{available}') AS none, queue_jobs.retry_jobs('find sleep') AS none;
SELECT queue_jobs.discard_jobs('find sleep', states => '{executing}');
CALL wait_for_state(:job, 'dead');

-- One that expired before it could start is cancelled, though no process has looked at it.
SELECT queue_jobs.pause('find'), queue_jobs.pause('elsewhere');
SELECT queue_jobs.enqueue('find', '{"n": 10}', run_at => now() - interval '1 h', expires_in => '1 min') AS job \gset
SELECT numbers($$'find', states => '{cancelled}'$$), numbers($$'find', states => '{available}'$$);
SELECT queue_jobs.cancel_jobs('find'), queue_jobs.retry_jobs('find');
SELECT state, expires_at FROM queue_jobs.job WHERE id = :job;

-- change_job(): time, priority and args of one that waits.
SELECT queue_jobs.change_job(:job, run_at => '2100-01-01', priority => 7);
SELECT state, run_at = '2100-01-01' AS moved, priority, args FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.change_job(:job, run_at => now() - interval '1 h', args => '{"n": 11}');
SELECT state, priority, args FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.resume('find');
SELECT args FROM queue_jobs.claim('me', '{find}');
SELECT queue_jobs.change_job(:job, priority => 1) AS claimed, queue_jobs.change_job(0, priority => 1) AS of_none;
SELECT queue_jobs.cancel(:job), queue_jobs.change_job(:job, priority => 1) AS finished;
SELECT error_of('SELECT queue_jobs.change_job(NULL)');
SELECT error_of(format('SELECT queue_jobs.change_job(%s, run_at => ''infinity'')', :job));
-- The time in which it must start moves with the time when it is due.
SELECT queue_jobs.enqueue('find', expires_in => '2 h', delay => '1 h') AS job \gset
SELECT queue_jobs.change_job(:job, run_at => '2100-01-01');
SELECT expires_at = '2100-01-01 02:00' AS two_hours_later FROM queue_jobs.job WHERE id = :job;
-- It does not move beyond the calendar, where no row could be shown.
SELECT error_of(format('SELECT queue_jobs.change_job(%s, run_at => ''294276-12-31 23:00Z'')', :job));
SELECT queue_jobs.enqueue('find', run_at => now() + interval '1 day', expires_in => '999 years') AS lasting \gset
SELECT error_of(format('SELECT queue_jobs.change_job(%s, run_at => ''294276-01-01 00:00Z'')', :lasting));
SELECT queue_jobs.change_job(:lasting, run_at => '4714-11-24 00:00Z BC');
SELECT error_of(format('SELECT queue_jobs.change_job(%s, run_at => ''294276-01-01 00:00Z'')', :job));
SELECT queue_jobs.change_job(:job, run_at => '294276-12-31 21:59:59.999999Z');
SELECT run_at, expires_at FROM queue_jobs.job WHERE id IN (:job, :lasting) ORDER BY id;
SELECT queue_jobs.change_job(:job, run_at => '2100-01-01'), queue_jobs.cancel(:lasting);
-- Another role's is not to be changed, nor args that the handler could not take.
RESET ROLE;
SET ROLE regress_other;
SELECT error_of(format('SELECT queue_jobs.change_job(%s, priority => 1)', :job));
RESET ROLE;
SET ROLE regress_app;
SELECT queue_jobs.enqueue('find sleep', '{"n": 1}', delay => '1 day') AS job \gset
SELECT error_of(format('SELECT queue_jobs.change_job(%s, args => ''{"m": 1}'')', :job));
SELECT queue_jobs.change_job(:job, args => '{"n": 2}'), queue_jobs.cancel(:job);
-- Other args are another key: the old one is free, and of two that have the new one, one runs.
SELECT queue_jobs.define_worker('find once', idempotent => true);
SELECT queue_jobs.enqueue('find once', '{"n": 1}') AS a, queue_jobs.enqueue('find once', '{"n": 2}') AS b \gset
SELECT queue_jobs.change_job(:a, args => '{"n": 2}');
SELECT queue_jobs.enqueue('find once', '{"n": 1}') NOT IN (:a, :b) AS is_new, queue_jobs.enqueue('find once', '{"n": 2}') IN (:a, :b) AS is_duplicate;
SELECT args, merged FROM queue_jobs.claim('me', '{find once}', 10) ORDER BY args;
SELECT queue_jobs.cancel_jobs('find once');
-- A token stays.
SELECT queue_jobs.enqueue('find once', '{"n": 1}', dedup_key => 'token') AS a \gset
SELECT queue_jobs.change_job(:a, args => '{"n": 5}'), queue_jobs.enqueue('find once', '{"n": 6}', dedup_key => 'token') = :a AS is_duplicate;

-- What was to be done for a job that was merged into another's run has been done: retry_jobs() leaves it out.
SELECT queue_jobs.define_worker('find merged');
BEGIN;
SELECT queue_jobs.enqueue('find merged', dedup_key => 'k', delay => '1 ms') AS a \gset
SELECT queue_jobs.enqueue('find merged', dedup_key => 'k', delay => '1 ms') <> :a AS another;
COMMIT;
CALL wait_for($$SELECT count(*) = 2 FROM queue_jobs.job WHERE worker = 'find merged' AND state = 'available'$$);
CALL queue_jobs.wait_for_jobs('{find merged}', '1 min');
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{find merged}', 10);
SELECT state, result ? 'merged_into' AS merged FROM queue_jobs.job WHERE worker = 'find merged' ORDER BY state;
SELECT queue_jobs.retry_jobs('find merged', dry_run => true), queue_jobs.retry_jobs('find merged', states => '{cancelled}');
SELECT queue_jobs.forget_jobs('find merged');
-- A job that a session has waited for is forgotten like others; one for which a job waits is not.
SELECT queue_jobs.enqueue('find merged') AS a \gset
SELECT queue_jobs.enqueue('find', after => ARRAY[:a]::bigint[]) AS b \gset
CALL queue_jobs.await_job(:a, '1 ms');
SELECT queue_jobs.fail(id, attempt, 'it is gone', final => true) FROM queue_jobs.claim('me', '{find merged}');
SELECT queue_jobs.forget_jobs('find merged', dry_run => true), queue_jobs.forget_jobs('find merged');
SELECT queue_jobs.cancel(:b);
SELECT queue_jobs.forget_jobs('find merged', dry_run => true), queue_jobs.forget_jobs('find merged');
SELECT queue_jobs.cancel_jobs('find once'), queue_jobs.cancel_jobs('find'), queue_jobs.resume('elsewhere');
SELECT queue_jobs.drop_worker(name) FROM queue_jobs.worker WHERE name LIKE 'find%';
DROP VIEW finds;
DROP FUNCTION numbers(text[]), find_sleep(int);
