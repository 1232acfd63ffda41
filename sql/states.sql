-- The states of a job: the table of transitions, and each of them made to happen.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT * FROM queue_jobs.transitions() ORDER BY from_state, to_state;

-- Every state can be reached from the first ones, and from every one a final one; only retry() and retry_batch() lead out of those.
WITH RECURSIVE reached (state) AS (
    VALUES ('scheduled'), ('available')
    UNION SELECT to_state FROM reached JOIN queue_jobs.transitions() ON from_state = state)
SELECT state FROM reached ORDER BY state;
WITH RECURSIVE ends (state) AS (
    VALUES ('completed'), ('cancelled'), ('dead')
    UNION SELECT from_state FROM ends JOIN queue_jobs.transitions() ON to_state = state)
SELECT state FROM ends ORDER BY state;
SELECT from_state, to_state FROM queue_jobs.transitions() WHERE from_state IN ('completed', 'cancelled', 'dead');

-- Each transition happens. What is seen of a job before and after each step is written down,
CREATE TABLE seen (n serial, job bigint, state text);
CREATE PROCEDURE see(which bigint) LANGUAGE sql AS 'INSERT INTO seen (job, state) SELECT id, state FROM queue_jobs.job WHERE id = which';
CREATE PROCEDURE steps(which bigint, VARIADIC steps text[]) LANGUAGE plpgsql AS $$
DECLARE
    step text;
BEGIN
    CALL app.see(which);
    FOREACH step IN ARRAY steps LOOP
        CASE step
            WHEN 'due' THEN
                CALL helper.move_due_back(which, '2 days');
                COMMIT;
                CALL helper.wait_until_due(which);
            WHEN 'claim' THEN PERFORM queue_jobs.claim('states', '{states}');
            WHEN 'complete' THEN PERFORM queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE id = which;
            WHEN 'fail' THEN PERFORM queue_jobs.fail(id, attempt, 'x') FROM queue_jobs.job WHERE id = which;
            WHEN 'snooze' THEN PERFORM queue_jobs.snooze(id, attempt, '1 day') FROM queue_jobs.job WHERE id = which;
            WHEN 'lease' THEN CALL helper.move_lease_back(which, '2 days');
            WHEN 'cancel' THEN PERFORM queue_jobs.cancel(which);
            WHEN 'discard' THEN PERFORM queue_jobs.discard(which);
            WHEN 'retry' THEN PERFORM queue_jobs.retry(which);
            WHEN 'retry_batch' THEN PERFORM queue_jobs.retry_batch(batch) FROM queue_jobs.job WHERE id = which;
        END CASE;
        COMMIT;
        CALL app.see(which);
    END LOOP;
END $$;
SELECT queue_jobs.define_worker('states', max_retries => 1);
SELECT queue_jobs.enqueue('states') AS job \gset
CALL steps(:job, 'claim', 'complete');
SELECT queue_jobs.enqueue('states') AS job \gset
CALL steps(:job, 'claim', 'fail', 'due', 'claim', 'fail', 'retry', 'cancel', 'retry', 'discard', 'retry', 'claim', 'cancel', 'retry',
           'claim', 'discard', 'retry', 'claim', 'snooze', 'due', 'claim', 'snooze', 'retry', 'claim', 'snooze', 'cancel', 'retry', 'claim',
           'snooze', 'discard');
SELECT queue_jobs.enqueue('states', delay => '1 day') AS job \gset
CALL steps(:job, 'due', 'claim', 'fail', 'retry', 'claim', 'fail');
SELECT queue_jobs.enqueue('states', delay => '1 day') AS job \gset
CALL steps(:job, 'retry', 'claim', 'fail', 'cancel');
SELECT queue_jobs.enqueue('states') AS job \gset
CALL steps(:job, 'claim', 'fail', 'discard');
SELECT queue_jobs.enqueue('states') AS job \gset
CALL steps(:job, 'claim', 'snooze', 'cancel');
SELECT queue_jobs.enqueue('states', delay => '1 day') AS job \gset
CALL steps(:job, 'discard');
-- Those that wait for another job.
SELECT queue_jobs.enqueue('states', delay => '1 day') AS parent \gset
SELECT queue_jobs.enqueue('states', after => ARRAY[:parent]::bigint[]) AS job \gset
CALL steps(:job, 'cancel');
SELECT queue_jobs.enqueue('states', after => ARRAY[:parent]::bigint[]) AS job \gset
CALL steps(:job, 'discard');
SELECT queue_jobs.enqueue('states', after => ARRAY[:parent]::bigint[], batch => queue_jobs.new_batch(open => true)) AS job \gset
CALL steps(:job, 'cancel', 'retry_batch', 'discard', 'retry_batch', 'cancel');
SELECT queue_jobs.enqueue('states', delay => '1 day', after => ARRAY[:parent]::bigint[], if_dead => 'run') AS job \gset
CALL see(:job);
SELECT queue_jobs.cancel(:parent);
CALL wait_for(format($$SELECT state = 'scheduled' FROM queue_jobs.job WHERE id = %s$$, :job));
CALL steps(:job, 'cancel');
-- One that waits for a signal; its handler sees it run.
CREATE FUNCTION waits_once() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.seen (job, state) SELECT id, state FROM queue_jobs.current_job();
    IF queue_jobs.signal_payload('go') IS NULL THEN
        PERFORM queue_jobs.wait_for_signal('go');
    END IF;
END $$;
SELECT queue_jobs.define_worker('waits_once', 'app.waits_once');
SELECT queue_jobs.enqueue('waits_once') AS job \gset
CALL wait_for(format($$SELECT state = 'waiting' FROM queue_jobs.job WHERE id = %s$$, :job));
CALL see(:job);
SELECT queue_jobs.pause('waits_once');
SELECT queue_jobs.signal(:job, 'go');
CALL wait_for(format($$SELECT state = 'available' FROM queue_jobs.job WHERE id = %s$$, :job));
CALL see(:job);
SELECT queue_jobs.resume('waits_once');
CALL wait_for(format($$SELECT state = 'completed' FROM queue_jobs.job WHERE id = %s$$, :job));
CALL see(:job);
SELECT queue_jobs.define_worker('states', max_retries => 0);
SELECT queue_jobs.enqueue('states') AS job \gset
CALL steps(:job, 'claim', 'lease', 'claim');

-- and compared: what was seen and is no transition of the table,
CREATE VIEW seen_transitions AS
    SELECT DISTINCT from_state, to_state
      FROM (SELECT lag(state) OVER (PARTITION BY job ORDER BY n) AS from_state, state AS to_state FROM seen) s
     WHERE from_state <> to_state;
SELECT * FROM seen_transitions EXCEPT SELECT * FROM queue_jobs.transitions();
-- and what is in the table and was not seen.
SELECT * FROM queue_jobs.transitions() EXCEPT SELECT * FROM seen_transitions;

CALL clean_up();
