-- What each column of a view is, in which unit, and what NULL means; \d+ shows it. sql/comments.sql fails for a column without one.

COMMENT ON COLUMN queue_jobs.job.id IS 'what enqueue() returned';
COMMENT ON COLUMN queue_jobs.job.worker IS 'name of its worker, which may have been dropped since';
COMMENT ON COLUMN queue_jobs.job.queue IS 'the queue in which it waits, "name" or "namespace:name"';
COMMENT ON COLUMN queue_jobs.job.state IS 'scheduled (due later), available, executing, retryable (failed, due again later), waiting (for other jobs or a signal), completed, cancelled or dead; see transitions()';
COMMENT ON COLUMN queue_jobs.job.priority IS 'the lowest number starts first within its queue';
COMMENT ON COLUMN queue_jobs.job.args IS 'what the handler is called with';
COMMENT ON COLUMN queue_jobs.job.context IS 'JSON object to which queue_jobs.context is set while it runs; NULL: none';
COMMENT ON COLUMN queue_jobs.job.version IS 'version of the worker''s definition when the job was enqueued';
COMMENT ON COLUMN queue_jobs.job.attempt IS 'starts so far, the present one included; a claimant gives it to complete() and the like';
COMMENT ON COLUMN queue_jobs.job.max_attempts IS 'starts after which a failure is final; starts that are not charged, as after snooze_me(), raise it';
COMMENT ON COLUMN queue_jobs.job.created_at IS 'when it was enqueued';
COMMENT ON COLUMN queue_jobs.job.run_at IS 'when it is, or was, due: for its first start, or for the next one after a failure or snooze; NULL: it waits for other jobs or a signal';
COMMENT ON COLUMN queue_jobs.job.started_at IS 'when its present run started, or of a finished one the last; NULL: it does not run, or never did';
COMMENT ON COLUMN queue_jobs.job.finished_at IS 'when it was completed, cancelled or dead; NULL: not yet';
COMMENT ON COLUMN queue_jobs.job.last_error IS 'message of the latest failed attempt; NULL: none has failed';
COMMENT ON COLUMN queue_jobs.job.result IS 'what the handler returned, or complete() was given; NULL: nothing, or not completed';
COMMENT ON COLUMN queue_jobs.job.dedup_key IS 'by which duplicates are found: the dedup_key given, or else a hash of the args, in hexadecimal; NULL: it is not deduplicated';
COMMENT ON COLUMN queue_jobs.job.wal_lsn IS 'a replica that has replayed this position sees all that its enqueuers committed; NULL: not known yet';
COMMENT ON COLUMN queue_jobs.job.owner IS 'the role that enqueued it';
COMMENT ON COLUMN queue_jobs.job.executor_pid IS 'process ID of the executor that runs it, as in pg_stat_activity; NULL: none does';
COMMENT ON COLUMN queue_jobs.job.claimant IS 'the name that claim() was given for its present or last run; NULL: no claimant has it or ended it';
COMMENT ON COLUMN queue_jobs.job.expires_at IS 'if it has not started by then, it is cancelled; NULL: it never expires';
COMMENT ON COLUMN queue_jobs.job.errors IS 'JSON array of failed attempts, the first and the latest 24, each with attempt, started_at, failed_at, sqlstate, message, detail and context; NULL: none has failed';
COMMENT ON COLUMN queue_jobs.job.waits_for IS 'why a job that is due does not run: the first reason of explain_job(), or what a waiting job waits for; NULL: it is not due, runs or has ended';
COMMENT ON COLUMN queue_jobs.job.data_consistency IS 'where it may read: always (the primary), sticky or delayed (a replica that has caught up); always if its worker''s feature flag is off for it; NULL: its worker is not defined';
COMMENT ON COLUMN queue_jobs.job.merged IS 'duplicates that waited beside it and were removed when it started, which stands for them';
COMMENT ON COLUMN queue_jobs.job.dropped IS 'always NULL: 0.1.0 counted here duplicates of each job; see dropped_duplicates of the view worker';
COMMENT ON COLUMN queue_jobs.job.schedule IS 'name of the schedule that enqueued it; NULL: none did';
COMMENT ON COLUMN queue_jobs.job.load_balancing_strategy IS 'how it was decided where to read: replica, replica_retried, primary, retry or primary_no_wal; NULL: not decided yet';
COMMENT ON COLUMN queue_jobs.job.read_from IS 'where it reads: primary, or a replica''s name; NULL: not decided yet';
COMMENT ON COLUMN queue_jobs.job.lease_until IS 'when its claimant''s lease ends, unless a heartbeat comes before; in the past: it ran out, and the job can be claimed again; NULL: no claimant has it';

