-- Each statement deletes what the one before has claimed, and claims. Claims are committed before the work begins. (Work outside of the database.)
WITH done AS (DELETE FROM textbook.job WHERE id = ANY (:ids::bigint[])), claimed AS (
    UPDATE textbook.job SET state = 'running', started_at = now(), attempt = attempt + 1
    WHERE id = ANY (ARRAY(SELECT id FROM textbook.job WHERE state = 'waiting' AND run_at <= now()
                          ORDER BY run_at, id LIMIT :batch FOR UPDATE SKIP LOCKED))
    RETURNING id, args
)
SELECT coalesce(array_agg(id), '{}') AS ids, array_agg(args) AS args FROM claimed \gset
