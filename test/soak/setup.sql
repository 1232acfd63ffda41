-- Workers of every kind, each with a light, steady load.
CREATE EXTENSION queue_jobs;
CREATE TABLE account (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO account SELECT generate_series(1, 1000);
CREATE FUNCTION add_one(id int) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN UPDATE account a SET n = a.n + 1 WHERE a.id = $1; END $$;
CREATE FUNCTION at_times_failing(id int) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN IF random() < 0.2 THEN RAISE 'not this time'; END IF; END $$;
CREATE PROCEDURE in_steps(id int) LANGUAGE plpgsql AS
$$ BEGIN UPDATE account a SET n = a.n + 1 WHERE a.id = $1; COMMIT; UPDATE account a SET n = a.n + 1 WHERE a.id = $1; END $$;
CREATE FUNCTION soon(failures int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '1 second' $$;
SELECT queue_jobs.define_worker('kept', 'public.add_one', keep_completed => '5 min'),
       queue_jobs.define_worker('gone', 'public.add_one', keep_completed => '0', urgency => 'high'),
       queue_jobs.define_worker('failing', 'public.at_times_failing', keep_completed => '5 min', retry_backoff => 'public.soon'),
       queue_jobs.define_worker('procedure', 'public.in_steps', keep_completed => '0'),
       queue_jobs.define_worker('once', 'public.add_one', idempotent => true, deduplicate => 'until_executed', keep_completed => '0'),
       queue_jobs.define_worker('limited', 'public.add_one', max_running_jobs => 2, keep_completed => '0'),
       queue_jobs.define_worker('claimed', keep_completed => '5 min');
SELECT queue_jobs.schedule('tick', 'every 5 seconds', worker => 'gone', args => '{"id": 1}');