COMMENT ON COLUMN queue_jobs.job.batch IS 'the batch whose member it is, the first if it is of several; NULL: of none';
COMMENT ON COLUMN queue_jobs.job.cursor IS 'where a long job goes on, as continue_at() or checkpoint() said; NULL: at its beginning';
COMMENT ON COLUMN queue_jobs.job.progress IS 'how far it says that it is, by report(), continue_at() or checkpoint(), a share from 0 to 1 or a count: at once, while it runs, and afterwards what it said last; NULL: it has not said';
COMMENT ON COLUMN queue_jobs.job.message IS 'what report() said with the progress, its first 200 bytes; NULL: nothing';
COMMENT ON COLUMN queue_jobs.job.tags IS 'labels that the enqueuer gave this job; NULL: none. (Those of its worker are in the view worker.)';

COMMENT ON COLUMN queue_jobs.worker.name IS 'by which jobs are enqueued for it';
COMMENT ON COLUMN queue_jobs.worker.handler IS 'function or procedure that does its jobs; NULL: claimants do';
COMMENT ON COLUMN queue_jobs.worker.queue IS 'the queue of its jobs, "name" or "namespace:name", unless routing rules or enqueue() name another';
COMMENT ON COLUMN queue_jobs.worker.version IS 'stamped on each job that is enqueued';
COMMENT ON COLUMN queue_jobs.worker.idempotent IS 'whether its jobs are declared safe to run more than once';
COMMENT ON COLUMN queue_jobs.worker.deduplicate IS 'until when a job keeps duplicates out: until_executing (its start), until_executed (its end) or none';
COMMENT ON COLUMN queue_jobs.worker.if_deduplicated IS 'what becomes of a duplicate while the job runs, under until_executed: drop, reschedule_once (the job runs once more), or cancel_running (it is interrupted)';
COMMENT ON COLUMN queue_jobs.worker.including_scheduled IS 'whether jobs that are due later keep duplicates out, too';
COMMENT ON COLUMN queue_jobs.worker.dedup_ttl IS 'a job that has waited longer than this keeps no duplicate out';
COMMENT ON COLUMN queue_jobs.worker.max_retries IS 'attempts after the first; 0: the first failure is final; NULL: retry_for counts';
COMMENT ON COLUMN queue_jobs.worker.retry_for IS 'for how long after its first failure a job is tried again; NULL: max_retries counts';
COMMENT ON COLUMN queue_jobs.worker.inherit_context IS 'false: its jobs have no context but what enqueue() is given';
COMMENT ON COLUMN queue_jobs.worker.retry_backoff IS 'function of the number of failures that returns the delay of the next attempt; NULL: Sidekiq''s formula';
COMMENT ON COLUMN queue_jobs.worker.urgency IS 'high, low or throttled: which jobs start first, and the targets in worker_statistics';
COMMENT ON COLUMN queue_jobs.worker.external_dependencies IS 'whether its jobs wait for services outside of the database';
COMMENT ON COLUMN queue_jobs.worker.resource_boundary IS 'what limits the speed of its jobs: cpu, memory or unknown';
COMMENT ON COLUMN queue_jobs.worker.feature_category IS 'free label; NULL: none';
COMMENT ON COLUMN queue_jobs.worker.weight IS 'share of its queue among those of the same urgency, from 1 to 1000';
COMMENT ON COLUMN queue_jobs.worker.max_running_jobs IS 'most of its jobs that run at once; NULL: no limit';
COMMENT ON COLUMN queue_jobs.worker.concurrency_key IS 'keys of the args by whose values jobs are limited; NULL: none';
COMMENT ON COLUMN queue_jobs.worker.concurrency_limit IS 'most jobs of equal values of concurrency_key that run at once; NULL: no limit';
COMMENT ON COLUMN queue_jobs.worker.rate_limit IS 'most jobs that start in any rate_period, of equal values of concurrency_key if there is one; NULL: no limit';
COMMENT ON COLUMN queue_jobs.worker.rate_period IS 'length of the interval that rate_limit is for; NULL: no rate_limit';
COMMENT ON COLUMN queue_jobs.worker.tags IS 'free labels, for selectors';
COMMENT ON COLUMN queue_jobs.worker.remaining_work IS 'query that returns the args of the work to do, by which max_running_jobs jobs are kept going; NULL: jobs are enqueued';
COMMENT ON COLUMN queue_jobs.worker.timeout IS 'a run that takes longer is stopped and has failed; NULL: no limit';
COMMENT ON COLUMN queue_jobs.worker.lock_timeout IS 'a handler that waits longer for a lock has failed';
COMMENT ON COLUMN queue_jobs.worker.data_consistency IS 'where its jobs may read: always (the primary), sticky or delayed (a replica that has caught up)';
COMMENT ON COLUMN queue_jobs.worker.read_handler IS 'function that reads for the handler, where data_consistency says; NULL: none';
COMMENT ON COLUMN queue_jobs.worker.feature_flag IS 'flag without which data_consistency is always, see set_flag(); NULL: none';
COMMENT ON COLUMN queue_jobs.worker.record IS 'table whose rows its jobs are about; NULL: none';
COMMENT ON COLUMN queue_jobs.worker.record_key IS 'keys of the args that hold the record''s primary key; NULL: no record';
COMMENT ON COLUMN queue_jobs.worker.pending IS 'SQL condition under which a record has work left; NULL: always';
COMMENT ON COLUMN queue_jobs.worker.heal_every IS 'how often pending records without a job get one; NULL: never';
COMMENT ON COLUMN queue_jobs.worker.heal_after IS 'only records that have not changed for so long are healed; NULL: all';
COMMENT ON COLUMN queue_jobs.worker.run_as IS 'whose rights its jobs have: invoker (their owner''s) or definer';
COMMENT ON COLUMN queue_jobs.worker.definer IS 'the role that the worker belongs to';
COMMENT ON COLUMN queue_jobs.worker.loggable_args IS 'keys of the args whose values may be logged; numbers always may';
COMMENT ON COLUMN queue_jobs.worker.keep_completed IS 'how long completed and cancelled jobs stay in the view job';
COMMENT ON COLUMN queue_jobs.worker.enabled IS 'false: disable_worker() has switched it off';
COMMENT ON COLUMN queue_jobs.worker.dropped_duplicates IS 'calls that added no job, since the server started: one of their key stood for them, or was changed (if_waiting)';
COMMENT ON COLUMN queue_jobs.worker.merged_duplicates IS 'duplicates that were removed when another job of the same key started, since the server started';
COMMENT ON COLUMN queue_jobs.worker.namespace IS 'the part of queue before the colon; NULL: none';
COMMENT ON COLUMN queue_jobs.worker.search_path IS 'by which names in pending and remaining_work are found: as it was at the definition, without schemas in which other roles might create than the definer, the handler''s owner and superusers; looked at again at each run';
COMMENT ON COLUMN queue_jobs.worker.handler_owner IS 'role that owned the handler when the worker was defined: another role''s function is never called in its place';
COMMENT ON COLUMN queue_jobs.worker.on_dead IS 'worker of the job that is enqueued when one of its jobs dies';
COMMENT ON COLUMN queue_jobs.worker.on_expired IS 'worker of the job that is enqueued when one of its jobs expires';
COMMENT ON COLUMN queue_jobs.worker.encrypt IS 'args keys whose values are stored as ciphertext; *: all';
COMMENT ON COLUMN queue_jobs.worker.if_waiting IS 'what becomes of the job of its key that waits, when another one is enqueued, unless the call says otherwise: drop, replace, replace_args, debounce';
COMMENT ON COLUMN queue_jobs.worker.max_delay IS 'debounce puts no job off for longer than this; NULL: for as long as calls come';
COMMENT ON COLUMN queue_jobs.worker.dedup_args IS 'args keys that make two jobs the same; NULL: all';
COMMENT ON COLUMN queue_jobs.worker.aliases IS 'its former names: jobs that were enqueued by them, or are, are its own';
COMMENT ON COLUMN queue_jobs.worker.fair_key IS 'args key whose values take turns; NULL: jobs go by priority and id';
COMMENT ON COLUMN queue_jobs.worker.fair_weights IS 'how many jobs of a value a turn has, by the value''s text; 1 of all others';
COMMENT ON COLUMN queue_jobs.worker.limits IS 'names of the limits that its jobs count under, with those of other workers';
COMMENT ON COLUMN queue_jobs.worker.limit_cost IS 'args key whose value is what a job counts for in these; NULL: 1';
COMMENT ON COLUMN queue_jobs.worker.max_waiting IS 'of one role, no more of its jobs may wait: enqueue() of more is refused; NULL: no limit';
COMMENT ON COLUMN queue_jobs.worker.break_after IS 'after so many failures in a row none of its jobs begins for break_for; NULL: they go on';
COMMENT ON COLUMN queue_jobs.worker.break_for IS 'for how long, the first time; then one job is tried, and if it fails, no job begins for twice as long, up to an hour';
COMMENT ON COLUMN queue_jobs.worker.broken_until IS 'it is broken: no job begins before that time, after which one is tried; NULL: jobs begin';
COMMENT ON COLUMN queue_jobs.worker.encrypt_result IS 'the results of its jobs are stored as ciphertext';

