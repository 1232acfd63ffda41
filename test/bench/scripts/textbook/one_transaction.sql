-- Deleted in the transaction that does the work, between this statement and the commit: exactly once.
BEGIN;
WITH claimed AS (
    DELETE FROM textbook.job
    WHERE id = ANY (ARRAY(SELECT id FROM textbook.job WHERE state = 'waiting' AND run_at <= now()
                          ORDER BY run_at, id LIMIT :batch FOR UPDATE SKIP LOCKED))
    RETURNING id, args
)
SELECT count(*) AS n, array_agg(args) AS args FROM claimed;
COMMIT;
