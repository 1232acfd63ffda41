-- The managed side of the bridge: queue_jobs.enqueue() for a database whose server cannot load queue_jobs
-- (RDS, Cloud SQL, Supabase, Neon). It is SQL alone, and needs no superuser: the role that runs it, once, needs
-- CREATE in the database, and CREATEROLE if the two roles below do not exist.
--
-- enqueue(), try_enqueue() and enqueue_many() write to an outbox, in the caller's transaction. A queue
-- server, which has the extension, subscribes to the outbox (receiving.sql), and enqueues there what has been
-- committed here. docs/how-to/bridge.md has all the steps.

BEGIN;

CREATE SCHEMA queue_jobs;
CREATE SCHEMA queue_jobs_bridge;
COMMENT ON SCHEMA queue_jobs IS 'Enqueues jobs for a queue server, by the bridge of queue_jobs.';
COMMENT ON SCHEMA queue_jobs_bridge IS 'What the bridge of queue_jobs has on its way to the queue server.';

-- A role may choose neither the owner nor the time of a row: it has INSERT on the other columns alone.
CREATE TABLE queue_jobs_bridge.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner name NOT NULL DEFAULT current_user,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    worker text NOT NULL,
    args jsonb NOT NULL,
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
    max_delay interval
);
COMMENT ON TABLE queue_jobs_bridge.outbox IS
'Jobs for the queue server, a row each. Rows stay until queue_jobs_bridge.trim() there has seen that they have arrived.';

-- Deletes stay here: the copy on the queue server has to know a row for longer than the outbox has it.
CREATE PUBLICATION queue_jobs_bridge FOR TABLE queue_jobs_bridge.outbox WITH (publish = 'insert');