COMMENT ON COLUMN queue_jobs.worker_statistics.worker IS 'name of the worker; queue_jobs.command: commands of schedules';
COMMENT ON COLUMN queue_jobs.worker_statistics.feature_category IS 'the worker''s label; NULL: none';
COMMENT ON COLUMN queue_jobs.worker_statistics.urgency IS 'the worker''s urgency, whose targets the shares are about';
COMMENT ON COLUMN queue_jobs.worker_statistics.resource_boundary IS 'the worker''s resource_boundary';
COMMENT ON COLUMN queue_jobs.worker_statistics.since IS 'the first run that is counted; NULL: none is';
COMMENT ON COLUMN queue_jobs.worker_statistics.runs IS 'runs that ended, failures included';
COMMENT ON COLUMN queue_jobs.worker_statistics.failures IS 'runs that failed; NULL, as in all that follows: no runs';
COMMENT ON COLUMN queue_jobs.worker_statistics.merged IS 'duplicates that these runs stood for';
COMMENT ON COLUMN queue_jobs.worker_statistics.cpu_seconds IS 'CPU time of the runs by executors, in seconds; NULL: not measured';
COMMENT ON COLUMN queue_jobs.worker_statistics.cpu_share IS 'CPU time as a share of their run time, from 0 to 1; NULL: not measured';
COMMENT ON COLUMN queue_jobs.worker_statistics.run_time_mean IS 'seconds from start to end, on average';
COMMENT ON COLUMN queue_jobs.worker_statistics.run_time_p50 IS 'seconds that half of the runs did not exceed, within an eighth';
COMMENT ON COLUMN queue_jobs.worker_statistics.run_time_p99 IS 'seconds that 99 % of the runs did not exceed, within an eighth';
COMMENT ON COLUMN queue_jobs.worker_statistics.queueing_time_mean IS 'seconds from when the job was due to its start, on average';
COMMENT ON COLUMN queue_jobs.worker_statistics.queueing_time_p50 IS 'seconds that half of the jobs did not wait longer than, within an eighth';
COMMENT ON COLUMN queue_jobs.worker_statistics.queueing_time_p99 IS 'seconds that 99 % of the jobs did not wait longer than, within an eighth';
COMMENT ON COLUMN queue_jobs.worker_statistics.started_in_target IS 'share of the runs, from 0 to 1, that started as soon as the urgency promises; NULL: it promises nothing';
COMMENT ON COLUMN queue_jobs.worker_statistics.ran_in_target IS 'share of the runs, from 0 to 1, that took no longer than the urgency allows';
COMMENT ON COLUMN queue_jobs.worker_statistics.cpu_bound IS 'CPU-bound, but not declared so by resource_boundary';
COMMENT ON COLUMN queue_jobs.worker_statistics.too_slow IS 'slower than its urgency allows';

