-- What becomes of the tables of 0.1.0, and of what is in them.

-- Names of workers of the engine's own, which 0.1.0 did not have.
DO $$
DECLARE
    taken text := (SELECT pg_catalog.string_agg(name, ', ') FROM queue_jobs.defined_worker WHERE name IN ('queue_jobs.heal', 'queue_jobs.fill'));
BEGIN
    IF taken IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'reserved_name', MESSAGE = pg_catalog.format('worker names %s are reserved', taken),
            DETAIL = 'From 0.2.0 on, workers of these names are the extension''s own.', HINT = 'Let their jobs end, define the workers by other names, and drop them.';
    END IF;
END
$$;

-- Functions of definitions are bound to their owners and types (queue_jobs.bind_functions(), called when it is there).
ALTER TABLE queue_jobs.defined_worker
    ADD COLUMN handler_arguments text COLLATE "C",
    ADD COLUMN handler_owner regrole,
    ADD COLUMN read_handler_owner regrole,
    ADD COLUMN retry_backoff_owner regrole;
COMMENT ON COLUMN queue_jobs.defined_schedule.owner IS 'the role that called schedule(); its jobs are that role''s';
COMMENT ON COLUMN queue_jobs.defined_worker.search_path IS 'by which pending and remaining_work find names: as it was resolved at the definition, without schemas in which other roles might create than the definer, the handler''s owner and superusers; looked at again at each run';
COMMENT ON COLUMN queue_jobs.defined_worker.handler_arguments IS 'types of the handler''s parameters: with its name and owner, which function it is';
COMMENT ON COLUMN queue_jobs.defined_worker.handler_owner IS 'owner of the handler at the definition: another role''s function is never called in its place';
COMMENT ON COLUMN queue_jobs.defined_worker.read_handler_owner IS 'the same of read_handler';
COMMENT ON COLUMN queue_jobs.defined_worker.retry_backoff_owner IS 'the same of retry_backoff';
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.defined_worker', 'WHERE ARRAY[definer, coalesce(handler_owner, definer), coalesce(read_handler_owner, definer), coalesce(retry_backoff_owner, definer)]::oid[] <@ ARRAY(SELECT oid FROM pg_catalog.pg_roles)');

