-- No role but the owner may use anything until it is granted: GRANT USAGE ON SCHEMA queue_jobs, EXECUTE on the functions
-- that a role needs, SELECT on the view job (which shows a role its own jobs only). Functions check further rights.
REVOKE ALL ON SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA queue_jobs FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs FROM PUBLIC;

-- The view job calls running_jobs(), which tells of a job its id and its process.
GRANT EXECUTE ON FUNCTION queue_jobs.running_jobs(), queue_jobs.transitions() TO PUBLIC;
-- Where a server stands in its WAL is no secret, and every job's role asks replicas for it.
GRANT EXECUTE ON FUNCTION queue_jobs.replay_position() TO PUBLIC;
-- pg_dump reads the sequences that the extension has dumped also for the schema alone (-s), which application roles and the database's owner do: for
-- Rails' structure.sql, say. Which ids there are is no secret.
GRANT SELECT ON SEQUENCE queue_jobs.job_id, queue_jobs.lane_id_seq, queue_jobs.batch_id TO PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs TO pg_database_owner;

-- Of use within a run only, about the run's own job.
GRANT EXECUTE ON FUNCTION queue_jobs.current_job(), queue_jobs.retry_in(interval), queue_jobs.snooze_me(interval),
    queue_jobs.continue_at(jsonb, interval, double precision), queue_jobs.step(text, text, jsonb), queue_jobs.report(double precision, text) TO PUBLIC;
GRANT EXECUTE ON PROCEDURE queue_jobs.checkpoint(jsonb, double precision) TO PUBLIC;

-- Ready-made roles to grant. Roles are the cluster's: the first database's extension makes them, others find them, and none drops them, as
-- another may have granted them. A role of that name that can log in, or has members that are there without a superuser's doing, is given nothing: with
-- CREATEROLE it could have been made beforehand, to have the rights that come to it here.
DO $$
DECLARE
    role text;
    strangers text;
BEGIN
    FOREACH role IN ARRAY ARRAY['queue_jobs_enqueue', 'queue_jobs_claim', 'queue_jobs_define', 'queue_jobs_operate', 'queue_jobs_read'] LOOP
        BEGIN
            EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
        IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = role AND (r.rolcanlogin OR r.rolsuper)) THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_object', MESSAGE = pg_catalog.format('role %I is not such as queue_jobs makes it', role),
                DETAIL = 'It can log in, or is a superuser.', HINT = 'Rename that role, or take LOGIN and SUPERUSER from it.';
        END IF;
        SELECT pg_catalog.string_agg(DISTINCT CASE WHEN g.rolsuper AND m.admin_option THEN pg_catalog.format('%I, with ADMIN OPTION', u.rolname)
                                                   ELSE pg_catalog.format('%I, granted by %s', u.rolname, COALESCE(pg_catalog.quote_ident(g.rolname), 'a role that is gone')) END, '; ')
          INTO strangers
          FROM pg_catalog.pg_auth_members m
          JOIN pg_catalog.pg_roles r ON r.oid = m.roleid
          JOIN pg_catalog.pg_roles u ON u.oid = m.member
          LEFT JOIN pg_catalog.pg_roles g ON g.oid = m.grantor
         WHERE r.rolname = role AND NOT u.rolsuper AND (m.admin_option OR g.rolsuper IS NOT TRUE);
        IF strangers IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_object', MESSAGE = pg_catalog.format('role %I has members that no superuser has let in', role),
                DETAIL = pg_catalog.format('Members: %s.', strangers),
                HINT = pg_catalog.format('REVOKE %I from them before CREATE EXTENSION, and grant it again afterwards to those who are to have it, as superuser and without ADMIN OPTION.', role);
        END IF;
    END LOOP;
END
$$;
GRANT USAGE ON SCHEMA queue_jobs TO queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read;

-- Enqueue jobs, and do what goes with them: steer one's own, wait for replicas, use the layers of idempotency alone.
GRANT EXECUTE ON FUNCTION queue_jobs.enqueue, queue_jobs.try_enqueue, queue_jobs.enqueue_many,
    queue_jobs.cancel, queue_jobs.discard, queue_jobs.retry, queue_jobs.explain_job,
    queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.change_job,
    queue_jobs.lock_record_if(regclass, anyelement, text), queue_jobs.lock_record_if(regclass, text, text), queue_jobs.run_once,
    queue_jobs.last_commit_lsn, queue_jobs.replayed, queue_jobs.steps, queue_jobs.signals TO queue_jobs_enqueue;
GRANT EXECUTE ON PROCEDURE queue_jobs.wait_for_replay TO queue_jobs_enqueue;

-- Claim jobs from outside: those of one's own role, and of roles that one is a member of.
GRANT EXECUTE ON FUNCTION queue_jobs.claim, queue_jobs.complete, queue_jobs.complete_many,
    queue_jobs.fail, queue_jobs.fail_many, queue_jobs.snooze, queue_jobs.snooze_many, queue_jobs.heartbeat, queue_jobs.heartbeat_many,
    queue_jobs.continue_at(bigint, integer, jsonb, interval, double precision), queue_jobs.save_step, queue_jobs.steps, queue_jobs.replayed,
    queue_jobs.wait_for_signal(bigint, integer, text, interval), queue_jobs.signals, queue_jobs.report(bigint, integer, double precision, text),
    queue_jobs.lock_record_if(regclass, anyelement, text), queue_jobs.lock_record_if(regclass, text, text) TO queue_jobs_claim;
