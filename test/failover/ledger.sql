-- The workers of the load, and the ledger: ordinary tables, which are replicated with the queue. A handler writes there in the
-- transaction of its run. What was asked for, and known to be committed, is in the memory of the test alone (run.py).
CREATE EXTENSION queue_jobs;

CREATE TABLE done (n bigint, worker text, job bigint, at timestamptz DEFAULT clock_timestamp());
CREATE INDEX ON done (worker, n);
CREATE TABLE change (n bigint PRIMARY KEY, worker text, key int, seen_by bigint);
CREATE INDEX ON change (worker, key) WHERE seen_by IS NULL;
CREATE TABLE tick (job bigint, run_at timestamptz, at timestamptz DEFAULT clock_timestamp());

CREATE FUNCTION soon(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '100 ms' $$;
CREATE FUNCTION work(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
BEGIN
	IF job.worker = 'fails' AND random() < 0.4 THEN
		RAISE EXCEPTION 'not yet';
	END IF;
	PERFORM pg_sleep(random() * 0.02);
	INSERT INTO done VALUES (n, job.worker, job.id);
END
$$;
CREATE PROCEDURE proceed(n bigint) LANGUAGE plpgsql AS $$
DECLARE
	job queue_jobs.job := queue_jobs.current_job();
BEGIN
	COMMIT;
	PERFORM pg_sleep(random() * 0.02);
	INSERT INTO done VALUES (n, job.worker, job.id);
	COMMIT;
END
$$;
-- A run marks the changes of its key that it sees; one that no run sees was lost to deduplication.
CREATE FUNCTION refresh(key int) RETURNS void LANGUAGE sql AS $$
	UPDATE change c SET seen_by = job.id FROM queue_jobs.current_job() AS job WHERE c.worker = job.worker AND c.key = refresh.key AND c.seen_by IS NULL
$$;
CREATE FUNCTION ticks() RETURNS void LANGUAGE sql AS $$ INSERT INTO tick SELECT id, run_at FROM queue_jobs.current_job() $$;
-- An effect outside of the database: a file, whose name says which server, job and when.
CREATE FUNCTION outside(n bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT 1) TO %L', current_setting('test.effects') || format('/%s.%s.%s', current_setting('port'), n,
		extract(epoch FROM clock_timestamp())));
	PERFORM pg_sleep(0.1);
	INSERT INTO done VALUES (n, 'outside', 0);
END
$$;

SELECT queue_jobs.define_worker(name, handler, max_retries => 10000, retry_backoff => 'public.soon')
  FROM (VALUES ('function', 'public.work'), ('fails', 'public.work'), ('procedure', 'public.proceed'), ('member', 'public.work'),
	('batch_end', 'public.work'), ('claimed', NULL), ('ticks', 'public.ticks'), ('outside', 'public.outside')) AS w (name, handler);
SELECT queue_jobs.define_worker('executing', 'public.refresh', idempotent => true, max_retries => 10000, retry_backoff => 'public.soon'),
	queue_jobs.define_worker('executed', 'public.refresh', idempotent => true, deduplicate => 'until_executed',
		if_deduplicated => 'reschedule_once', max_retries => 10000, retry_backoff => 'public.soon');
SELECT queue_jobs.schedule('ticks', '* * * * * *', 'ticks');

-- Work of each kind, in the caller's transaction. n is the caller's, and in no other call.
CREATE FUNCTION ask(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	batch bigint := queue_jobs.new_batch(on_success => 'batch_end', args => jsonb_build_object('n', n));
BEGIN
	PERFORM queue_jobs.enqueue(worker, jsonb_build_object('n', n)) FROM unnest(ARRAY['function', 'fails', 'procedure', 'claimed']) AS worker;
	PERFORM queue_jobs.enqueue('member', jsonb_build_object('n', 2 * n + member), batch => batch) FROM generate_series(0, 1) AS member;
	INSERT INTO change VALUES (2 * n, 'executing', n % 5), (2 * n + 1, 'executed', n % 5);
	PERFORM queue_jobs.enqueue(worker, jsonb_build_object('key', n % 5)) FROM unnest(ARRAY['executing', 'executed']) AS worker;
END
$$;