-- Keys are hashed with a secret, and an owner's apart from those of other roles.
CREATE TABLE queue_jobs.hash_seed (
    seed bigint NOT NULL,
    made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE queue_jobs.hash_seed IS 'the secret that hashes of keys are made with';
INSERT INTO queue_jobs.hash_seed (seed)
SELECT pg_catalog.hashtextextended(pg_catalog.gen_random_uuid()::pg_catalog.text, pg_catalog.hashtextextended(pg_catalog.gen_random_uuid()::pg_catalog.text, 0));
ALTER TABLE queue_jobs.hash_seed REPLICA IDENTITY FULL;
REVOKE ALL ON queue_jobs.hash_seed FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.hash_seed', '');

CREATE INDEX lane_content ON queue_jobs.lane (owner, worker, queue);
ALTER TABLE queue_jobs.lane ADD COLUMN salt bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN queue_jobs.lane.salt IS 'by which the hashes of its jobs'' deduplication keys differ from those of other owners; 0 in what a dump of 0.1.0 brings';
UPDATE queue_jobs.lane
   SET salt = pg_catalog.hashtextextended(pg_catalog.pg_get_userbyid(owner)::pg_catalog.text COLLATE "C", (SELECT seed FROM queue_jobs.hash_seed));
UPDATE queue_jobs.live_job j
   SET dedup_hash = CASE j.dedup_hash # l.salt WHEN 0 THEN 1 ELSE j.dedup_hash # l.salt END
  FROM queue_jobs.lane l
 WHERE l.id = j.lane AND j.dedup_hash IS NOT NULL;

CREATE FUNCTION queue_jobs.rekey_claimed_slot(slot bigint, args jsonb, seed bigint, worker text, max_running_jobs integer, concurrency_key text,
                                              concurrency_limit integer) RETURNS bigint
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_rekey_claimed_slot';
UPDATE queue_jobs.claimed_slot s
   SET slot = queue_jobs.rekey_claimed_slot(s.slot, j.args, (SELECT seed FROM queue_jobs.hash_seed), w.name, w.max_running_jobs, w.concurrency_key,
                                            w.concurrency_limit)
  FROM queue_jobs.live_job j
  JOIN queue_jobs.lane l ON l.id = j.lane
  JOIN queue_jobs.defined_worker w ON w.name = l.worker
 WHERE j.id = s.job;
DROP FUNCTION queue_jobs.rekey_claimed_slot(bigint, jsonb, bigint, text, integer, text, integer);

COMMENT ON TABLE queue_jobs.dead_job IS 'dead jobs: the latest queue_jobs.max_dead_jobs of each worker and owner, 180 days at most';

-- How the runs of schedules ended, a row each; all but the latest of each schedule are removed (src/rules/schedule_end.c).
CREATE TABLE queue_jobs.schedule_end (
    schedule text COLLATE "C" NOT NULL,
    owner regrole NOT NULL,
    job bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    error text,
    finished_at timestamptz NOT NULL
);
CREATE INDEX schedule_end_schedule ON queue_jobs.schedule_end (schedule, job);
COMMENT ON TABLE queue_jobs.schedule_end IS 'how the latest runs of schedules ended; see the view schedule';
COMMENT ON COLUMN queue_jobs.schedule_end.owner IS 'owner of the job, and of the schedule that enqueued it';
COMMENT ON COLUMN queue_jobs.schedule_end.error IS 'the job''s last error; NULL: it is completed, or had none';
ALTER TABLE queue_jobs.schedule_end REPLICA IDENTITY FULL;
REVOKE ALL ON queue_jobs.schedule_end FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.schedule_end', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');

