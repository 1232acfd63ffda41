-- Columns and tables that 0.1.0 did not have. The install script adds them to 20_tables.sql, and the update script to what 0.1.0 left, so that
-- each is defined once. src/base/attribute_numbers.awk reads the columns from here, too: one a line.

-- Which functions a definition is bound to, and options that are new.
ALTER TABLE queue_jobs.defined_worker
    ADD COLUMN handler_arguments text COLLATE "C",
    ADD COLUMN handler_owner regrole,
    ADD COLUMN read_handler_owner regrole,
    ADD COLUMN retry_backoff_owner regrole,
    ADD COLUMN on_dead text COLLATE "C",
    ADD COLUMN on_expired text COLLATE "C",
    ADD COLUMN encrypt text[],
    ADD COLUMN encrypt_result boolean,
    ADD COLUMN retry_for interval,
    ADD COLUMN inherit_context boolean NOT NULL DEFAULT true,
    ADD COLUMN if_waiting text COLLATE "C",
    ADD COLUMN max_delay interval,
    ADD COLUMN dedup_args text[],
    ADD COLUMN cancel_running boolean NOT NULL DEFAULT false,
    ADD COLUMN aliases text[] NOT NULL DEFAULT '{}',
    ADD COLUMN fair_key text COLLATE "C",
    ADD COLUMN fair_weights jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN limits text[],
    ADD COLUMN limit_cost text COLLATE "C",
    ADD COLUMN max_waiting integer,
    ADD COLUMN break_after integer,
    ADD COLUMN break_for interval NOT NULL DEFAULT '1 min';
COMMENT ON COLUMN queue_jobs.defined_worker.handler_arguments IS 'types of the handler''s parameters: with its name and owner, which function it is';
COMMENT ON COLUMN queue_jobs.defined_worker.handler_owner IS 'owner of the handler at the definition: another role''s function is never called in its place';
COMMENT ON COLUMN queue_jobs.defined_worker.read_handler_owner IS 'the same of read_handler';
COMMENT ON COLUMN queue_jobs.defined_worker.retry_backoff_owner IS 'the same of retry_backoff';
COMMENT ON COLUMN queue_jobs.defined_worker.on_dead IS 'worker of the job that is enqueued when one of its jobs dies';
COMMENT ON COLUMN queue_jobs.defined_worker.on_expired IS 'worker of the job that is enqueued when one of its jobs expires';
COMMENT ON COLUMN queue_jobs.defined_worker.encrypt IS 'args keys whose values are stored as ciphertext, or *; NULL: none';
COMMENT ON COLUMN queue_jobs.defined_worker.encrypt_result IS 'the results of its jobs are stored as ciphertext; NULL: they are not';
COMMENT ON COLUMN queue_jobs.defined_worker.retry_for IS 'for how long after its first failure a job is tried again, in place of max_retries, which is 2147483646 then; NULL: by max_retries';
COMMENT ON COLUMN queue_jobs.defined_worker.inherit_context IS 'false: its jobs have no context but what they are given';
COMMENT ON COLUMN queue_jobs.defined_worker.if_waiting IS 'what becomes of the job of its key that waits, when another one is enqueued; NULL: drop';
COMMENT ON COLUMN queue_jobs.defined_worker.max_delay IS 'debounce puts no job off for longer than this; NULL: for as long as calls come';
COMMENT ON COLUMN queue_jobs.defined_worker.dedup_args IS 'args keys that make two jobs the same; NULL: all';
COMMENT ON COLUMN queue_jobs.defined_worker.cancel_running IS 'under until_executed, a job that is enqueued while one of its key runs interrupts that one';
COMMENT ON COLUMN queue_jobs.defined_worker.aliases IS 'its former names, the latest first: jobs of these are its own';
COMMENT ON COLUMN queue_jobs.defined_worker.fair_key IS 'args key whose values take turns; NULL: jobs go by priority and id';
COMMENT ON COLUMN queue_jobs.defined_worker.fair_weights IS 'how many jobs of a value a turn has, by the value''s text; 1 of all others';
COMMENT ON COLUMN queue_jobs.defined_worker.limits IS 'names of the limits that its jobs count under; NULL: none';
COMMENT ON COLUMN queue_jobs.defined_worker.limit_cost IS 'args key whose value is what a job counts for in these; NULL: 1';
COMMENT ON COLUMN queue_jobs.defined_worker.max_waiting IS 'of one role, no more of its jobs may wait: enqueue() of more is refused; NULL: no limit';
COMMENT ON COLUMN queue_jobs.defined_worker.break_after IS 'after so many failures in a row none of its jobs begins for break_for; NULL: they go on';
COMMENT ON COLUMN queue_jobs.defined_worker.break_for IS 'for how long, the first time; then one job is tried, and if it fails, no job begins for twice as long, up to an hour';
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.defined_worker', 'WHERE ARRAY[definer, coalesce(handler_owner, definer), coalesce(read_handler_owner, definer), coalesce(retry_backoff_owner, definer)]::oid[] <@ ARRAY(SELECT oid FROM pg_catalog.pg_roles)');