COMMENT ON COLUMN queue_jobs.routing_rule.position IS 'rules are tried in this order, from 1';
COMMENT ON COLUMN queue_jobs.routing_rule.selector IS 'the workers that the rule is for, by their attributes; "*": all';
COMMENT ON COLUMN queue_jobs.routing_rule.queue IS 'where their jobs are enqueued; NULL: the worker''s own queue';

COMMENT ON COLUMN queue_jobs.queue.queue IS 'name of the queue, "name" or "namespace:name"';
COMMENT ON COLUMN queue_jobs.queue.paused IS 'true: pause() lets none of its jobs start';
COMMENT ON COLUMN queue_jobs.queue.scheduled IS 'jobs that are due later';
COMMENT ON COLUMN queue_jobs.queue.available IS 'jobs that are due and do not run';
COMMENT ON COLUMN queue_jobs.queue.executing IS 'jobs that run';
COMMENT ON COLUMN queue_jobs.queue.retryable IS 'jobs that failed and are due again later';
COMMENT ON COLUMN queue_jobs.queue.waiting IS 'jobs that wait for other jobs or a signal';
COMMENT ON COLUMN queue_jobs.queue.oldest_available IS 'since when the oldest of the available ones has been due; NULL: none is available';

COMMENT ON COLUMN queue_jobs.schedule.name IS 'name of the schedule';
COMMENT ON COLUMN queue_jobs.schedule.cron IS 'when it ticks: cron expression, "@daily" and the like, or "every 90 seconds"';
COMMENT ON COLUMN queue_jobs.schedule.timezone IS 'the time zone of cron''s hours and days';
COMMENT ON COLUMN queue_jobs.schedule.worker IS 'each tick enqueues a job of this worker; NULL: it runs a command';
COMMENT ON COLUMN queue_jobs.schedule.args IS 'that job''s args; NULL: it runs a command';
COMMENT ON COLUMN queue_jobs.schedule.command IS 'the SQL that each tick runs; NULL: it enqueues a worker''s job';
COMMENT ON COLUMN queue_jobs.schedule.if_running IS 'what a tick does while the last job has not ended: skip, queue or allow';
COMMENT ON COLUMN queue_jobs.schedule.catch_up IS 'what becomes of ticks missed while the server was down: skip, once or all';
COMMENT ON COLUMN queue_jobs.schedule.timeout IS 'a command that takes longer is stopped; NULL: no limit, or no command';
COMMENT ON COLUMN queue_jobs.schedule.max_retries IS 'attempts after a command''s first; NULL: no command';
COMMENT ON COLUMN queue_jobs.schedule.owner IS 'the role whose schedule it is, as which its jobs run';
COMMENT ON COLUMN queue_jobs.schedule.next_run IS 'the next tick; in the past while it waits for a job to end, or its times cannot be computed (see error); infinity: there is none; NULL: it is paused';
COMMENT ON COLUMN queue_jobs.schedule.last_run IS 'the last tick that made a job; NULL: none has';
COMMENT ON COLUMN queue_jobs.schedule.last_job IS 'id of that job; NULL: no tick has made one';
COMMENT ON COLUMN queue_jobs.schedule.last_state IS 'state of that job, also when it is no longer kept; NULL: there is none, or it was another job that stood for the tick''s, and is gone';
COMMENT ON COLUMN queue_jobs.schedule.skipped IS 'ticks that made no job because the last one had not ended';
COMMENT ON COLUMN queue_jobs.schedule.error IS 'why the last tick made no job otherwise, or with what the last job failed that ended or is tried again; NULL: neither';
COMMENT ON COLUMN queue_jobs.schedule.keep_completed IS 'how long a command''s completed jobs stay readable; NULL: no command';
COMMENT ON COLUMN queue_jobs.schedule.last_finished IS 'when the latest of its jobs ended; NULL: none has';
COMMENT ON COLUMN queue_jobs.schedule.paused IS 'whether pause_schedule() has stopped its ticks';
COMMENT ON COLUMN queue_jobs.schedule.starts_at IS 'no tick is before; NULL: no such bound';
COMMENT ON COLUMN queue_jobs.schedule.ends_at IS 'no tick is after; NULL: no such bound';
COMMENT ON COLUMN queue_jobs.schedule.jitter IS 'a tick''s job is due at random within that time after the tick; NULL: at the tick';
COMMENT ON COLUMN queue_jobs.schedule.queue IS 'where its jobs wait; NULL: in the worker''s queue';
COMMENT ON COLUMN queue_jobs.named_limit.name IS 'name of the limit';
COMMENT ON COLUMN queue_jobs.named_limit.owner IS 'the role that defined it';
COMMENT ON COLUMN queue_jobs.named_limit.max_running IS 'how much of it jobs that run at once may take; NULL: it does not count them';
COMMENT ON COLUMN queue_jobs.named_limit.rate IS 'how much of it starts may take in any interval as long as the period; NULL: it does not count them';
COMMENT ON COLUMN queue_jobs.named_limit.period IS 'the interval for rate';
COMMENT ON COLUMN queue_jobs.named_limit.running IS 'what jobs that run have taken; NULL without max_running';
COMMENT ON COLUMN queue_jobs.named_limit.used IS 'what was taken in the last period; NULL without rate, and on a standby';
COMMENT ON COLUMN queue_jobs.named_limit.closed_until IS 'no job that needs it begins before; NULL: it is open';
COMMENT ON COLUMN queue_jobs.event_subscription.event IS 'name of the event; order.*: all whose names begin with order and a dot; *: all';
COMMENT ON COLUMN queue_jobs.event_subscription.worker IS 'the worker that gets a job of each';
COMMENT ON COLUMN queue_jobs.event_subscription.owner IS 'the role that subscribed it: whose jobs they are';
COMMENT ON COLUMN queue_jobs.event_subscription.filter IS 'what the payload must contain; NULL: anything will do';
COMMENT ON COLUMN queue_jobs.event_subscription.created_at IS 'when it was first subscribed';