CREATE FUNCTION queue_jobs_bridge.refuse(code text, message text, detail text, hint text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint; END $$;
COMMENT ON FUNCTION queue_jobs_bridge.refuse(text, text, text, text) IS 'Raises the error.';

CREATE FUNCTION queue_jobs_bridge.check_interval(
    value interval,
    name text,
    shortest interval DEFAULT '0',
    longest interval DEFAULT '365000 days',
    hint text DEFAULT 'Give an interval that is not negative and not longer than 1000 years.')
RETURNS interval LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS
$$
SELECT CASE WHEN value < shortest OR value > longest
            THEN (SELECT value FROM queue_jobs_bridge.refuse('22023', name || ' is out of range', format('The value is %s.', value), hint))
            ELSE value END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.check_interval IS 'The interval; error 22023 if it is out of range, by default negative or longer than 1000 years.';

CREATE FUNCTION queue_jobs_bridge.check_tags(tags text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    longest_tag CONSTANT int := 200;
    longest_shown CONSTANT int := 500;
    most_tags CONSTANT int := 100;
    invalid record;
BEGIN
    IF cardinality(tags) > most_tags THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'tags has too many elements', format('There are %s; at most %s are allowed.', cardinality(tags), most_tags), 'Give fewer.');
    END IF;
    SELECT t.n, t.tag, COALESCE(octet_length(convert_to(t.tag, 'UTF8')), 0) AS length INTO invalid
      FROM unnest(tags) WITH ORDINALITY AS t (tag, n)
     WHERE COALESCE(octet_length(convert_to(t.tag, 'UTF8')), 0) NOT BETWEEN 1 AND longest_tag
     ORDER BY t.n
     LIMIT 1;
    IF FOUND THEN
        PERFORM queue_jobs_bridge.refuse('22023', format('invalid element of tags: "%s"', left(COALESCE(invalid.tag, 'NULL'), longest_shown)),
                                         format('It is element %s of %s, and has %s bytes.', invalid.n, cardinality(tags), invalid.length),
                                         format('Give names of 1 to %s bytes.', longest_tag));
    END IF;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.check_tags(text[]) IS 'Error 22023 if there are more than 100 tags, or one is NULL, empty, or longer than 200 bytes.';

-- A row that the queue server could not read would hold up all that come after it: one of 1 GB, or JSON that is nested too deeply for it, or text that is none in
-- UTF-8, in which it is sent. A trigger, for roles may INSERT without enqueue().
CREATE FUNCTION queue_jobs_bridge.check_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    longest_name CONSTANT int := 200;
    longest_shown CONSTANT int := 500;
    longest_key CONSTANT int := 8192;
    longest_args CONSTANT int := 128 * 1024 * 1024;
    longest_context CONSTANT int := 100 * 1024;
    most_after CONSTANT int := 10000;
    args_length int := octet_length(convert_to(NEW.args::text, 'UTF8'));
    context_length int := octet_length(convert_to(NEW.context::text, 'UTF8'));
    key_length int := octet_length(convert_to(NEW.dedup_key, 'UTF8'));
    long_name text := CASE WHEN octet_length(convert_to(NEW.worker, 'UTF8')) > longest_name THEN 'worker' WHEN octet_length(convert_to(NEW.queue, 'UTF8')) > longest_name THEN 'queue' END;
    deep_json text := CASE WHEN args_length > 2000 AND jsonb_path_exists(NEW.args, '$.**{1000}') THEN 'args'
                           WHEN context_length > 2000 AND jsonb_path_exists(NEW.context, '$.**{1000}') THEN 'context' END;
BEGIN
    IF long_name IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22023', format('invalid %s name "%s"', long_name, left(CASE long_name WHEN 'worker' THEN NEW.worker ELSE NEW.queue END, longest_shown)),
                                         format('A name has at most %s bytes.', longest_name), 'Choose another name.');
    ELSIF args_length > longest_args THEN
        PERFORM queue_jobs_bridge.refuse('54000', 'text of args is too long', format('It has %s bytes; the limit is %s (128 MB).', args_length, longest_args),
                                         'Store the data in a table and pass its key.');
    ELSIF jsonb_typeof(NEW.context) <> 'object' THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'context must be a JSON object', format('Its type is %s.', jsonb_typeof(NEW.context)),
                                         'Give an object, such as {"request": "8f3a"}, or leave it out.');
    ELSIF context_length > longest_context THEN
        PERFORM queue_jobs_bridge.refuse('54000', 'context is too large', format('Its text has %s bytes; the limit is %s (100 kB).', context_length, longest_context),
                                         'Store the data in a table, and let the context have its key.');
    ELSIF deep_json IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('54000', format('JSON of %s is nested too deeply', deep_json), 'It has more than 1000 levels.', 'Store the data in a table and pass its key.');
    ELSIF key_length > longest_key THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'dedup_key is too long', format('It has %s bytes; the limit is %s.', key_length, longest_key),
                                         'Give a shorter one, such as its hash.');
    ELSIF cardinality(NEW.after) > most_after THEN
        PERFORM queue_jobs_bridge.refuse('54000', 'too many jobs to run after', format('The array has %s elements; the limit is %s.', cardinality(NEW.after), most_after),
                                         'Enqueue them into a batch with on_success.');
    ELSIF NEW.if_dead NOT IN ('hold', 'cancel', 'run') THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'if_dead must be hold, cancel or run', format('The value is "%s".', left(NEW.if_dead, 100)),
                                         'hold: the job goes on waiting until the dead one has been retried.');
    ELSIF NEW.max_retries < 0 THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'max_retries must not be negative', format('The value is %s.', NEW.max_retries), 'Give 0 or more.');
    ELSIF NEW.if_waiting NOT IN ('drop', 'replace', 'replace_args', 'debounce') THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'if_waiting must be drop, replace, replace_args or debounce', format('The value is "%s".', left(NEW.if_waiting, 100)),
                                         'replace: the job that waits gets these args, and this time and priority.');
    ELSIF NEW.max_delay IS NOT NULL AND NEW.if_waiting <> 'debounce' THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'max_delay needs if_waiting => "debounce"', format('if_waiting is "%s".', NEW.if_waiting),
                                         'Leave max_delay out, or give if_waiting => "debounce".');
    END IF;
    IF COALESCE(NEW.expires_in, NEW.jitter, NEW.timeout, NEW.keep_completed, NEW.max_delay) IS NOT NULL THEN
        PERFORM queue_jobs_bridge.check_interval(NEW.expires_in, 'expires_in'), queue_jobs_bridge.check_interval(NEW.jitter, 'jitter'),
                queue_jobs_bridge.check_interval(NEW.max_delay, 'max_delay'),
                queue_jobs_bridge.check_interval(NEW.timeout, 'timeout', '1 ms', '24 days', 'Give an interval from 1 millisecond to 24 days, or NULL for the worker''s.'),
                queue_jobs_bridge.check_interval(NEW.keep_completed, 'keep_completed', '0', '540 days', 'Give an interval from 0 to 540 days, or NULL for the worker''s.');
    END IF;
    IF NEW.tags IS NOT NULL THEN
        PERFORM queue_jobs_bridge.check_tags(NEW.tags);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.check_row() IS 'Refuses a row that the queue server could not take in.';
CREATE TRIGGER check_row BEFORE INSERT ON queue_jobs_bridge.outbox FOR EACH ROW EXECUTE FUNCTION queue_jobs_bridge.check_row();