-- With it keys are hashed (src/catalog/catalog.c), so that no role can choose one whose hash is that of another role's. A restore brings a second row: the oldest
-- counts, which is the one by which the restored rows were hashed.
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

ALTER TABLE queue_jobs.lane
    ADD COLUMN salt bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN queue_jobs.lane.salt IS 'by which the hashes of its jobs'' deduplication keys differ from those of other owners; 0 in what a dump of 0.1.0 brings';
-- By the owner first: few roles have lanes of many workers, and these of many queues, so that roles and workers are found by as many looks.
CREATE INDEX lane_content ON queue_jobs.lane (owner, worker, queue);

-- Claimants, batches, workflows, signals, long jobs, encryption.
ALTER TABLE queue_jobs.live_job
    ADD COLUMN claimed_by regrole,
    ADD COLUMN batch bigint,
    ADD COLUMN step text,
    ADD COLUMN callback boolean,
    ADD COLUMN waits jsonb,
    ADD COLUMN cursor jsonb,
    ADD COLUMN progress double precision,
    ADD COLUMN encrypted smallint,
    ADD COLUMN options jsonb,
    ADD COLUMN call bigint,
    ADD COLUMN quiet_at timestamptz,
    ADD COLUMN no_later timestamptz,
    ADD COLUMN message text,
    ADD COLUMN fair integer;
ALTER TABLE queue_jobs.live_job ALTER COLUMN place TYPE bigint;
CREATE INDEX live_job_batch ON queue_jobs.live_job (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX live_job_waiting ON queue_jobs.live_job (id) WHERE waits IS NOT NULL;
CREATE INDEX live_job_expiring ON queue_jobs.live_job (expires_at, id) WHERE expires_at IS NOT NULL;
COMMENT ON COLUMN queue_jobs.live_job.claimed_by IS 'the role that called claim(): with the name, who the claimant is';
COMMENT ON COLUMN queue_jobs.live_job.batch IS 'the batch whose member, or callback, it is';
COMMENT ON COLUMN queue_jobs.live_job.step IS 'its name in a workflow';
COMMENT ON COLUMN queue_jobs.live_job.callback IS 'true: a callback of its batch, and no member';
COMMENT ON COLUMN queue_jobs.live_job.waits IS 'what it waits for, jobs or a signal; due is false, and run_at the time at which it stops to wait, or infinity';
COMMENT ON COLUMN queue_jobs.live_job.cursor IS 'where a long job goes on: what continue_at() or checkpoint() said last';
COMMENT ON COLUMN queue_jobs.live_job.progress IS 'how far it is, as its last run said that has ended; what a run says meanwhile is in shared memory (src/shared/report.h)';
COMMENT ON COLUMN queue_jobs.live_job.encrypted IS 'what of it is ciphertext, a sum: 1 args and the texts of errors, 2 its result, 4 its result is to be; NULL: nothing';
COMMENT ON COLUMN queue_jobs.live_job.options IS 'what it has in place of its worker''s: max_retries, timeout and keep_completed (microseconds), and its tags; NULL: nothing';
COMMENT ON COLUMN queue_jobs.live_job.call IS 'the id that the call of enqueue() took whose args it has, if that changes the job that waits; NULL: its own';
COMMENT ON COLUMN queue_jobs.live_job.quiet_at IS 'debounced: it is due then, and not at run_at, by which it is found; in no index, so that each call is a HOT update; NULL: at run_at';
COMMENT ON COLUMN queue_jobs.live_job.fair IS 'hash of the value of its worker''s fair_key; NULL: the worker had none';
COMMENT ON COLUMN queue_jobs.live_job.place IS 'where it waits: its lane, and in the upper half fair; or below zero, a place of its concurrency key, which is at its limit';
COMMENT ON COLUMN queue_jobs.live_job.no_later IS 'debounced: no later call puts it off beyond this time';
COMMENT ON COLUMN queue_jobs.live_job.message IS 'what report() said with the progress';
ALTER TABLE queue_jobs.finished_job
    ADD COLUMN batch bigint,
    ADD COLUMN step text,
    ADD COLUMN cursor jsonb,
    ADD COLUMN progress double precision,
    ADD COLUMN encrypted smallint,
    ADD COLUMN options jsonb,
    ADD COLUMN call bigint,
    ADD COLUMN message text;
CREATE TABLE queue_jobs.member_job PARTITION OF queue_jobs.finished_job FOR VALUES IN (-2);
-- A completed member is in no index but that of its id: many batches consist of such, and an entry more would cost them a tenth of their rate.
-- They are found by the ids that the batch's members have (member_range, below).
CREATE INDEX member_job_batch ON queue_jobs.member_job (batch, state) WHERE batch IS NULL OR step IS NOT NULL OR state <> 'completed';
COMMENT ON TABLE queue_jobs.member_job IS 'finished members of batches, kept as long as these, and finished jobs that others wait for';
ALTER TABLE queue_jobs.member_job REPLICA IDENTITY FULL;
REVOKE ALL ON queue_jobs.member_job FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.member_job', 'WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles))');

