-- Rights on what is new since 0.1.0. All else keeps the rights that it had.

REVOKE ALL ON FUNCTION queue_jobs.guard_table() FROM PUBLIC;
REVOKE ALL ON FUNCTION queue_jobs.opaque(anyelement), queue_jobs.may_see(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.opaque(anyelement), queue_jobs.may_see(integer) TO PUBLIC;

-- pg_dump reads the sequences that the extension has dumped also for the schema alone (-s), which application roles and the database's owner do: for
-- Rails' structure.sql, say. Which ids there are is no secret.
GRANT SELECT ON SEQUENCE queue_jobs.job_id, queue_jobs.lane_id_seq TO PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs TO pg_database_owner;

REVOKE ALL ON FUNCTION queue_jobs.complete_many, queue_jobs.fail, queue_jobs.fail_many, queue_jobs.snooze, queue_jobs.snooze_many, queue_jobs.heartbeat,
    queue_jobs.heartbeat_many FROM PUBLIC;
DO $$
BEGIN
    EXECUTE pg_catalog.current_setting('queue_jobs_update.claimants');
END
$$;

REVOKE ALL ON FUNCTION queue_jobs.bind_functions() FROM PUBLIC;
SELECT queue_jobs.bind_functions();

REVOKE ALL ON FUNCTION queue_jobs.waits_for(tid), queue_jobs.explain_job(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.waits_for(tid) TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.explain_job(bigint) TO queue_jobs_enqueue, queue_jobs_operate, queue_jobs_read;

REVOKE ALL ON FUNCTION queue_jobs.search_jobs, queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.forget_jobs,
    queue_jobs.change_job FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.search_jobs TO queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.change_job TO queue_jobs_enqueue, queue_jobs_operate;
GRANT EXECUTE ON FUNCTION queue_jobs.forget_jobs TO queue_jobs_operate;

REVOKE ALL ON FUNCTION queue_jobs.lane_jobs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.lane_jobs TO PUBLIC;
REVOKE ALL ON FUNCTION queue_jobs.worker_metrics, queue_jobs.executor_counts, queue_jobs.oldest_snapshot, queue_jobs.engine_blocked, queue_jobs.health FROM PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs TO pg_monitor;
GRANT SELECT ON queue_jobs.metric TO pg_monitor, queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.worker_metrics, queue_jobs.executor_counts, queue_jobs.oldest_snapshot, queue_jobs.engine_blocked,
    queue_jobs.replica_states, queue_jobs.health TO pg_monitor, queue_jobs_read;

-- What the views that were replaced no longer need.
DROP FUNCTION queue_jobs.waits_for(integer);

REVOKE ALL ON FUNCTION queue_jobs.schedule FROM PUBLIC;
DO $$
BEGIN
    IF pg_catalog.current_setting('queue_jobs_update.schedule') <> '' THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION queue_jobs.schedule TO ' || pg_catalog.current_setting('queue_jobs_update.schedule');
    END IF;
END
$$;