-- NULL means "on arrival". A time is fixed here only if the caller's options count from it, for the two
-- servers' clocks differ.
CREATE FUNCTION queue_jobs_bridge.due_at(run_at timestamptz, delay interval, now_if_neither boolean) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF run_at IS NOT NULL AND delay IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'run_at and delay cannot both be given', format('run_at is %s, and delay is %s.', run_at, delay),
                                         'Give the time when the job is due, or how long from now.');
    ELSIF NOT isfinite(run_at) THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'run_at must be finite', format('The value is %s.', run_at), 'Leave it out for a job that is due at once.');
    ELSIF delay IS NOT NULL THEN
        RETURN clock_timestamp() + queue_jobs_bridge.check_interval(delay, 'delay');
    ELSIF run_at IS NULL AND now_if_neither THEN
        RETURN clock_timestamp();
    END IF;
    RETURN run_at;
END
$$;
COMMENT ON FUNCTION queue_jobs_bridge.due_at(timestamptz, interval, boolean) IS 'When a job with these options is due; NULL: as soon as it has arrived.';

CREATE FUNCTION queue_jobs_bridge.current_context() RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS
$$ SELECT NULLIF(current_setting('queue_jobs.context', true), '')::jsonb $$;
COMMENT ON FUNCTION queue_jobs_bridge.current_context() IS 'The setting queue_jobs.context; NULL if it is not set.';

CREATE FUNCTION queue_jobs.enqueue(
    worker text,
    args jsonb DEFAULT '{}',
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    queue text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    context jsonb DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    jitter interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    if_dead text DEFAULT 'hold',
    max_retries integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    missing text := CASE WHEN worker IS NULL THEN 'worker' WHEN args IS NULL THEN 'args' WHEN priority IS NULL THEN 'priority' WHEN if_dead IS NULL THEN 'if_dead' END;
    new_id bigint;
BEGIN
    IF missing IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22004', missing || ' must not be null', 'It is a parameter of queue_jobs.enqueue().',
                                         CASE missing WHEN 'worker' THEN 'Give a value: the parameter has no default.' ELSE 'Leave the parameter out for its default.' END);
    ELSIF if_waiting = 'debounce' AND delay IS NULL THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'if_waiting => "debounce" needs a delay', 'delay is NULL; the job is due so long after the latest call.',
                                         'Give a delay, or if_waiting => "replace".');
    END IF;
    INSERT INTO queue_jobs_bridge.outbox (worker, args, run_at, priority, queue, dedup_key, context, expires_in, jitter, batch, after, if_dead,
                                          max_retries, timeout, keep_completed, tags, if_waiting, max_delay)
    VALUES (worker, args, queue_jobs_bridge.due_at(run_at, delay, expires_in IS NOT NULL), priority, queue, dedup_key, COALESCE(context, queue_jobs_bridge.current_context()),
            expires_in, jitter, batch, after, if_dead, max_retries, timeout, keep_completed, tags, if_waiting, max_delay)
    RETURNING id INTO new_id;
    RETURN new_id;
END
$$;
COMMENT ON FUNCTION queue_jobs.enqueue IS
'Puts a job into the outbox, within the caller''s transaction; it is enqueued on the queue server, for a role of the caller''s name, when that has committed. Returns the id of the row in the outbox, not that of the job: queue_jobs_bridge.outbox on the queue server has both. after: ids that this function has returned. batch: of new_batch() on the queue server. run_at, delay and expires_in count from now by this server''s clock. The other options are as in queue_jobs. Whether the worker exists, and takes these args, is checked on arrival: a row that is refused there stands in the view queue_jobs_bridge.rejected. Errors: 22004 a value is null, 22023 out of range, 22P02 queue_jobs.context is not JSON, 54000 args, context or after too large.';

CREATE FUNCTION queue_jobs.try_enqueue(
    worker text,
    args jsonb DEFAULT '{}',
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    queue text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    context jsonb DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    jitter interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    if_dead text DEFAULT 'hold',
    max_retries integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL)
RETURNS bigint LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT queue_jobs.enqueue(worker, args, run_at, delay, priority, queue, dedup_key, context, expires_in, jitter, batch, after, if_dead,
                            max_retries, timeout, keep_completed, tags, if_waiting, max_delay) $$;
COMMENT ON FUNCTION queue_jobs.try_enqueue IS
'The same as enqueue(), which it calls. It never returns NULL: whether the job is a duplicate is only known on the queue server.';

