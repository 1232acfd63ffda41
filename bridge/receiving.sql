-- The receiving side of the bridge: for the database of a queue server that has the extension queue_jobs. A
-- subscription to the outbox of a managed server (managed.sql) fills queue_jobs_bridge.outbox here, whose
-- trigger enqueues each row as the role that owns it. Run it once, as the superuser that will own the
-- subscription. One managed database for each database here. docs/how-to/bridge.md has all the steps.

BEGIN;

-- What the managed server has may not fit any other encoding, and would hold up all that comes after it.
DO $$
BEGIN
    IF pg_catalog.current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = 'the database must have the encoding UTF8',
            DETAIL = 'Its encoding is ' OPERATOR(pg_catalog.||) pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.||) '.',
            HINT = 'Use a database with TEMPLATE template0 ENCODING ''UTF8''.';
    END IF;
END
$$;

CREATE SCHEMA queue_jobs_bridge;
COMMENT ON SCHEMA queue_jobs_bridge IS 'Jobs that come from a managed server, by the bridge of queue_jobs.';

-- The time is part of the key: a managed server that fails over to a standby which had not got everything may
-- give an id once more.
CREATE TABLE queue_jobs_bridge.outbox (
    id bigint,
    owner name NOT NULL,
    created_at timestamptz,
    worker text NOT NULL,
    args jsonb,
    run_at timestamptz,
    priority integer NOT NULL,
    queue text,
    dedup_key text,
    context jsonb,
    expires_in interval,
    jitter interval,
    batch bigint,
    after bigint[],
    if_dead text,
    max_retries integer,
    timeout interval,
    keep_completed interval,
    tags text[],
    if_waiting text,
    max_delay interval,
    arrived_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    job bigint,
    sqlstate text,
    error text,
    PRIMARY KEY (id, created_at)
);
CREATE INDEX outbox_rejected ON queue_jobs_bridge.outbox (id) WHERE error IS NOT NULL;
CREATE INDEX outbox_arrived_at ON queue_jobs_bridge.outbox (arrived_at);
COMMENT ON TABLE queue_jobs_bridge.outbox IS
'Each row that has arrived from the managed server''s outbox, until trim() removes it. job: the job that does the work, NULL if the worker is disabled, or the row was refused; args and context are with the job. error, sqlstate: why a row was refused; see the view rejected.';

CREATE VIEW queue_jobs_bridge.rejected AS
SELECT id, owner, created_at, arrived_at, worker, args, sqlstate, error FROM queue_jobs_bridge.outbox WHERE error IS NOT NULL;
COMMENT ON VIEW queue_jobs_bridge.rejected IS
'Rows that arrived and were refused. They wait for retry_rejected(), or discard_rejected().';

-- What the last trim() saw on the managed server; one row.
CREATE TABLE queue_jobs_bridge.seen (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    seen_at timestamptz NOT NULL,
    on_the_way bigint NOT NULL,
    oldest timestamptz
);
COMMENT ON TABLE queue_jobs_bridge.seen IS 'What the last trim() saw on the managed server: how many rows have not arrived, and since when the oldest waits.';

-- A job runs as the role of the same name here, but never as a superuser: the managed server's administrator,
-- often called postgres, too, would be this server's.
CREATE FUNCTION queue_jobs_bridge.check_owner(owner name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_superuser boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = owner);
BEGIN
    IF is_superuser IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('role "%s" does not exist', owner),
            DETAIL = 'The job was enqueued by the role of that name on the managed server.',
            HINT = 'Create the role here, and GRANT queue_jobs_enqueue to it. Then call queue_jobs_bridge.retry_rejected().';
    ELSIF is_superuser THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('role "%s" is a superuser here', owner),
            DETAIL = 'A job that comes over the bridge never runs as a superuser.',
            HINT = 'Enqueue as another role on the managed server.';
    END IF;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.check_owner(name) IS 'Error if jobs of that role cannot come over the bridge: 42704 there is none, 42501 a superuser.';

