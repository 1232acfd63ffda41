-- \d+ and \df+ tell what everything is for: relations, functions, and the columns of views (src/sql/45_comments.sql).
SELECT c.oid::regclass AS without_comment
  FROM pg_class c
 WHERE c.relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'S') AND obj_description(c.oid, 'pg_class') IS NULL
 ORDER BY 1::text COLLATE "C";
SELECT p.oid::regprocedure AS without_comment
  FROM pg_proc p
 WHERE p.pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND obj_description(p.oid, 'pg_proc') IS NULL
 ORDER BY 1::text COLLATE "C";
SELECT c.oid::regclass AS view, a.attname AS without_comment
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND c.relkind = 'v' AND col_description(c.oid, a.attnum) IS NULL
 ORDER BY c.relname COLLATE "C", a.attnum;