CREATE FUNCTION queue_jobs.enqueue_many(
    worker text,
    args jsonb[],
    contexts jsonb[] DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    batch_size integer DEFAULT NULL,
    batch_interval interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    run_ats timestamptz[] DEFAULT NULL,
    priorities integer[] DEFAULT NULL,
    dedup_keys text[] DEFAULT NULL,
    queue text DEFAULT NULL,
    jitter interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    max_retries integer DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1000 SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    missing text := CASE WHEN worker IS NULL THEN 'worker' WHEN args IS NULL THEN 'args' WHEN priority IS NULL THEN 'priority' END;
    first_due timestamptz := queue_jobs_bridge.due_at(run_at, delay, batch_interval IS NOT NULL OR expires_in IS NOT NULL);
    session_context jsonb;
    uneven record;
BEGIN
    SELECT a.name, a.count, a.hint INTO uneven
      FROM (VALUES (1, 'contexts', cardinality(contexts), 'Use NULL for a job without context.'),
                   (2, 'run_ats', cardinality(run_ats), 'Use NULL for a job that is due as run_at or delay say.'),
                   (3, 'priorities', cardinality(priorities), 'Use NULL for a job that has the parameter priority.'),
                   (4, 'dedup_keys', cardinality(dedup_keys), 'Use NULL for a job without dedup_key.')) a (n, name, count, hint)
     WHERE a.count <> cardinality(args)
     ORDER BY a.n
     LIMIT 1;
    IF missing IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22004', missing || ' must not be null', 'It is a parameter of queue_jobs.enqueue_many().', 'Give a value.');
    ELSIF array_position(args, NULL) IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22004', 'args must not be null', format('Element %s of the array is null.', array_position(args, NULL)),
                                         'Use ''{}'' for a job without args.');
    ELSIF uneven.name IS NOT NULL THEN
        PERFORM queue_jobs_bridge.refuse('22023', format('%s must have one element for each of args', uneven.name),
                                         format('There are %s args and %s %s.', cardinality(args), uneven.count, uneven.name), uneven.hint);
    ELSIF (batch_size IS NULL) <> (batch_interval IS NULL) THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'batch_size and batch_interval go together',
                                         format('batch_size is %s, and batch_interval is %s.', COALESCE(batch_size::text, 'NULL'), COALESCE(batch_interval::text, 'NULL')),
                                         'Give both, or none.');
    ELSIF batch_size <= 0 THEN
        PERFORM queue_jobs_bridge.refuse('22023', 'batch_size must be positive', format('The value is %s.', batch_size), 'Give the number of jobs that are due at once.');
    END IF;
    PERFORM queue_jobs_bridge.check_interval(batch_interval, 'batch_interval');
    PERFORM queue_jobs_bridge.due_at(r.run_at, NULL, false) FROM unnest(run_ats) AS r (run_at);
    IF contexts IS NULL THEN
        session_context := queue_jobs_bridge.current_context();
    END IF;
    RETURN QUERY
    INSERT INTO queue_jobs_bridge.outbox (worker, args, run_at, priority, queue, dedup_key, context, expires_in, jitter, batch, tags, max_retries)
    SELECT worker, e.args, COALESCE(e.run_at, CASE WHEN e.n > batch_size THEN first_due + (e.n - 1) / batch_size * batch_interval ELSE first_due END),
           COALESCE(e.priority, priority), queue, e.dedup_key, COALESCE(e.context, session_context), expires_in, jitter, batch, tags, max_retries
      FROM ROWS FROM (unnest(args), unnest(contexts), unnest(run_ats), unnest(priorities), unnest(dedup_keys))
           WITH ORDINALITY AS e (args, context, run_at, priority, dedup_key, n)
     ORDER BY e.n
    RETURNING id;
END
$$;
COMMENT ON FUNCTION queue_jobs.enqueue_many IS
'Puts a job for each element of args into the outbox, in that order, and returns the ids of their rows there. Each is enqueued, or refused, by itself on the queue server. The rest as enqueue() here, and enqueue_many() of queue_jobs.';

-- ---- rights: as the extension's, none but for those that are granted ----

REVOKE ALL ON SCHEMA queue_jobs, queue_jobs_bridge FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA queue_jobs_bridge FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA queue_jobs_bridge FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs, queue_jobs_bridge FROM PUBLIC;

-- queue_jobs_enqueue is for roles that enqueue, queue_jobs_bridge for the role by which the queue server
-- connects.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['queue_jobs_enqueue', 'queue_jobs_bridge'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = role);
        BEGIN
            EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = pg_catalog.format('cannot create role %I', role),
                    DETAIL = pg_catalog.format('Role %I has no CREATEROLE.', current_user), HINT = 'Have it created with NOLOGIN, and run this file again.';
        END;
    END LOOP;
END
$$;
GRANT USAGE ON SCHEMA queue_jobs, queue_jobs_bridge TO queue_jobs_enqueue;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs, queue_jobs_bridge TO queue_jobs_enqueue;
GRANT INSERT (worker, args, run_at, priority, queue, dedup_key, context, expires_in, jitter, batch, after, if_dead,
              max_retries, timeout, keep_completed, tags, if_waiting, max_delay), SELECT (id)
    ON queue_jobs_bridge.outbox TO queue_jobs_enqueue;
GRANT USAGE ON SCHEMA queue_jobs_bridge TO queue_jobs_bridge;
GRANT SELECT, DELETE ON queue_jobs_bridge.outbox TO queue_jobs_bridge;

COMMIT;