CREATE FUNCTION queue_jobs_bridge.jobs_of(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    jobs bigint[] := '{}';
    row_id bigint;
    found_job bigint;
BEGIN
    IF cardinality(ids) > 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded', MESSAGE = 'too many jobs to run after',
            DETAIL = format('The array has %s elements; the limit is 10000.', cardinality(ids)), HINT = 'Enqueue them into a batch with on_success.';
    END IF;
    FOREACH row_id IN ARRAY ids LOOP
        SELECT o.job INTO found_job FROM queue_jobs_bridge.outbox o WHERE o.id = row_id ORDER BY o.created_at DESC LIMIT 1;
        IF found_job IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('row %s of the outbox has no job here', row_id),
                DETAIL = 'It was refused, or its worker is disabled, or trim() has removed it.',
                HINT = 'If it was refused, mend that first; then call queue_jobs_bridge.retry_rejected().';
        END IF;
        jobs := jobs || found_job;
    END LOOP;
    RETURN jobs;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.jobs_of(bigint[]) IS 'The jobs that rows of the outbox have become. Error 42704 if one has none, 54000 if there are more than 10,000.';

-- Enqueues the row as its owner, or writes why that cannot be. What is wrong with this server and not with
-- the row goes on to the caller: the subscription's process then ends, and comes again with the same row.
CREATE FUNCTION queue_jobs_bridge.deliver(arrived queue_jobs_bridge.outbox) RETURNS queue_jobs_bridge.outbox
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    role text := current_setting('role');
    jobs bigint[];
    run_at timestamptz := arrived.run_at;
    delay interval;
    expires_in interval := arrived.expires_in;
    seconds_left float8;
    message text;
    detail text;
    hint text;
BEGIN
    PERFORM queue_jobs_bridge.check_owner(arrived.owner);
    IF arrived.after IS NOT NULL THEN
        jobs := queue_jobs_bridge.jobs_of(arrived.after);
    END IF;
    -- A debounced call needs a delay: what is left of it, in seconds, which are as long on every day of the year.
    IF run_at IS NOT NULL AND 'debounce' = COALESCE(arrived.if_waiting, (SELECT w.if_waiting FROM queue_jobs.defined_worker w WHERE w.name = arrived.worker)) THEN
        seconds_left := EXTRACT(epoch FROM run_at - clock_timestamp());
        delay := make_interval(secs => GREATEST(seconds_left, 0));
        IF expires_in IS NOT NULL AND seconds_left < 0 THEN
            expires_in := GREATEST(expires_in + make_interval(secs => seconds_left), '0');
        END IF;
        run_at := NULL;
    END IF;
    PERFORM set_config('role', arrived.owner, true);
    arrived.job := queue_jobs.enqueue(arrived.worker, arrived.args, run_at, delay, arrived.priority, arrived.queue, arrived.dedup_key, arrived.context,
                                      expires_in, arrived.jitter, arrived.batch, jobs, COALESCE(arrived.if_dead, 'hold'), arrived.max_retries, arrived.timeout,
                                      arrived.keep_completed, arrived.tags, arrived.if_waiting, arrived.max_delay);
    PERFORM set_config('role', role, true);
    arrived.args := NULL;
    arrived.context := NULL;
    arrived.sqlstate := NULL;
    arrived.error := NULL;
    RETURN arrived;
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR lock_not_available OR operator_intervention OR system_error THEN
        RAISE;
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
        arrived.sqlstate := SQLSTATE;
        arrived.error := left(concat_ws(E'\n', message, NULLIF(detail, ''), NULLIF(hint, '')), 10000);
        RETURN arrived;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.deliver(queue_jobs_bridge.outbox) IS 'Enqueues the job of a row as its owner; returns the row with the job, or with the error.';

-- A row that is here already comes again when a new subscription copies the outbox.
CREATE FUNCTION queue_jobs_bridge.arrive() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM queue_jobs_bridge.outbox o WHERE o.id = NEW.id AND o.created_at = NEW.created_at) THEN
        RETURN NULL;
    END IF;
    RETURN queue_jobs_bridge.deliver(NEW);
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.arrive() IS 'Enqueues the job of a row that arrives.';

-- The subscription's processes alone fire it: a restore brings rows whose jobs are in the same dump.
CREATE TRIGGER arrive BEFORE INSERT ON queue_jobs_bridge.outbox FOR EACH ROW EXECUTE FUNCTION queue_jobs_bridge.arrive();
ALTER TABLE queue_jobs_bridge.outbox ENABLE REPLICA TRIGGER arrive;