-- How the runs of schedules ended, a row each; all but the latest of each schedule are removed (src/rules/outcome.c).
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
    settled_at timestamptz,
    context jsonb,
    callbacks bigint[]
) WITH (fillfactor = 50);
CREATE INDEX tracked_batch_unsettled ON queue_jobs.tracked_batch (id) WHERE settled_at IS NULL OR succeeded_at IS NULL;
CREATE INDEX tracked_batch_settled ON queue_jobs.tracked_batch (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX tracked_batch_parent ON queue_jobs.tracked_batch (parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX tracked_batch_step ON queue_jobs.tracked_batch (step_of) WHERE step_of IS NOT NULL;
CREATE UNIQUE INDEX tracked_batch_dedup ON queue_jobs.tracked_batch (owner, dedup_key, name) WHERE dedup_key IS NOT NULL AND ended_at IS NULL;
COMMENT ON TABLE queue_jobs.tracked_batch IS 'one row a batch; see the view batch';
COMMENT ON COLUMN queue_jobs.tracked_batch.owner IS 'the role that called new_batch(): its callbacks are that role''s';
COMMENT ON COLUMN queue_jobs.tracked_batch.parent IS 'the batch that does not end before this one has';
COMMENT ON COLUMN queue_jobs.tracked_batch.step_of IS 'the step of a workflow, a job, in whose run current_batch() made it';
COMMENT ON COLUMN queue_jobs.tracked_batch.dedup_key IS 'of a workflow: with its name, while it has not ended';
COMMENT ON COLUMN queue_jobs.tracked_batch.open IS 'it cannot end before close_batch()';
COMMENT ON COLUMN queue_jobs.tracked_batch.died_at IS 'when on_dead was enqueued, or would have been';
COMMENT ON COLUMN queue_jobs.tracked_batch.dead_job IS 'the member that died first';
COMMENT ON COLUMN queue_jobs.tracked_batch.ended_at IS 'when no member was left for the first time';
COMMENT ON COLUMN queue_jobs.tracked_batch.succeeded_at IS 'when all members were completed';
COMMENT ON COLUMN queue_jobs.tracked_batch.settled_at IS 'when it had ended and its callbacks, too: what counts for its parent, and from when on it is kept; NULL again while a member that was retried has not ended';
COMMENT ON COLUMN queue_jobs.tracked_batch.context IS 'that of the transaction which made it: its callbacks have it';
COMMENT ON COLUMN queue_jobs.tracked_batch.callbacks IS 'the jobs of its callbacks: while one of them has not been completed, and is there to be retried, the batch is kept for it';

-- Jobs that stand for duplicates which were enqueued into batches: members of these, beside their own.
CREATE TABLE queue_jobs.joint_member (
    batch bigint NOT NULL,
    job bigint NOT NULL
);
CREATE INDEX joint_member_batch ON queue_jobs.joint_member (batch);
CREATE INDEX joint_member_job ON queue_jobs.joint_member (job, batch);
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
    failed boolean NOT NULL, -- the parent had ended without success by then; it may be kept for a shorter time than the child waits
    named bigint NOT NULL, -- the parent as the child was given it: "parent" changes where that one is merged into the run of another
    CONSTRAINT dependency_pkey PRIMARY KEY (child, named)
);
CREATE INDEX dependency_parent ON queue_jobs.dependency (parent, child);
COMMENT ON TABLE queue_jobs.dependency IS 'which jobs each job waits for, and what happens if one of them dies; kept as long as the job';
COMMENT ON COLUMN queue_jobs.dependency.named IS 'the parent as it was given to the job, and is called in its results: parent is another one if it was merged into that one''s run';

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

-- Args of runs that began while a job of their key was left that has an earlier call (src/rules/waiting.c): its run has these.
CREATE TABLE queue_jobs.latest_call (
    dedup_hash bigint NOT NULL,
    dedup_key text,
    lane integer NOT NULL,
    call bigint NOT NULL,
    version integer NOT NULL,
    encrypted smallint NOT NULL,
    args jsonb NOT NULL,
    context jsonb,
    options jsonb
);
CREATE INDEX latest_call_key ON queue_jobs.latest_call (dedup_hash, call DESC);
ALTER TABLE queue_jobs.latest_call REPLICA IDENTITY FULL;
COMMENT ON TABLE queue_jobs.latest_call IS 'the latest args of deduplication keys that have had a run while a job of theirs with earlier args was left';
REVOKE ALL ON queue_jobs.latest_call FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.latest_call', 'WHERE lane IN (SELECT id FROM queue_jobs.lane WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles))');

