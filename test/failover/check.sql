-- What is wrong with the ledger, a row each. The table acknowledged has the numbers of what was asked for and known to be committed.
WITH function (worker, n) AS (
	SELECT worker, n FROM acknowledged, unnest(ARRAY['function', 'fails', 'procedure', 'claimed', 'batch_end']) AS worker
	UNION ALL SELECT 'member', 2 * n + member FROM acknowledged, generate_series(0, 1) AS member)
SELECT 'lost', f.worker, f.n FROM function f WHERE NOT EXISTS (SELECT FROM done d WHERE d.worker = f.worker AND d.n = f.n)
UNION ALL SELECT 'lost', worker, a.n FROM acknowledged a, unnest(ARRAY[2 * a.n, 2 * a.n + 1], ARRAY['executing', 'executed']) AS c (id, worker)
	WHERE NOT EXISTS (SELECT FROM change WHERE change.n = id)
UNION ALL SELECT 'not seen by a run', worker, n FROM change WHERE seen_by IS NULL
UNION ALL SELECT 'done twice', worker, n FROM done WHERE worker <> 'procedure' GROUP BY 2, 3 HAVING count(*) > 1
UNION ALL SELECT 'done, but nothing stands for it', worker, n FROM done d WHERE worker IN ('function', 'fails', 'claimed', 'procedure', 'batch_end')
	AND NOT EXISTS (SELECT FROM change c WHERE c.n = 2 * d.n)
UNION ALL SELECT 'dead', worker, id FROM queue_jobs.job WHERE state = 'dead'
UNION ALL SELECT 'tick fired twice', 'ticks', extract(epoch FROM run_at) FROM tick GROUP BY run_at HAVING count(*) > 1
LIMIT 20;