COMMENT ON COLUMN queue_jobs.capacity.worker IS 'name of the worker';
COMMENT ON COLUMN queue_jobs.capacity.running IS 'its jobs that run now';
COMMENT ON COLUMN queue_jobs.capacity.maximum IS 'its max_running_jobs';
COMMENT ON COLUMN queue_jobs.capacity.remaining IS 'rows that its query remaining_work returned when it last returned any; NULL: never, or it has no such query';
COMMENT ON COLUMN queue_jobs.capacity.filled_at IS 'when that query was last due; NULL: never, or it has no such query';

COMMENT ON COLUMN queue_jobs.replica.name IS 'name of the replica';
COMMENT ON COLUMN queue_jobs.replica.state IS 'ready, paused, unknown, unreachable, refused, not a standby, foreign or other timeline; jobs read from it while it is ready';
COMMENT ON COLUMN queue_jobs.replica.replayed_lsn IS 'how far it had replayed when it last answered; NULL: it has not';
COMMENT ON COLUMN queue_jobs.replica.lag_bytes IS 'bytes of WAL from replayed_lsn to where the primary is now; NULL: it has not answered, or this server is a standby itself';
COMMENT ON COLUMN queue_jobs.replica.lag IS 'how long ago the latest transaction that it had replayed was committed; 0: it had replayed all that it had received; NULL: it has not answered';
COMMENT ON COLUMN queue_jobs.replica.last_seen IS 'when it last answered; NULL: it has not';
COMMENT ON COLUMN queue_jobs.replica.last_error IS 'the latest error in asking it or reading from it; NULL: none since the server started';
COMMENT ON COLUMN queue_jobs.replica.last_error_at IS 'when that error was; NULL: none';
COMMENT ON COLUMN queue_jobs.replica.retry_at IS 'after an error, not asked again before then; NULL: asked whenever it is wanted';
COMMENT ON COLUMN queue_jobs.replica.served IS 'jobs that read from it, or were sent there by claim(), since the server started';
COMMENT ON COLUMN queue_jobs.replica.conninfo IS 'its connection string, without passwords';

