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

-- What people write in place of a batch: the last job finds that none is left.
CREATE TABLE bench.pending (jobs int);
INSERT INTO bench.pending VALUES (0);
GRANT ALL ON bench.pending TO app;
CREATE FUNCTION bench.count_down(args jsonb) RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
    pending int;
BEGIN
    UPDATE bench.pending SET jobs = jobs - 1 RETURNING jobs INTO pending;
    IF pending = 0 THEN PERFORM queue_jobs.enqueue('called'); END IF;
END
$$;

-- A thousand slices of a long job, and as many jobs of which each enqueues the next.
CREATE FUNCTION bench.go_on(args jsonb, cursor jsonb DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN IF coalesce(cursor::int, 1) < 1000 THEN PERFORM queue_jobs.continue_at(to_jsonb(coalesce(cursor::int, 1) + 1)); END IF; END $$;
CREATE FUNCTION bench.enqueue_next(n int) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN IF n > 1 THEN PERFORM queue_jobs.enqueue('linked', jsonb_build_object('n', n - 1)); END IF; END $$;

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
       queue_jobs.define_worker('counted', 'bench.count_down'),
       queue_jobs.define_worker('called', 'bench.no_op'),
       queue_jobs.define_worker('sliced', 'bench.go_on'),
       queue_jobs.define_worker('linked', 'bench.enqueue_next'),
       queue_jobs.define_worker('one_key', 'bench.count_run', idempotent => true),
       queue_jobs.define_worker('unique', idempotent => true),
       queue_jobs.define_worker('claimed_kept'),
       queue_jobs.define_worker('claimed_gone', keep_completed => '0');
