-- The schema queue_jobs_internal is its owner's alone: a role meets what is in it only in views and functions of queue_jobs, whose rights then decide.
REVOKE ALL ON ALL TABLES IN SCHEMA queue_jobs_internal FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs_internal FROM PUBLIC;

-- The server checks EXECUTE for the role that reads a view, or calls health(). They tell nothing of a job but its id, and of a worker what it takes.
GRANT EXECUTE ON FUNCTION queue_jobs_internal.opaque, queue_jobs_internal.clock, queue_jobs_internal.may_see, queue_jobs_internal.present_worker, queue_jobs_internal.broken_until, queue_jobs_internal.waits_for,
    queue_jobs_internal.reported_progress, queue_jobs_internal.reported_message,
    queue_jobs_internal.claimable_by, queue_jobs_internal.data_consistency, queue_jobs_internal.lane_duplicates, queue_jobs_internal.lane_jobs, queue_jobs_internal.limit_use,
    queue_jobs_internal.worker_counters, queue_jobs_internal.load_balancing_counts, queue_jobs_internal.replica_states, queue_jobs_internal.metrics,
    queue_jobs_internal.engine_blocked, queue_jobs_internal.lanes_full, queue_jobs_internal.encryption_problem TO PUBLIC;