CREATE FUNCTION queue_jobs_bridge.retry_rejected(only_id bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rejected queue_jobs_bridge.outbox;
    delivered queue_jobs_bridge.outbox;
    accepted bigint := 0;
BEGIN
    FOR rejected IN SELECT * FROM queue_jobs_bridge.outbox o WHERE o.error IS NOT NULL AND (only_id IS NULL OR o.id = only_id) ORDER BY o.id FOR UPDATE LOOP
        delivered := queue_jobs_bridge.deliver(rejected);
        UPDATE queue_jobs_bridge.outbox o
           SET job = delivered.job, args = delivered.args, context = delivered.context, sqlstate = delivered.sqlstate, error = delivered.error
         WHERE o.id = rejected.id AND o.created_at = rejected.created_at;
        accepted := accepted + (delivered.error IS NULL)::int;
    END LOOP;
    RETURN accepted;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.retry_rejected(bigint) IS
'Tries rows that were refused once more, all or one, in the order of their ids; returns how many are jobs now. Those that are refused again keep the new error.';

-- The row itself stays until trim(): it has arrived, and is not to come again.
CREATE FUNCTION queue_jobs_bridge.discard_rejected(only_id bigint DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
WITH discarded AS (
    UPDATE queue_jobs_bridge.outbox o SET error = NULL, args = NULL, context = NULL WHERE o.error IS NOT NULL AND (only_id IS NULL OR o.id = only_id) RETURNING 1
)
SELECT count(*) FROM discarded
$$;
COMMENT ON FUNCTION queue_jobs_bridge.discard_rejected(bigint) IS 'Gives up rows that were refused, all or one; returns how many.';

-- It deletes there only what it sees here. A new subscription may be copying the outbox with an older
-- snapshot: so the copy keeps a row for an hour longer than the outbox does.
CREATE FUNCTION queue_jobs_bridge.trim(keep interval DEFAULT '10 min') RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at_once CONSTANT int := 10000;
    last_id bigint := -1;
    ids bigint[];
    times timestamptz[];
    arrived bigint[];
    trimmed bigint := 0;
    deleted bigint;
    missing bigint := 0;
    oldest timestamptz;
BEGIN
    LOOP
        SELECT array_agg(o.id), array_agg(o.created_at), max(o.id) INTO ids, times, last_id
          FROM (SELECT m.id, m.created_at FROM queue_jobs_bridge.managed_outbox m WHERE m.id > last_id ORDER BY m.id LIMIT at_once) o;
        EXIT WHEN ids IS NULL;
        SELECT array_agg(r.id) FILTER (WHERE o.arrived_at <= now() - keep), missing + count(*) FILTER (WHERE o.id IS NULL),
               LEAST(oldest, min(r.created_at) FILTER (WHERE o.id IS NULL))
          INTO arrived, missing, oldest
          FROM unnest(ids, times) r (id, created_at)
          LEFT JOIN queue_jobs_bridge.outbox o USING (id, created_at);
        DELETE FROM queue_jobs_bridge.managed_outbox m WHERE m.id = ANY (arrived);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        trimmed := trimmed + deleted;
    END LOOP;
    DELETE FROM queue_jobs_bridge.outbox o WHERE o.arrived_at < now() - keep - interval '1 hour' AND o.error IS NULL;
    INSERT INTO queue_jobs_bridge.seen AS s (seen_at, on_the_way, oldest) VALUES (clock_timestamp(), missing, oldest)
        ON CONFLICT (only_one) DO UPDATE SET seen_at = EXCLUDED.seen_at, on_the_way = EXCLUDED.on_the_way, oldest = EXCLUDED.oldest;
    RETURN trimmed;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.trim(interval) IS
'Deletes the rows from the managed server''s outbox that arrived here longer than keep ago, by the foreign table queue_jobs_bridge.managed_outbox; returns how many. Notes how many have not arrived, for health. To be called every few seconds by a schedule.';

-- ---- monitoring: in the form of queue_jobs.health() and queue_jobs.metric ----

-- The server's versions count errors in columns of different names: apply_error_count, and one or two for the first copy.
CREATE VIEW queue_jobs_bridge.subscription AS
SELECT s.subname AS name, s.subenabled AS enabled, r.srsubstate = 'r' AS in_step, w.pid, w.last_msg_receipt_time AS last_message_at,
       (SELECT pg_catalog.sum(n::bigint)::bigint FROM pg_catalog.jsonb_each_text(pg_catalog.to_jsonb(c)) AS counted (name, n) WHERE name LIKE '%\_error\_count') AS errors
  FROM pg_catalog.pg_subscription_rel r
  JOIN pg_catalog.pg_subscription s ON s.oid = r.srsubid
  LEFT JOIN pg_catalog.pg_stat_subscription w ON w.subid = s.oid AND w.relid IS NULL AND w.received_lsn IS NOT NULL
  LEFT JOIN pg_catalog.pg_stat_subscription_stats c ON c.subid = s.oid
 WHERE r.srrelid = 'queue_jobs_bridge.outbox'::pg_catalog.regclass;
COMMENT ON VIEW queue_jobs_bridge.subscription IS
'The subscription that fills the outbox, one row; none if there is no subscription. in_step: the first copy is done. pid: the process that applies what comes, NULL if there is no connection.';

CREATE VIEW queue_jobs_bridge.health AS
WITH checks (n, name, ok, value, advice) AS (
    SELECT 1, 'subscription', COALESCE(s.enabled AND s.in_step AND s.pid IS NOT NULL, false),
           CASE WHEN s.name IS NULL THEN 'there is none' WHEN NOT s.enabled THEN 'is disabled' WHEN s.pid IS NULL THEN 'is not connected'
                WHEN NOT s.in_step THEN 'copies the outbox' ELSE 'is connected' END,
           'The log of this server says why; ALTER SUBSCRIPTION … ENABLE, if it is disabled.'
      FROM (SELECT) AS one
      LEFT JOIN queue_jobs_bridge.subscription s ON true
    UNION ALL
    SELECT 2, 'trim', COALESCE(s.seen_at > pg_catalog.clock_timestamp() - interval '5 min', false), COALESCE('last done at ' || s.seen_at::text, 'never done'),
           'A schedule is to call queue_jobs_bridge.trim(): the view queue_jobs.schedule has its error.'
      FROM (SELECT) AS one
      LEFT JOIN queue_jobs_bridge.seen s ON true
    UNION ALL
    SELECT 3, 'on_the_way', COALESCE(s.oldest > s.seen_at - interval '1 min', true),
           pg_catalog.format('%s rows had not arrived%s', COALESCE(s.on_the_way, 0), ', the oldest of ' || s.oldest::text),
           'If the subscription is connected and they do not arrive, they were missed: make it again, as docs/how-to/bridge.md says.'
      FROM (SELECT) AS one
      LEFT JOIN queue_jobs_bridge.seen s ON true
    UNION ALL
    SELECT 4, 'rejected', pg_catalog.count(*) = 0, pg_catalog.format('%s rows', pg_catalog.count(*)),
           'The view queue_jobs_bridge.rejected says why. Mend it, and call queue_jobs_bridge.retry_rejected().'
      FROM queue_jobs_bridge.rejected
)
SELECT c.name, c.ok, c.value, CASE WHEN NOT c.ok THEN c.advice END AS advice FROM checks c ORDER BY c.n;
COMMENT ON VIEW queue_jobs_bridge.health IS
'What a probe asks, as queue_jobs.health(): subscription (there is one, and it is connected), trim (it was called within five minutes), on_the_way (nothing waited for a minute on the managed server when trim() last looked), rejected (there are none).';

CREATE VIEW queue_jobs_bridge.metric AS
SELECT m.name, m.type, m.help, '{}'::jsonb AS labels, m.value::float8 AS value
  FROM (SELECT) AS one
  LEFT JOIN queue_jobs_bridge.subscription s ON true
  LEFT JOIN queue_jobs_bridge.seen t ON true
 CROSS JOIN LATERAL (VALUES
    ('queue_jobs_bridge_up', 'gauge', '1 if the subscription is connected.', CASE WHEN s.pid IS NOT NULL THEN 1 ELSE 0 END),
    ('queue_jobs_bridge_message_age_seconds', 'gauge', 'Since when the managed server has sent nothing, not even that it is alive.',
     EXTRACT(epoch FROM pg_catalog.clock_timestamp() - s.last_message_at)),
    ('queue_jobs_bridge_errors_total', 'counter', 'Errors of the processes that apply what comes.', s.errors),
    ('queue_jobs_bridge_on_the_way', 'gauge', 'Rows of the managed server''s outbox that had not arrived when trim() last looked.', t.on_the_way),
    ('queue_jobs_bridge_on_the_way_seconds', 'gauge', 'How long the oldest of them had waited then.', COALESCE(EXTRACT(epoch FROM t.seen_at - t.oldest), 0)),
    ('queue_jobs_bridge_trim_age_seconds', 'gauge', 'Since when trim() has not looked.', EXTRACT(epoch FROM pg_catalog.clock_timestamp() - t.seen_at)),
    ('queue_jobs_bridge_rejected', 'gauge', 'Rows that were refused.', (SELECT pg_catalog.count(*) FROM queue_jobs_bridge.rejected))) m (name, type, help, value)
 WHERE m.value IS NOT NULL;
COMMENT ON VIEW queue_jobs_bridge.metric IS 'What Prometheus is to know of the bridge, as queue_jobs.metric.';

-- ---- rights ----

REVOKE ALL ON SCHEMA queue_jobs_bridge FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA queue_jobs_bridge FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs_bridge FROM PUBLIC;
GRANT USAGE ON SCHEMA queue_jobs_bridge TO pg_monitor, queue_jobs_read;
GRANT SELECT ON queue_jobs_bridge.health, queue_jobs_bridge.metric, queue_jobs_bridge.subscription TO pg_monitor, queue_jobs_read;

COMMIT;
