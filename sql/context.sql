-- Context: it goes along to the jobs of callbacks, on_dead and on_expired; it is an object of at most 100 kB wherever it comes in.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE told (n int GENERATED ALWAYS AS IDENTITY, worker text, context jsonb);
CREATE FUNCTION tell(args jsonb) RETURNS void LANGUAGE sql AS
$$ INSERT INTO app.told (worker, context) SELECT worker, NULLIF(current_setting('queue_jobs.context'), '')::jsonb FROM queue_jobs.current_job() $$;
CREATE FUNCTION never() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'never'; END $$;
SELECT queue_jobs.define_worker(w, 'app.tell') FROM unnest(ARRAY['told of success', 'told of end', 'told of death', 'told of a job', 'told of expiry']) w;
SELECT queue_jobs.define_worker('never', 'app.never', max_retries => 0, on_dead => 'told of a job'), queue_jobs.define_worker('by hand', on_dead => 'told of a job', on_expired => 'told of expiry'),
       queue_jobs.define_worker('tells', 'app.tell');

-- Callbacks have that of the transaction that made the batch or the workflow, whatever its members have; jobs that tell of another's end have that one's.
BEGIN;
SET LOCAL queue_jobs.context = '{"made by": "a request"}';
SELECT queue_jobs.new_batch('in a context', 'told of success', 'told of end', 'told of death') AS batch \gset
SET LOCAL queue_jobs.context = '{"made by": "another"}';
SELECT queue_jobs.enqueue('never', batch => :batch) > 0 AS own, queue_jobs.enqueue('never', batch => :batch, context => '{"made by": "itself"}') > 0 AS given;
COMMIT;
CALL wait_for($$SELECT count(*) = 4 FROM app.told$$);
SELECT worker, context FROM told ORDER BY worker, context;
DELETE FROM told;
BEGIN;
SET LOCAL queue_jobs.context = '{"made by": "a night"}';
SELECT count(*) FROM queue_jobs.enqueue_workflow('in a context', '[{"step": "one", "worker": "tells"}]', on_success => 'told of success');
COMMIT;
CALL wait_for($$SELECT count(*) = 2 FROM app.told$$);
SELECT worker, context FROM told ORDER BY worker, context;
DELETE FROM told;
-- A job without one has none to give, nor a batch, whoever ends it.
SELECT queue_jobs.new_batch('without', on_ended => 'told of end', open => true) AS batch \gset
SELECT queue_jobs.enqueue('by hand') AS without \gset
SELECT queue_jobs.enqueue('by hand', context => '{"made by": "itself"}') AS within \gset
SELECT queue_jobs.enqueue('by hand', context => '{"made by": "itself"}', run_at => '2001-01-01', expires_in => '1 s') > 0 AS expires;
SET queue_jobs.context = '{"made by": "who steers"}';
SELECT queue_jobs.discard(:without), queue_jobs.discard(:within), queue_jobs.close_batch(:batch), (SELECT count(*) FROM queue_jobs.claim('me', '{by hand}'));
RESET queue_jobs.context;
CALL wait_for($$SELECT count(*) = 4 FROM app.told$$);
SELECT worker, context FROM told ORDER BY worker, context;

-- What is no object is refused, from wherever it comes; so is one of more than 100 kB.
SELECT error_of($$SELECT queue_jobs.enqueue('tells', context => '[1]')$$);
SELECT c AS context, sqlstate_of(format($$SELECT queue_jobs.enqueue('tells', context => %L)$$, c)) AS enqueue, sqlstate_of(format($$SELECT queue_jobs.try_enqueue('tells', context => %L)$$, c)) AS try_enqueue,
       sqlstate_of(format($$SELECT queue_jobs.enqueue_many('tells', '{"{}", "{}"}', contexts => ARRAY['{}', %L]::jsonb[])$$, c)) AS enqueue_many
  FROM unnest(ARRAY['1', '"x"', 'null', '[]', 'true', '{}']) c;
CREATE FUNCTION in_context(context text, statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('queue_jobs.context', context, true);
    RETURN QUERY SELECT helper.error_of(statement);
    PERFORM set_config('queue_jobs.context', '', true);
END $$;
SELECT in_context('"x"', $$SELECT queue_jobs.enqueue('tells')$$);
SELECT what, in_context(context, statement)
  FROM (VALUES (1, 'enqueue', $$SELECT queue_jobs.enqueue('tells')$$), (2, 'enqueue_many', $$SELECT queue_jobs.enqueue_many('tells', '{"{}"}')$$),
               (3, 'new_batch', $$SELECT queue_jobs.new_batch()$$), (4, 'enqueue_workflow', $$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "s", "worker": "tells"}]')$$)) AS s (n, what, statement),
       (VALUES (1, '[]'), (2, jsonb_build_object('long', repeat('x', 102400))::text)) AS c (n, context)
 ORDER BY s.n, c.n;
SELECT error_of($$SELECT queue_jobs.enqueue('tells', context => jsonb_build_object('long', repeat('x', 102400)))$$);
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('tells', context => jsonb_build_object('x', repeat('x', 102391)))$$) AS just_not, sqlstate_of($$SELECT queue_jobs.enqueue('tells', context => jsonb_build_object('x', repeat('x', 102392)))$$) AS just;
-- What counts is its text, which the run has for a setting: 16 bytes of jsonb may be 131,072 of it.
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('tells', context => '{"n": 1e131071}')$$) AS a_number, sqlstate_of($$SELECT queue_jobs.enqueue('tells', context => jsonb_build_object('x', repeat(U&'\0001', 20000)))$$) AS escapes;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'tells' AND context IS NULL;
CALL clean_up();
DROP TABLE told;
RESET ROLE;