COMMENT ON COLUMN queue_jobs.load_balancing.worker IS 'name of the worker';
COMMENT ON COLUMN queue_jobs.load_balancing.strategy IS 'the choice: replica, replica_retried, primary, retry or primary_no_wal';
COMMENT ON COLUMN queue_jobs.load_balancing.jobs IS 'how often it was made, since the server started';

-- Columns of a view that are those of another.
DO $$
DECLARE
    described record;
BEGIN
    FOR described IN
        SELECT part.attrelid::pg_catalog.regclass AS name, part.attname, pg_catalog.col_description(whole.attrelid, whole.attnum) AS comment
          FROM (VALUES (1, 'queue_jobs.job'::pg_catalog.regclass, 'queue_jobs_internal.job_alive'::pg_catalog.regclass), (2, 'queue_jobs.job', 'queue_jobs_internal.job_finished'),
                       (3, 'queue_jobs.live_job', 'queue_jobs_internal.live_job_now'), (4, 'queue_jobs.job', 'queue_jobs_internal.live_job_now'),
                       (5, 'queue_jobs.worker_statistics', 'queue_jobs.misdeclared_worker')) AS v (place, whole, part)
          JOIN pg_catalog.pg_attribute part ON part.attrelid = v.part AND part.attnum > 0
          JOIN pg_catalog.pg_attribute whole ON whole.attrelid = v.whole AND whole.attname = part.attname
         WHERE pg_catalog.col_description(whole.attrelid, whole.attnum) IS NOT NULL
         ORDER BY v.place              -- what the view job says of a column prevails
    LOOP
        EXECUTE pg_catalog.format('COMMENT ON COLUMN %s.%I IS %L', described.name, described.attname, described.comment);
    END LOOP;