GRANT EXECUTE ON PROCEDURE queue_jobs.wait_for_jobs, queue_jobs.wait_for_replay TO queue_jobs_claim;

-- Define workers and schedules, which are then one's own.
GRANT EXECUTE ON FUNCTION queue_jobs.define_worker, queue_jobs.change_worker, queue_jobs.drop_worker, queue_jobs.disable_worker, queue_jobs.enable_worker,
    queue_jobs.check_workers, queue_jobs.assert_idempotent, queue_jobs.run_due, queue_jobs.schedule, queue_jobs.unschedule, queue_jobs.run_now,
    queue_jobs.pause_schedule, queue_jobs.resume_schedule, queue_jobs.run_missed,
    queue_jobs.next_runs, queue_jobs.import_pg_cron, queue_jobs.schedule_command_of TO queue_jobs_define;

-- Events. A subscriber sees what all roles publish; a publisher needs no right to the subscribed workers.
GRANT EXECUTE ON FUNCTION queue_jobs.publish TO queue_jobs_enqueue;
GRANT EXECUTE ON FUNCTION queue_jobs.subscribe, queue_jobs.unsubscribe TO queue_jobs_define;
GRANT SELECT ON queue_jobs.event_subscription TO queue_jobs_define, queue_jobs_read;

-- Limits: closed, opened and consumed by roles that may enqueue for a worker that has them.
GRANT EXECUTE ON FUNCTION queue_jobs.define_limit, queue_jobs.drop_limit TO queue_jobs_define;
GRANT EXECUTE ON FUNCTION queue_jobs.consume_limit, queue_jobs.close_limit, queue_jobs.open_limit TO queue_jobs_define, queue_jobs_enqueue;
GRANT SELECT ON queue_jobs.named_limit TO queue_jobs_define, queue_jobs_enqueue, queue_jobs_read;

-- Steer: queues as a whole, routing and statistics; jobs and workers as far as they are one's own.
GRANT EXECUTE ON FUNCTION queue_jobs.pause, queue_jobs.resume, queue_jobs.close_breaker, queue_jobs.set_routing, queue_jobs.reset_statistics,
    queue_jobs.migrate_queue, queue_jobs.remove_jobs, queue_jobs.cancel, queue_jobs.discard, queue_jobs.retry, queue_jobs.explain_job,
    queue_jobs.cancel_jobs, queue_jobs.discard_jobs, queue_jobs.retry_jobs, queue_jobs.forget_jobs, queue_jobs.change_job,
    queue_jobs.disable_worker, queue_jobs.enable_worker, queue_jobs.capacity_impact, queue_jobs.check_workers,
    queue_jobs.set_flag, queue_jobs.add_replica, queue_jobs.drop_replica, queue_jobs.pause_replica, queue_jobs.resume_replica
    TO queue_jobs_operate;

-- See queues, workers and statistics of all; jobs and schedules of one's own.
GRANT SELECT ON queue_jobs.job, queue_jobs.worker, queue_jobs.queue, queue_jobs.worker_statistics, queue_jobs.misdeclared_worker,
    queue_jobs.routing_rule, queue_jobs.schedule, queue_jobs.capacity, queue_jobs.replica, queue_jobs.load_balancing TO queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.capacity_impact, queue_jobs.check_workers, queue_jobs.next_runs,
    queue_jobs.explain_job, queue_jobs.search_jobs, queue_jobs.steps, queue_jobs.signals TO queue_jobs_read;

-- Batches, workflows and signals. Within a run: about the run's own job.
GRANT EXECUTE ON FUNCTION queue_jobs.signal_payload(text), queue_jobs.wait_for_signal(text, interval), queue_jobs.current_batch() TO PUBLIC;
GRANT EXECUTE ON FUNCTION queue_jobs.new_batch, queue_jobs.close_batch, queue_jobs.cancel_batch, queue_jobs.retry_batch, queue_jobs.batch_results,
    queue_jobs.enqueue_workflow, queue_jobs.signal TO queue_jobs_enqueue;
GRANT EXECUTE ON PROCEDURE queue_jobs.await_job, queue_jobs.await_batch, queue_jobs.await_progress TO queue_jobs_enqueue;
GRANT SELECT ON queue_jobs.batch_member TO queue_jobs_enqueue, queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.close_batch, queue_jobs.cancel_batch, queue_jobs.retry_batch, queue_jobs.signal TO queue_jobs_operate;
GRANT SELECT ON queue_jobs.batch, queue_jobs.workflow_step TO queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.batch_results TO queue_jobs_read;
-- Of one's own jobs.
GRANT EXECUTE ON FUNCTION queue_jobs.decrypt_job TO queue_jobs_enqueue, queue_jobs_claim, queue_jobs_read;

-- What monitoring reads, also by the server's own role for that.
GRANT USAGE ON SCHEMA queue_jobs TO pg_monitor;
GRANT SELECT ON queue_jobs.metric TO pg_monitor, queue_jobs_read;
GRANT EXECUTE ON FUNCTION queue_jobs.health TO pg_monitor, queue_jobs_read;
