INSERT INTO textbook.job (args) VALUES ('{"n": 1}');
WITH claimed AS (
    UPDATE textbook.job SET state = 'running', started_at = now(), attempt = attempt + 1
    WHERE id = ANY (ARRAY(SELECT id FROM textbook.job WHERE state = 'waiting' AND run_at <= now()
                          ORDER BY run_at, id LIMIT :batch FOR UPDATE SKIP LOCKED))
    RETURNING id, args
)
SELECT count(*) AS n, coalesce(array_agg(id), '{}') AS ids, array_agg(args) AS args FROM claimed \gset
\if :n
DELETE FROM textbook.job WHERE id = ANY (:ids::bigint[]);
\endif
