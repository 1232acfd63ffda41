-- docs/reference/tables.md, as the catalogs have it; psql -XqAt -f test/lib/tables.sql >docs/reference/tables.md writes it.
SET search_path = pg_catalog;
WITH part AS (
    -- The partitions of finished jobs are all alike.
    SELECT c.oid, c.relname COLLATE "C" AS name, c.relkind AS kind,
           CASE WHEN c.relname ~ '^finished_job_' THEN 'finished_job_*' ELSE c.relname END COLLATE "C" AS heading
      FROM pg_class c
     WHERE c.relnamespace = 'queue_jobs'::regnamespace AND c.relkind IN ('r', 'p', 'S')
), line (kind, heading, n, text) AS (
    SELECT DISTINCT ON (kind, heading) kind = 'S', heading, 1,
           CASE WHEN kind = 'S' THEN format('| `%s` | %s |', heading, obj_description(oid, 'pg_class'))
                ELSE format(E'\n### %s\n\n%s', heading, initcap(left(d.text, 1)) || substr(d.text, 2) || '.') END
      FROM part
     CROSS JOIN LATERAL (SELECT CASE heading WHEN 'finished_job_*' THEN 'partitions of `finished_job` by the time until which jobs are kept, with its columns'
                                             ELSE obj_description(oid, 'pg_class') END AS text) d
    UNION ALL
    SELECT false, heading, 2, E'\n| column | type | |\n|---|---|---|'
      FROM part WHERE kind <> 'S' AND oid NOT IN (SELECT inhrelid FROM pg_inherits)
    UNION ALL
    SELECT false, heading, 2 + attnum,
           format('| `%s` | %s | %s |', attname, format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ', not null' ELSE '' END,
                  replace(coalesce(col_description(attrelid, attnum), ''), '|', '\|'))
      FROM part JOIN pg_attribute ON attrelid = part.oid AND attnum > 0 AND NOT attisdropped
     WHERE kind <> 'S' AND part.oid NOT IN (SELECT inhrelid FROM pg_inherits)
    UNION ALL
    SELECT false, heading, 2000,
           E'\n' || string_agg(format('`%s`: %s%s', i.relname, CASE WHEN indisprimary THEN 'primary key, ' WHEN indisunique THEN 'unique, ' ELSE '' END,
                                      regexp_replace(pg_get_indexdef(i.oid), '^.* USING \w+ (.*?)( WITH \([^)]*\))?( WHERE .*)?$', '`\1\3`')), '; ' ORDER BY i.relname COLLATE "C") || '.'
      FROM part JOIN pg_index ON indrelid = part.oid JOIN pg_class i ON i.oid = indexrelid
     WHERE part.oid NOT IN (SELECT inhrelid FROM pg_inherits) OR name IN ('dead_job', 'member_job')
     GROUP BY heading
)
SELECT $$# Tables

What the extension keeps. Programs read the [views](views.md), and write by the [functions](functions.md); these tables are here for those who back them up, copy them, or look
for what takes so much room. Only superusers and the tables' owner may read and write them by SQL, and columns may come and go with each version. Their names stay:
dumps and publications go by them.$$
UNION ALL
(SELECT text FROM line WHERE NOT kind ORDER BY heading, n)
UNION ALL
SELECT E'\n## Sequences\n\n| sequence | |\n|---|---|'
UNION ALL
(SELECT text FROM line WHERE kind ORDER BY heading, n);
