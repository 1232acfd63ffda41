-- What people write by hand: it waits for the transaction that has the row.
\set k random(1, :keys)
INSERT INTO raw.unique_job (id, created_at, run_at, lane, place, priority, version, attempt, due, dedup_key, args)
VALUES (nextval('raw.job_id'), now(), now() + :delay::interval, 1, 1, 0, 0, 0, false, 'key ' || :k::bigint, jsonb_build_object('k', :k::bigint))
ON CONFLICT (dedup_key) DO UPDATE SET args = EXCLUDED.args, run_at = EXCLUDED.run_at, priority = EXCLUDED.priority;
