-- Workers for all workloads. "kept" in a name: finished jobs are kept for 24 hours, the default; "gone": not at all.
CREATE SCHEMA bench;
GRANT USAGE ON SCHEMA bench TO app;
CREATE SEQUENCE bench.runs;        -- counts runs without a row that would grow, and can be read at no cost
GRANT ALL ON SEQUENCE bench.runs TO app;

CREATE FUNCTION bench.no_op(args jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION bench.update_row(id int) RETURNS void LANGUAGE sql AS
$$ UPDATE raw.counter SET n = n + 1 WHERE id = $1 $$;
CREATE FUNCTION bench.update_row_plpgsql(id int) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN UPDATE raw.counter c SET n = c.n + 1 WHERE c.id = $1; END $$;
CREATE FUNCTION bench.count_run(args jsonb) RETURNS void LANGUAGE sql AS $$ SELECT nextval('bench.runs') $$;

-- A run enqueues its successor, in its own queue: as many jobs are live at the end as at the beginning.
CREATE FUNCTION bench.chain(q text) RETURNS void LANGUAGE sql AS
$$ SELECT nextval('bench.runs');
   SELECT queue_jobs.enqueue('chain', jsonb_build_object('q', q), queue => q) $$;

GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
GRANT SELECT ON queue_jobs.job, queue_jobs.worker, queue_jobs.queue TO app;

SET ROLE app;
SELECT queue_jobs.define_worker('warm', 'bench.no_op', keep_completed => '0'),
       queue_jobs.define_worker('noop_kept', 'bench.no_op'),
       queue_jobs.define_worker('noop_gone', 'bench.no_op', keep_completed => '0'),
       queue_jobs.define_worker('update_kept', 'bench.update_row'),
       queue_jobs.define_worker('update_plpgsql', 'bench.update_row_plpgsql'),
       queue_jobs.define_worker('chain', 'bench.chain'),
       queue_jobs.define_worker('one_key', 'bench.count_run', idempotent => true),
       queue_jobs.define_worker('unique', idempotent => true),
       queue_jobs.define_worker('claimed_kept'),
       queue_jobs.define_worker('claimed_gone', keep_completed => '0');
