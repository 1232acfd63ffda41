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
