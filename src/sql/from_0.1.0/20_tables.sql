-- What becomes of the tables of 0.1.0, and of what is in them.

-- What is not for users. Plain CREATE, as in 10_schema.sql.
CREATE SCHEMA queue_jobs_internal;
COMMENT ON SCHEMA queue_jobs_internal IS 'what the views and functions of the schema queue_jobs are made of';
ALTER VIEW queue_jobs.job_alive SET SCHEMA queue_jobs_internal;
ALTER VIEW queue_jobs.job_finished SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.claimable_by(integer, oid) SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.lane_duplicates() SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.data_consistency(text, bigint) SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.load_balancing_counts() SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.replica_states() SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.worker_counters(text) SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.table_written() SET SCHEMA queue_jobs_internal;
ALTER FUNCTION queue_jobs.schedule_written() SET SCHEMA queue_jobs_internal;

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

-- Definitions that 0.1.0 left are bound to functions' owners and types by queue_jobs_internal.bind_functions(), when it is there.

COMMENT ON COLUMN queue_jobs.defined_schedule.owner IS 'the role that called schedule(); its jobs are that role''s';
COMMENT ON COLUMN queue_jobs.defined_worker.search_path IS 'by which pending and remaining_work find names: as it was resolved at the definition, without schemas in which other roles might create than the definer, the handler''s owner and superusers; looked at again at each run';
COMMENT ON TABLE queue_jobs.dead_job IS 'dead jobs: the latest queue_jobs.max_dead_jobs of each worker and owner, 180 days at most';

-- An owner's keys are hashed apart from those of other roles (as src/catalog/lane.c has it).
UPDATE queue_jobs.lane
   SET salt = ('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(pg_catalog.int8send((SELECT seed FROM queue_jobs.hash_seed))
              || pg_catalog.replace(pg_catalog.pg_get_userbyid(owner)::pg_catalog.text, pg_catalog.chr(92), pg_catalog.repeat(pg_catalog.chr(92), 2))::pg_catalog.bytea), 1, 8), 'hex'))::bit(64)::bigint;
UPDATE queue_jobs.live_job j
   SET dedup_hash = CASE j.dedup_hash # l.salt WHEN 0 THEN 1 ELSE j.dedup_hash # l.salt END
  FROM queue_jobs.lane l
 WHERE l.id = j.lane AND j.dedup_hash IS NOT NULL;

-- So are limits: 0.1.0 hashed without a seed. A slot's number is the hash of its limit combined with the number of the slot (src/rules/limit.c, park.c).
CREATE FUNCTION queue_jobs.combine(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
-- hash_combine64(), whose sum is of unsigned numbers
SELECT a # (CASE WHEN s.u >= 9223372036854775808 THEN s.u - 18446744073709551616 ELSE s.u END)::bigint
  FROM (SELECT mod(mod(b::numeric + 18446744073709551616, 18446744073709551616) + 5305509591434766563
                   + mod((a << 54)::numeric + 18446744073709551616, 18446744073709551616) + ((a >> 7) & 144115188075855871), 18446744073709551616) AS u) s
$$;
CREATE FUNCTION queue_jobs.limit_hash(worker text, concurrency_key text, args jsonb, seed bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN concurrency_key IS NULL THEN hashtextextended(worker COLLATE "C", seed)
            ELSE queue_jobs.combine(hashtextextended(worker COLLATE "C", seed), jsonb_hash_extended(k.values, seed)) END
  FROM (SELECT jsonb_agg(args -> COALESCE(replace(m[1], '""', '"'), m[2]) ORDER BY n) AS values
          FROM regexp_matches(concurrency_key, '\s*(?:"((?:[^"]|"")*)"|([^,"\s][^,\s]*))\s*(?:,|$)', 'g') WITH ORDINALITY AS names (m, n)) k
$$;
UPDATE queue_jobs.claimed_slot s
   SET slot = queue_jobs.combine(queue_jobs.limit_hash(n.worker, n.key, j.args, (SELECT seed FROM queue_jobs.hash_seed)), n.number)
  FROM queue_jobs.live_job j
  JOIN queue_jobs.lane l ON l.id = j.lane
  JOIN queue_jobs.defined_worker w ON w.name = l.worker
 CROSS JOIN LATERAL (SELECT w.name AS worker, NULL AS key, g.number FROM pg_catalog.generate_series(1, w.max_running_jobs) g (number)
                     UNION ALL
                     SELECT w.name, w.concurrency_key, g.number FROM pg_catalog.generate_series(1, w.concurrency_limit) g (number)) n
 WHERE j.id = s.job AND s.slot = queue_jobs.combine(queue_jobs.limit_hash(n.worker, n.key, j.args, 0), n.number);
DROP FUNCTION queue_jobs.limit_hash(text, text, jsonb, bigint);
DROP FUNCTION queue_jobs.combine(bigint, bigint);

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

-- next_runs() has two more.
SELECT pg_catalog.set_config('queue_jobs_update.next_runs', COALESCE(pg_catalog.string_agg(DISTINCT COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC'), ','), ''), true)
  FROM pg_catalog.pg_proc p
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE p.oid = 'queue_jobs.next_runs(text, text, timestamptz, integer)'::pg_catalog.regprocedure
   AND a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.next_runs(text, text, timestamptz, integer);

-- assert_idempotent() has one more.
SELECT pg_catalog.set_config('queue_jobs_update.assert_idempotent', COALESCE(pg_catalog.string_agg(DISTINCT COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC'), ','), ''), true)
  FROM pg_catalog.pg_proc p
 CROSS JOIN pg_catalog.aclexplode(p.proacl) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE p.oid = 'queue_jobs.assert_idempotent(text, jsonb, integer)'::pg_catalog.regprocedure
   AND a.grantee <> p.proowner AND a.privilege_type = 'EXECUTE';
DROP FUNCTION queue_jobs.assert_idempotent(text, jsonb, integer);