END
$$;

COMMENT ON COLUMN queue_jobs.batch.id IS 'what new_batch() returned';
COMMENT ON COLUMN queue_jobs.batch.name IS 'the name that it was given; NULL: none';
COMMENT ON COLUMN queue_jobs.batch.owner IS 'the role that made it, to which its callbacks belong';
COMMENT ON COLUMN queue_jobs.batch.parent IS 'the batch that does not end before this one has; NULL: none';
COMMENT ON COLUMN queue_jobs.batch.state IS 'open (until close_batch()), running, ended (no member is left), or succeeded (all of them are completed)';
COMMENT ON COLUMN queue_jobs.batch.jobs IS 'its members, without those of its child batches';
COMMENT ON COLUMN queue_jobs.batch.remaining IS 'members that are not finished';
COMMENT ON COLUMN queue_jobs.batch.completed IS 'members that are completed';
COMMENT ON COLUMN queue_jobs.batch.dead IS 'members that are dead';
COMMENT ON COLUMN queue_jobs.batch.cancelled IS 'members that are cancelled, expired or removed';
COMMENT ON COLUMN queue_jobs.batch.created_at IS 'when it was made';
COMMENT ON COLUMN queue_jobs.batch.ended_at IS 'when no member was left for the first time; NULL: not yet';
COMMENT ON COLUMN queue_jobs.batch.succeeded_at IS 'when all members were completed; NULL: not yet';

