-- Values of any size: what no session could read is refused where it comes in, and nothing keeps a job from its end.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE told (n int GENERATED ALWAYS AS IDENTITY, worker text, args jsonb);
CREATE FUNCTION hear_of(args jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.told (worker, args) SELECT worker, $1 FROM queue_jobs.current_job() $$;
CREATE FUNCTION always_fails(args jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'never'; END $$;
CREATE FUNCTION whatever(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    EXECUTE args ->> 'sql' INTO result;
    RETURN result;
END $$;
SELECT queue_jobs.define_worker('told', 'app.hear_of'), queue_jobs.define_worker('never', 'app.always_fails', max_retries => 0, on_dead => 'told'),
       queue_jobs.define_worker('whatever', 'app.whatever', max_retries => 0), queue_jobs.define_worker('by hand', on_dead => 'told', on_expired => 'told');

-- Batches and workflows take no args that enqueue() refuses. 16 bytes of jsonb may be a number of 131,072 digits: 1,100 of these are 144 MB of text.
CREATE TABLE value (kind text PRIMARY KEY, json jsonb);
INSERT INTO value VALUES ('large', jsonb_build_object('a', incompressible(6000000))), ('long', (SELECT jsonb_build_object('a', jsonb_agg(1e131071)) FROM generate_series(1, 1100)));
SELECT last_value AS last_batch FROM queue_jobs.batch_id \gset
SELECT kind, pg_column_size(json) > 100000 AS is_large FROM value ORDER BY kind;
CREATE FUNCTION errors_of(statement text) RETURNS SETOF text LANGUAGE sql AS
$$ SELECT helper.error_of(format(statement, format('(SELECT json FROM app.value WHERE kind = %L)', kind))) FROM app.value WHERE statement <> '' ORDER BY kind $$;
SELECT errors_of($$SELECT queue_jobs.enqueue('by hand', %s)$$);
SELECT errors_of($$SELECT queue_jobs.enqueue_many('by hand', ARRAY['{}', %s])$$);
SELECT errors_of($$SELECT queue_jobs.new_batch(args => %s)$$);
SELECT errors_of($$SELECT queue_jobs.enqueue_workflow('w', '[]', args => %s)$$);
-- Those of a batch are read at each look: their size counts as it is.
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('by hand', jsonb_build_object('a', repeat('x', 6000000)), delay => '1 day')$$) AS job, sqlstate_of($$SELECT queue_jobs.new_batch(args => jsonb_build_object('a', repeat('x', 6000000)))$$) AS batch;
SELECT errors_of($$SELECT queue_jobs.enqueue_workflow('w', jsonb_build_array(jsonb_build_object('step', 's', 'worker', 'by hand', 'args', %s)))$$);
SELECT errors_of($$SELECT queue_jobs.schedule('s', '@daily', 'by hand', %s)$$);
SELECT queue_jobs.enqueue('by hand') AS job \gset
SELECT errors_of(format($$SELECT queue_jobs.change_job(%s, args => %%s)$$, :job));
SELECT count(*) FROM queue_jobs.job WHERE worker = 'by hand' AND state IN ('available', 'scheduled');
SELECT last_value = :last_batch AS no_batch FROM queue_jobs.batch_id;
-- All else that is kept is bounded by what can be read of it.
DELETE FROM value WHERE kind = 'large';
SELECT errors_of(format($$SELECT queue_jobs.signal(%s, 's', %%s)$$, :job));
SELECT attempt FROM queue_jobs.claim('me', '{by hand}') \gset
SELECT errors_of(format($$SELECT queue_jobs.save_step(%s, %s, 's', %%s)$$, :job, :attempt));
SELECT errors_of(format($$SELECT queue_jobs.continue_at(%s, %s, %%s)$$, :job, :attempt));
SELECT errors_of(format($$SELECT queue_jobs.complete(%s, %s, %%s)$$, :job, :attempt));
SELECT errors_of(format($$SELECT queue_jobs.complete_many('{%s}', '{%s}', ARRAY[%%s])$$, :job, :attempt));
SELECT errors_of($$SELECT queue_jobs.run_once('t', 'SELECT json FROM app.value', %s)$$);
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT count(queue_jobs.enqueue('whatever', jsonb_build_object('sql', s))) AS jobs
  FROM unnest(ARRAY['SELECT json FROM app.value', $$SELECT queue_jobs.step('s', 'SELECT json FROM app.value')$$, 'SELECT to_jsonb(queue_jobs.continue_at(json)::text) FROM app.value']) s;
CALL wait_for_worker('whatever');
SELECT state, errors -> 0 ->> 'sqlstate' AS sqlstate, last_error FROM queue_jobs.job WHERE worker = 'whatever' ORDER BY id;
-- A key is a name.
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('by hand', dedup_key => repeat('k', 8192))$$) AS just_not, error_of($$SELECT queue_jobs.enqueue('by hand', dedup_key => repeat('k', 8193))$$) AS just;
-- Large args are written again as they were read; other ones are not.
SELECT queue_jobs.enqueue('by hand', jsonb_build_object('a', repeat('x', 1000000)), delay => '1 day', dedup_key => 'large') AS job \gset
CREATE FUNCTION args_of(which bigint) RETURNS text LANGUAGE sql AS $$ SELECT state || ' ' || length(args ->> 'a') || ' ' || left(args ->> 'a', 1) FROM queue_jobs.job WHERE id = which $$;
SELECT queue_jobs.change_job(:job, priority => 5), args_of(:job);
SELECT queue_jobs.discard(:job), args_of(:job);
SELECT queue_jobs.retry(:job), args_of(:job);
SELECT queue_jobs.change_job(:job, args => jsonb_build_object('a', repeat('y', 2000000))), args_of(:job);
SELECT length(args ->> 'a') AS length, queue_jobs.snooze(id, attempt, '1 day'), args_of(id) AS claimed FROM queue_jobs.claim('me', '{by hand}', 10) WHERE id = :job;
SELECT args_of(:job);
SELECT queue_jobs.cancel(:job), args_of(:job);
-- The scheduler reads each cron expression again and again.
SELECT left(e, 80) AS error FROM error_of($$SELECT queue_jobs.schedule('s', repeat('0,', 500) || '0 * * * *', 'by hand')$$) e;
-- An error about a long text is a short one.
SELECT length(string_agg(e, '')) < 1000 AS short FROM error_of($$SELECT queue_jobs.enqueue(repeat('ü', 1000000))$$) e;
SELECT length(string_agg(e, '')) < 1000 AS short FROM error_of($$SELECT queue_jobs.enqueue('by hand', queue => repeat('ü', 1000000))$$) e;
CALL clean_up();
DELETE FROM told;

-- Args are nested no deeper than each process can read. A job of 'keyed' would keep executors from all others, and any session from the view job.
CREATE FUNCTION nested(levels int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('a', (repeat('[', levels - 1) || repeat(']', levels - 1))::jsonb) $$;
SELECT queue_jobs.define_worker('told', 'app.hear_of'), queue_jobs.define_worker('keyed', concurrency_key => 'a', concurrency_limit => 1), queue_jobs.define_worker('fails', 'app.always_fails', max_retries => 0, on_dead => 'told', concurrency_key => 'a', concurrency_limit => 1);
SELECT e AS error FROM error_of($$SELECT queue_jobs.enqueue('keyed', app.nested(5001))$$) e;
SELECT e AS error FROM error_of($$SELECT queue_jobs.new_batch('deep', on_ended => 'told', args => app.nested(5001))$$) e;
SELECT queue_jobs.enqueue('keyed', app.nested(5000)) AS keyed, queue_jobs.enqueue('fails', app.nested(5000)) AS fails \gset
CALL wait_for($$SELECT count(*) = 1 FROM app.told$$);
SELECT count(*) FROM queue_jobs.claim('me', '{keyed}');
SELECT count(args::text) FROM queue_jobs.job WHERE id IN (:keyed, :fails);
CALL clean_up();
DELETE FROM told;

-- Args so large that it would take seconds to copy and compress them for the jobs of on_dead and on_expired: the job ends all the same, and the other is told that they
-- were left out. The scheduler would keep other roles' jobs waiting.
CREATE FUNCTION huge() RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('a', repeat('x', 6000000)) $$;
SELECT queue_jobs.define_worker('told', 'app.hear_of'), queue_jobs.define_worker('never', 'app.always_fails', max_retries => 0, on_dead => 'told'), queue_jobs.define_worker('by hand', on_dead => 'told', on_expired => 'told');
SELECT queue_jobs.enqueue('never', app.huge()) AS dies, queue_jobs.enqueue('by hand', app.huge()) AS discarded, queue_jobs.enqueue('by hand', app.huge(), run_at => '2001-01-01', expires_in => '1 s') AS expires \gset
SELECT queue_jobs.enqueue('by hand', jsonb_build_object('a', repeat('x', 10000))) AS large \gset
SELECT queue_jobs.discard(:discarded), queue_jobs.discard(:large);
SELECT count(*) FROM queue_jobs.claim('me', '{by hand}');
CALL wait_for($$SELECT count(*) = 4 FROM app.told$$);
SELECT j.worker, j.state, t.args ->> 'worker' AS of, left(t.args ->> 'args', 10) AS args, t.args ->> 'error' AS error, t.args ->> 'args_left_out' AS left_out
  FROM told t JOIN queue_jobs.job j ON j.id = (t.args ->> 'job')::bigint ORDER BY j.id;
CALL clean_up();
DROP TABLE told, value;
RESET ROLE;