REVOKE ALL ON queue_jobs.tracked_batch, queue_jobs.joint_member, queue_jobs.member_range, queue_jobs.dependency, queue_jobs.job_signal, queue_jobs.saved_step FROM PUBLIC;
REVOKE ALL ON SEQUENCE queue_jobs.batch_id FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.batch_id', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.tracked_batch', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.joint_member', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.member_range', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.dependency', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.job_signal', '');
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.saved_step', '');

-- Which events become jobs of which workers, and whose (src/api/events.c).
CREATE TABLE queue_jobs.event_subscriber (
    event text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    owner regrole NOT NULL,
    filter jsonb,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    CONSTRAINT event_subscriber_pkey PRIMARY KEY (event, worker, owner)
);
COMMENT ON TABLE queue_jobs.event_subscriber IS 'one row a subscription; see the view event_subscription';
COMMENT ON COLUMN queue_jobs.event_subscriber.owner IS 'the role that called subscribe(); the jobs are that role''s';
REVOKE ALL ON queue_jobs.event_subscriber FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.event_subscriber', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');

-- Limits that workers share (src/catalog/named_limit.c). Until when one is closed is not here, but where starts are counted.
CREATE TABLE queue_jobs.defined_limit (
    name text COLLATE "C" PRIMARY KEY,
    owner regrole NOT NULL,
    max_running integer,
    slots integer,
    rate integer,
    period interval
);
COMMENT ON TABLE queue_jobs.defined_limit IS 'one row a limit of define_limit(); see the view named_limit';
COMMENT ON COLUMN queue_jobs.defined_limit.slots IS 'the largest max_running that it has had: jobs that began then may hold so many slots';
REVOKE ALL ON queue_jobs.defined_limit FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('queue_jobs.defined_limit', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');

-- Schedules that are paused, spread, or bounded.
ALTER TABLE queue_jobs.defined_schedule
    ADD COLUMN starts_at timestamptz,
    ADD COLUMN ends_at timestamptz,
    ADD COLUMN jitter interval,
    ADD COLUMN queue text COLLATE "C",
    ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN queue_jobs.defined_schedule.starts_at IS 'no tick is before; NULL: no such bound';
COMMENT ON COLUMN queue_jobs.defined_schedule.ends_at IS 'no tick is after; NULL: no such bound';
COMMENT ON COLUMN queue_jobs.defined_schedule.jitter IS 'a tick''s job is due at random within that time after it; NULL: at the tick';
COMMENT ON COLUMN queue_jobs.defined_schedule.queue IS 'where its jobs wait; NULL: in the worker''s queue';
COMMENT ON COLUMN queue_jobs.defined_schedule.paused_at IS 'when it was paused; NULL: it is not';