COMMENT ON COLUMN queue_jobs.workflow_step.batch IS 'the workflow, a batch';
COMMENT ON COLUMN queue_jobs.workflow_step.step IS 'the step''s name';
COMMENT ON COLUMN queue_jobs.workflow_step.job IS 'its job';
COMMENT ON COLUMN queue_jobs.workflow_step.worker IS 'the job''s worker';
COMMENT ON COLUMN queue_jobs.workflow_step.state IS 'the job''s state, as in the view job';
COMMENT ON COLUMN queue_jobs.workflow_step.after IS 'names of the steps that it waits for, or has waited for';
COMMENT ON COLUMN queue_jobs.workflow_step.if_dead IS 'what happens if one of them is dead or cancelled: hold, cancel or run';

COMMENT ON COLUMN queue_jobs_internal.live_job_now."row" IS 'where its row is';
COMMENT ON COLUMN queue_jobs_internal.live_job_now.lane IS 'its lane';
COMMENT ON COLUMN queue_jobs_internal.live_job_now.run_attempt IS 'of an executor''s run: its attempt; NULL: none runs it';
COMMENT ON COLUMN queue_jobs_internal.live_job_now.pid IS 'of an executor''s run: its process';
COMMENT ON COLUMN queue_jobs_internal.live_job_now.run_started_at IS 'of an executor''s run: when it started';
COMMENT ON COLUMN queue_jobs_internal.live_job_now.run_wal_lsn IS 'of an executor''s run: up to where a replica must have replayed that it reads from';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.lane IS 'the lane''s id, as in live_job';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.worker IS 'its worker; NULL: the transaction that made the lane is open, or was rolled back';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.queue IS 'its queue';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.owner IS 'the role whose jobs they are';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.ready IS 'that a job may stand there to be claimed; false: claims do not look';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.priority IS 'claims look at jobs from this priority, and id, on; NULL: from the first';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.id IS 'the id to that priority';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.revisit_at IS 'then a job before that position may have become free, as a lease has run out, or a rate lets one start; NULL: none will';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.published IS 'how often a session or process said that a job stands there; it begins with a number of its own';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.crowded IS 'that claims met many jobs whose key is at its limit: the scheduler parks them';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.passed_by IS 'how often a claim passed a job by, because another of its key ran; it begins with a number of its own';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.refused_role IS 'whose executors a limit of the worker has refused, until a job of the worker ends; NULL: none';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.successes IS 'jobs of a limited-capacity worker that have succeeded, and are not replaced yet';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.pools IS 'the executor pools that serve it, a bit for each; 0: none, or not known yet';
COMMENT ON COLUMN queue_jobs_internal.lane_hint.moved_to IS 'the lane to which its jobs were moved; NULL: none';
COMMENT ON COLUMN queue_jobs_internal.ended_member.batch IS 'the batch';
COMMENT ON COLUMN queue_jobs_internal.ended_member.id IS 'the member';
COMMENT ON COLUMN queue_jobs_internal.ended_member.step IS 'its name in a workflow; NULL: it has none';
COMMENT ON COLUMN queue_jobs_internal.ended_member.lane IS 'its lane';
COMMENT ON COLUMN queue_jobs_internal.ended_member.state IS 'completed, dead or cancelled';
COMMENT ON COLUMN queue_jobs_internal.ended_member.args IS 'what its handler was called with';
COMMENT ON COLUMN queue_jobs_internal.ended_member.result IS 'what it has returned';
COMMENT ON COLUMN queue_jobs_internal.ended_member.encrypted IS 'that its args or its result are ciphertext; NULL: they are not';
COMMENT ON COLUMN queue_jobs.batch_member.batch IS 'the batch';
COMMENT ON COLUMN queue_jobs.batch_member.job IS 'the member';
COMMENT ON COLUMN queue_jobs.batch_member.step IS 'its name in a workflow; NULL: it has none';
COMMENT ON COLUMN queue_jobs.batch_member.worker IS 'its worker';
COMMENT ON COLUMN queue_jobs.batch_member.state IS 'its state, as in the view job';
COMMENT ON COLUMN queue_jobs.batch_member.args IS 'what its handler is called with';
COMMENT ON COLUMN queue_jobs.batch_member.result IS 'what its handler returned; NULL: nothing, or not completed';
COMMENT ON COLUMN queue_jobs.batch_member.encrypted IS 'args or result are ciphertext, or the result is to be: batch_results() decrypts them';
