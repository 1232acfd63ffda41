-- Nobody but the owner may use anything until it is granted: GRANT USAGE ON SCHEMA queue_jobs, EXECUTE on the functions
-- that a role needs, SELECT on the view job (which shows a role its own jobs only). Functions check further rights.
REVOKE ALL ON SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs FROM PUBLIC;

-- What the views call, with the rights of whoever reads them. They tell nothing of a job but its id, and of a worker what it takes.
GRANT EXECUTE ON FUNCTION queue_jobs.running_jobs(), queue_jobs.waits_for(integer), queue_jobs.transitions(),
    queue_jobs.dropped_duplicates(bigint), queue_jobs.lane_duplicates(), queue_jobs.worker_counters(text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.data_consistency(text, bigint), queue_jobs.load_balancing_counts() TO PUBLIC;
-- Where a server stands in its WAL is no secret, and every job's role asks replicas for it.
GRANT EXECUTE ON FUNCTION queue_jobs.replay_position() TO PUBLIC;
-- Of use within a run only, about the run's own job.
GRANT EXECUTE ON FUNCTION queue_jobs.current_job(), queue_jobs.retry_in(interval), queue_jobs.snooze_me(interval) TO PUBLIC;