-- schedule() has one more parameter. Who could call it is to call the new one (50_privileges.sql).
SELECT pg_catalog.set_config('queue_jobs_update.schedule', COALESCE(pg_catalog.string_agg(DISTINCT COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC'), ','), ''), true)
  FROM pg_catalog.pg_proc p
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE p.oid = 'queue_jobs.schedule(text, text, text, jsonb, text, text, text, text, interval, integer)'::pg_catalog.regprocedure
   AND a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.schedule(text, text, text, jsonb, text, text, text, text, interval, integer);

-- define_worker() has two more. The old one is dropped once its rights are known.
SELECT pg_catalog.set_config('queue_jobs_update.define_worker', COALESCE(pg_catalog.string_agg(DISTINCT COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC'), ','), ''), true)
  FROM pg_catalog.pg_proc p
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE p.oid = 'queue_jobs.define_worker(text, text, text, text, integer, boolean, text, text, boolean, interval, integer, text, text, boolean, text, text, integer, integer, text, integer, integer, interval, text[], text, interval, interval, text, text, text, text, text, text, interval, interval, text, text[], interval)'::pg_catalog.regprocedure
   AND a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.define_worker(text, text, text, text, integer, boolean, text, text, boolean, interval, integer, text, text, boolean, text, text, integer, integer, text, integer, integer, interval, text[], text, interval, interval, text, text, text, text, text, text, interval, interval, text, text[], interval);

-- A claimant is a name and the role that claims by it. Of leases from before, those that a heartbeat has extended tell whose they are.
ALTER TABLE queue_jobs.claimant DROP CONSTRAINT claimant_pkey, ADD CONSTRAINT claimant_pkey PRIMARY KEY (name, owner);
ALTER TABLE queue_jobs.live_job ADD COLUMN claimed_by regrole;
COMMENT ON COLUMN queue_jobs.live_job.claimed_by IS 'the role that called claim(): with the name, who the claimant is';
UPDATE queue_jobs.live_job j SET claimed_by = c.owner FROM queue_jobs.claimant c WHERE c.name = j.claimant;

-- Functions of claimants that have other parameters, results or names now. Who could call them is to call the new ones (50_privileges.sql).
SELECT pg_catalog.set_config('queue_jobs_update.claimants', COALESCE(pg_catalog.string_agg(
           pg_catalog.format('GRANT EXECUTE ON FUNCTION queue_jobs.%I TO %s;', f.new_name, COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC')), ' '), ''), true)
  FROM (VALUES ('complete(bigint[], integer[], jsonb[])', 'complete_many'), ('fail(bigint, integer, text)', 'fail'),
               ('fail(bigint[], integer[], text)', 'fail_many'), ('fail(bigint[], integer[], text[])', 'fail_many'),
               ('snooze(bigint, integer, interval)', 'snooze'), ('snooze(bigint[], integer[], interval)', 'snooze_many'),
               ('heartbeat(text)', 'heartbeat'), ('heartbeat(bigint[], integer[], interval)', 'heartbeat_many')) AS f (old_function, new_name)
  JOIN pg_catalog.pg_proc p ON p.oid = ('queue_jobs.' || f.old_function)::pg_catalog.regprocedure
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.complete(bigint[], integer[], jsonb[]);
DROP FUNCTION queue_jobs.fail(bigint, integer, text);
DROP FUNCTION queue_jobs.fail(bigint[], integer[], text);
DROP FUNCTION queue_jobs.fail(bigint[], integer[], text[]);
DROP FUNCTION queue_jobs.snooze(bigint, integer, interval);
DROP FUNCTION queue_jobs.snooze(bigint[], integer[], interval);
DROP FUNCTION queue_jobs.heartbeat(text);
DROP FUNCTION queue_jobs.heartbeat(bigint[], integer[], interval);

-- Batches, workflows, signals, steps and long jobs.
ALTER TABLE queue_jobs.defined_worker
    ADD COLUMN on_dead text COLLATE "C",
    ADD COLUMN on_expired text COLLATE "C",
    ADD COLUMN encrypt text[],
    ADD COLUMN encrypt_result boolean;
COMMENT ON COLUMN queue_jobs.defined_worker.on_dead IS 'worker of the job that is enqueued when one of its jobs dies';
COMMENT ON COLUMN queue_jobs.defined_worker.on_expired IS 'worker of the job that is enqueued when one of its jobs expires';
COMMENT ON COLUMN queue_jobs.defined_worker.encrypt IS 'args keys whose values are stored as ciphertext, or *; NULL: none';
COMMENT ON COLUMN queue_jobs.defined_worker.encrypt_result IS 'the results of its jobs are stored as ciphertext; NULL: they are not';
ALTER TABLE queue_jobs.live_job
    ADD COLUMN batch bigint,
    ADD COLUMN step text,
    ADD COLUMN callback boolean,
    ADD COLUMN waits jsonb,
    ADD COLUMN cursor jsonb,
    ADD COLUMN progress double precision,
    ADD COLUMN encrypted smallint;
CREATE INDEX live_job_batch ON queue_jobs.live_job (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX live_job_waiting ON queue_jobs.live_job (id) WHERE waits IS NOT NULL;
CREATE INDEX live_job_expiring ON queue_jobs.live_job (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON COLUMN queue_jobs.live_job.batch IS 'the batch whose member, or callback, it is';
COMMENT ON COLUMN queue_jobs.live_job.step IS 'its name in a workflow';
COMMENT ON COLUMN queue_jobs.live_job.callback IS 'true: a callback of its batch, and no member';
COMMENT ON COLUMN queue_jobs.live_job.waits IS 'what it waits for, jobs or a signal; due is false, and run_at the time at which it stops to wait, or infinity';
COMMENT ON COLUMN queue_jobs.live_job.cursor IS 'where a long job goes on: what continue_at() or checkpoint() said last';
COMMENT ON COLUMN queue_jobs.live_job.progress IS 'how far it is, as it says itself';
COMMENT ON COLUMN queue_jobs.live_job.encrypted IS 'what of it is ciphertext, a sum: 1 args and the texts of errors, 2 its result, 4 its result is to be; NULL: nothing';
ALTER TABLE queue_jobs.finished_job
    ADD COLUMN batch bigint,
    ADD COLUMN step text,
    ADD COLUMN cursor jsonb,
    ADD COLUMN progress double precision,
    ADD COLUMN encrypted smallint;
CREATE TABLE queue_jobs.member_job PARTITION OF queue_jobs.finished_job FOR VALUES IN (-2);
CREATE INDEX member_job_batch ON queue_jobs.member_job (batch, state) WHERE batch IS NULL OR step IS NOT NULL OR state <> 'completed';
COMMENT ON TABLE queue_jobs.member_job IS 'finished members of batches, kept as long as these, and finished jobs that others wait for';
ALTER TABLE queue_jobs.member_job REPLICA IDENTITY FULL;
-- Batches (src/rules/batch.c). A batch has no counter of its members: their live rows are what is looked at.
CREATE SEQUENCE queue_jobs.batch_id AS bigint;
COMMENT ON SEQUENCE queue_jobs.batch_id IS 'ids of batches';
CREATE TABLE queue_jobs.tracked_batch (
    id bigint PRIMARY KEY,
    name text,
    owner regrole NOT NULL,
    parent bigint,
    step_of bigint,
    workflow boolean NOT NULL,
    dedup_key text,
    on_success text COLLATE "C",
    on_ended text COLLATE "C",
    on_dead text COLLATE "C",
    args jsonb NOT NULL,
    keep interval NOT NULL,
    open boolean NOT NULL,
    created_at timestamptz NOT NULL,
    died_at timestamptz,
    dead_job bigint,
    ended_at timestamptz,
    succeeded_at timestamptz,
    settled_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX tracked_batch_unsettled ON queue_jobs.tracked_batch (id) WHERE settled_at IS NULL;
CREATE INDEX tracked_batch_settled ON queue_jobs.tracked_batch (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX tracked_batch_parent ON queue_jobs.tracked_batch (parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX tracked_batch_step ON queue_jobs.tracked_batch (step_of) WHERE step_of IS NOT NULL;
CREATE UNIQUE INDEX tracked_batch_dedup ON queue_jobs.tracked_batch (owner, dedup_key) WHERE dedup_key IS NOT NULL AND ended_at IS NULL;
COMMENT ON TABLE queue_jobs.tracked_batch IS 'one row a batch; see the view batch';
COMMENT ON COLUMN queue_jobs.tracked_batch.owner IS 'the role that called new_batch(): its callbacks are that role''s';
COMMENT ON COLUMN queue_jobs.tracked_batch.parent IS 'the batch that does not end before this one has';
COMMENT ON COLUMN queue_jobs.tracked_batch.step_of IS 'the step of a workflow, a job, in whose run current_batch() made it';
COMMENT ON COLUMN queue_jobs.tracked_batch.dedup_key IS 'of a workflow, while it has not ended';
COMMENT ON COLUMN queue_jobs.tracked_batch.open IS 'it cannot end before close_batch()';
COMMENT ON COLUMN queue_jobs.tracked_batch.died_at IS 'when on_dead was enqueued, or would have been';
COMMENT ON COLUMN queue_jobs.tracked_batch.dead_job IS 'the member that died first';
COMMENT ON COLUMN queue_jobs.tracked_batch.ended_at IS 'when no member was left for the first time';
COMMENT ON COLUMN queue_jobs.tracked_batch.succeeded_at IS 'when all members were completed';
COMMENT ON COLUMN queue_jobs.tracked_batch.settled_at IS 'when it had ended and its callbacks, too: what counts for its parent, and from when on it is kept; NULL again while a member that was retried has not ended';

-- Jobs that stand for duplicates which were enqueued into batches: members of these, beside their own.
CREATE TABLE queue_jobs.joint_member (
    batch bigint NOT NULL,
    job bigint NOT NULL
);
CREATE INDEX joint_member_batch ON queue_jobs.joint_member (batch);
CREATE INDEX joint_member_job ON queue_jobs.joint_member (job);
ALTER TABLE queue_jobs.joint_member REPLICA IDENTITY FULL;
COMMENT ON TABLE queue_jobs.joint_member IS 'jobs that are members of batches into which duplicates of theirs were enqueued; a pair may be there twice, as two transactions that add it do not wait for each other';

-- Which ids a batch's members have (src/table/member_range.c): all of them are in its ranges, and others may be, too.
CREATE TABLE queue_jobs.member_range (
    batch bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL
);
CREATE INDEX member_range_batch ON queue_jobs.member_range (batch);
ALTER TABLE queue_jobs.member_range REPLICA IDENTITY FULL;
COMMENT ON TABLE queue_jobs.member_range IS 'from which id to which the members of each batch are, a row for each run of ids that a transaction gave them; ranges may overlap, and have ids of other jobs in them';

-- Which jobs a job waits for, or has waited for (src/rules/dependency.c).
CREATE TABLE queue_jobs.dependency (
    child bigint NOT NULL,
    parent bigint NOT NULL,
    if_dead text COLLATE "C" NOT NULL,
    CONSTRAINT dependency_pkey PRIMARY KEY (child, parent)
);
CREATE INDEX dependency_parent ON queue_jobs.dependency (parent);
COMMENT ON TABLE queue_jobs.dependency IS 'which jobs each job waits for, and what happens if one of them dies; kept as long as the job';

-- Signals that were sent to jobs, the first of each name.
CREATE TABLE queue_jobs.job_signal (
    job bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    sent_at timestamptz NOT NULL,
    CONSTRAINT job_signal_pkey PRIMARY KEY (job, name)
);
COMMENT ON TABLE queue_jobs.job_signal IS 'what signal() sent to each job; kept as long as the job';

-- Results of the steps that runs of a job have gone through.
CREATE TABLE queue_jobs.saved_step (
    job bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value jsonb NOT NULL,
    CONSTRAINT saved_step_pkey PRIMARY KEY (job, name)
);
COMMENT ON TABLE queue_jobs.saved_step IS 'results of step() and save_step(), each of its job; kept as long as the job';
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.member_job', 'WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles))');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.batch_id', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.tracked_batch', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.joint_member', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.member_range', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.dependency', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.job_signal', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.saved_step', '');
REVOKE ALL ON queue_jobs.member_job, queue_jobs.tracked_batch, queue_jobs.joint_member, queue_jobs.member_range, queue_jobs.dependency, queue_jobs.job_signal, queue_jobs.saved_step FROM PUBLIC;
REVOKE ALL ON SEQUENCE queue_jobs.batch_id FROM PUBLIC;

-- enqueue() and its like have more parameters. Who could call them is to call the new ones (50_privileges.sql).
SELECT pg_catalog.set_config('queue_jobs_update.enqueue', COALESCE(pg_catalog.string_agg(
           pg_catalog.format('GRANT EXECUTE ON FUNCTION queue_jobs.%I TO %s;', p.proname, COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC')), ' '), ''), true)
  FROM pg_catalog.pg_proc p
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE p.pronamespace = 'queue_jobs'::pg_catalog.regnamespace AND p.proname IN ('enqueue', 'try_enqueue', 'enqueue_many')
   AND a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.enqueue(text, jsonb, timestamptz, interval, integer, text, text, jsonb, interval, interval);
DROP FUNCTION queue_jobs.try_enqueue(text, jsonb, timestamptz, interval, integer, text, text, jsonb, interval, interval);
DROP FUNCTION queue_jobs.enqueue_many(text, jsonb[], jsonb[], timestamptz, interval, integer, integer, interval);
