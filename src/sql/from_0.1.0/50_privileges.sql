-- Rights on what is new since 0.1.0. All else keeps the rights that it had.

-- The right to read the view replica is enough now.
REVOKE ALL ON FUNCTION queue_jobs_internal.replica_states FROM queue_jobs_read;

-- pg_dump reads the sequences that the extension has dumped also for the schema alone (-s), which application roles and the database's owner do: for
-- Rails' structure.sql, say. Which ids there are is no secret.
GRANT SELECT ON SEQUENCE queue_jobs.job_id, queue_jobs.lane_id_seq, queue_jobs.batch_id TO PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs TO pg_database_owner;

REVOKE ALL ON FUNCTION queue_jobs.complete_many, queue_jobs.fail, queue_jobs.fail_many, queue_jobs.snooze, queue_jobs.snooze_many, queue_jobs.heartbeat,
    queue_jobs.heartbeat_many FROM PUBLIC;
DO $$
BEGIN
    EXECUTE pg_catalog.current_setting('queue_jobs_update.claimants');
END
$$;

SELECT queue_jobs_internal.bind_functions();

REVOKE ALL ON FUNCTION queue_jobs.explain_job(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.explain_job(bigint) TO queue_jobs_enqueue, queue_jobs_operate, queue_jobs_read;

REVOKE ALL ON FUNCTION queue_jobs.change_worker FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.change_worker TO queue_jobs_define;
REVOKE ALL ON FUNCTION queue_jobs.search_jobs, queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.forget_jobs,
    queue_jobs.change_job FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.search_jobs TO queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.change_job TO queue_jobs_enqueue, queue_jobs_operate;
GRANT EXECUTE ON FUNCTION queue_jobs.forget_jobs TO queue_jobs_operate;

REVOKE ALL ON FUNCTION queue_jobs.health FROM PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs TO pg_monitor;
REVOKE ALL ON queue_jobs.metric FROM PUBLIC;
GRANT SELECT ON queue_jobs.metric TO pg_monitor, queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.health TO pg_monitor, queue_jobs_read;

-- What the views that were replaced no longer need.
DROP FUNCTION queue_jobs.waits_for(integer);
DROP FUNCTION queue_jobs.dropped_duplicates(bigint);

REVOKE ALL ON FUNCTION queue_jobs.schedule FROM PUBLIC;
DO $$
BEGIN
    IF pg_catalog.current_setting('queue_jobs_update.schedule') <> '' THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION queue_jobs.schedule TO ' || pg_catalog.current_setting('queue_jobs_update.schedule');
    END IF;
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.define_worker FROM PUBLIC;
DO $$
BEGIN
    IF pg_catalog.current_setting('queue_jobs_update.define_worker') <> '' THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION queue_jobs.define_worker TO ' || pg_catalog.current_setting('queue_jobs_update.define_worker');
    END IF;
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.new_batch, queue_jobs.close_batch, queue_jobs.cancel_batch, queue_jobs.retry_batch, queue_jobs.current_batch,
    queue_jobs.batch_results, queue_jobs.enqueue_workflow, queue_jobs.signal, queue_jobs.signal_payload, queue_jobs.signals,
    queue_jobs.wait_for_signal(text, interval), queue_jobs.wait_for_signal(bigint, integer, text, interval) FROM PUBLIC;
REVOKE ALL ON PROCEDURE queue_jobs.await_job, queue_jobs.await_batch FROM PUBLIC;
REVOKE ALL ON queue_jobs.batch_member, queue_jobs.batch, queue_jobs.workflow_step FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.signal_payload(text), queue_jobs.wait_for_signal(text, interval), queue_jobs.current_batch() TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.new_batch, queue_jobs.close_batch, queue_jobs.cancel_batch, queue_jobs.retry_batch, queue_jobs.batch_results,
    queue_jobs.enqueue_workflow, queue_jobs.signal TO queue_jobs_enqueue;
GRANT EXECUTE ON PROCEDURE queue_jobs.await_job, queue_jobs.await_batch TO queue_jobs_enqueue;
GRANT SELECT ON queue_jobs.batch_member TO queue_jobs_enqueue, queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.close_batch, queue_jobs.cancel_batch, queue_jobs.retry_batch, queue_jobs.signal TO queue_jobs_operate;
GRANT SELECT ON queue_jobs.batch, queue_jobs.workflow_step TO queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.batch_results TO queue_jobs_read;
REVOKE ALL ON FUNCTION queue_jobs.decrypt_job FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.decrypt_job TO queue_jobs_enqueue, queue_jobs_claim, queue_jobs_read;

-- enqueue() and its like have more parameters.
REVOKE ALL ON FUNCTION queue_jobs.enqueue, queue_jobs.try_enqueue, queue_jobs.enqueue_many FROM PUBLIC;
DO $$
BEGIN
    EXECUTE pg_catalog.current_setting('queue_jobs_update.enqueue');
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.continue_at(jsonb, interval, double precision), queue_jobs.continue_at(bigint, integer, jsonb, interval, double precision),
    queue_jobs.step, queue_jobs.save_step, queue_jobs.steps FROM PUBLIC;
REVOKE ALL ON PROCEDURE queue_jobs.checkpoint FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.continue_at(jsonb, interval, double precision), queue_jobs.step TO PUBLIC;
GRANT EXECUTE ON PROCEDURE queue_jobs.checkpoint TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.continue_at(bigint, integer, jsonb, interval, double precision), queue_jobs.save_step,
    queue_jobs.wait_for_signal(bigint, integer, text, interval) TO queue_jobs_claim;
GRANT EXECUTE ON FUNCTION queue_jobs.steps, queue_jobs.signals TO queue_jobs_claim, queue_jobs_enqueue, queue_jobs_read;

REVOKE ALL ON FUNCTION queue_jobs.schedule_command_of FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.schedule_command_of TO queue_jobs_define;

REVOKE ALL ON FUNCTION queue_jobs.publish, queue_jobs.subscribe, queue_jobs.unsubscribe FROM PUBLIC;
REVOKE ALL ON queue_jobs.event_subscription FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.publish TO queue_jobs_enqueue;
REVOKE ALL ON FUNCTION queue_jobs.close_breaker FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.close_breaker TO queue_jobs_operate;
GRANT EXECUTE ON FUNCTION queue_jobs.subscribe, queue_jobs.unsubscribe TO queue_jobs_define;
GRANT SELECT ON queue_jobs.event_subscription TO queue_jobs_define, queue_jobs_read;

REVOKE ALL ON FUNCTION queue_jobs.define_limit, queue_jobs.drop_limit, queue_jobs.consume_limit, queue_jobs.close_limit, queue_jobs.open_limit FROM PUBLIC;
REVOKE ALL ON queue_jobs.named_limit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.define_limit, queue_jobs.drop_limit TO queue_jobs_define;
GRANT EXECUTE ON FUNCTION queue_jobs.consume_limit, queue_jobs.close_limit, queue_jobs.open_limit TO queue_jobs_define, queue_jobs_enqueue;
GRANT SELECT ON queue_jobs.named_limit TO queue_jobs_define, queue_jobs_enqueue, queue_jobs_read;

REVOKE ALL ON FUNCTION queue_jobs.pause_schedule, queue_jobs.resume_schedule, queue_jobs.run_missed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.pause_schedule, queue_jobs.resume_schedule, queue_jobs.run_missed TO queue_jobs_define;
REVOKE ALL ON FUNCTION queue_jobs.next_runs FROM PUBLIC;
DO $$
BEGIN
    IF pg_catalog.current_setting('queue_jobs_update.next_runs') <> '' THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION queue_jobs.next_runs TO ' || pg_catalog.current_setting('queue_jobs_update.next_runs');
    END IF;
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.assert_idempotent FROM PUBLIC;
DO $$
BEGIN
    IF pg_catalog.current_setting('queue_jobs_update.assert_idempotent') <> '' THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION queue_jobs.assert_idempotent TO ' || pg_catalog.current_setting('queue_jobs_update.assert_idempotent');
    END IF;
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.run_due FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.run_due TO queue_jobs_define;

REVOKE ALL ON FUNCTION queue_jobs.report(double precision, text), queue_jobs.report(bigint, integer, double precision, text) FROM PUBLIC;
REVOKE ALL ON PROCEDURE queue_jobs.await_progress FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.report(double precision, text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.report(bigint, integer, double precision, text) TO queue_jobs_claim;
GRANT EXECUTE ON PROCEDURE queue_jobs.await_progress TO queue_jobs_enqueue;
