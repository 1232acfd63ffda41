-- All that the extension queue_jobs consists of in this database, a line each: two databases print the same if and only if it is the same in both,
-- whether it was created or updated to its version.
WITH member AS (
    SELECT d.classid, d.objid, i.identity
      FROM pg_depend d
      JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'queue_jobs' AND d.deptype = 'e',
           pg_identify_object(d.classid, d.objid, 0) i
), relation AS (
    SELECT c.*, m.identity FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
), line (what, content) AS (
    SELECT identity || ' comment', obj_description(objid, classid::regclass::name) FROM member
    UNION ALL
    SELECT identity || ' function', concat_ws(' ', pg_get_functiondef(p.oid), prorows, procost)
      FROM member JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
    UNION ALL
    SELECT identity || ' rights', concat_ws(' ', CASE grantee WHEN 0 THEN 'PUBLIC' WHEN owner THEN 'owner' ELSE grantee::regrole::text END, privilege_type, is_grantable)
      FROM (SELECT identity, proowner AS owner, coalesce(proacl, acldefault('f', proowner)) AS acl FROM member JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
            UNION ALL
            SELECT identity, relowner, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)) FROM relation
            UNION ALL
            SELECT identity, nspowner, coalesce(nspacl, acldefault('n', nspowner)) FROM member JOIN pg_namespace n ON classid = 'pg_namespace'::regclass AND n.oid = objid) a,
           aclexplode(acl)
    UNION ALL
    SELECT identity || ' relation', concat_ws(' ', relkind, relpersistence, relreplident, relrowsecurity, reloptions::text, pg_get_expr(relpartbound, oid), pg_get_partkeydef(oid)) FROM relation
    UNION ALL
    SELECT identity || ' column ' || attnum,
           concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attstorage, attcollation::regcollation, attisdropped,
                     pg_get_expr(adbin, adrelid), col_description(attrelid, attnum))
      FROM relation r JOIN pg_attribute ON attrelid = r.oid AND attnum > 0 LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    UNION ALL
    SELECT identity || ' view', pg_get_viewdef(oid) FROM relation WHERE relkind = 'v'
    UNION ALL
    SELECT identity || ' index', pg_get_indexdef(indexrelid) FROM relation r JOIN pg_index ON indrelid = r.oid
    UNION ALL
    SELECT identity || ' constraint ' || conname, pg_get_constraintdef(c.oid) FROM relation r JOIN pg_constraint c ON conrelid = r.oid
    UNION ALL
    SELECT identity || ' trigger', concat_ws(' ', pg_get_triggerdef(t.oid), tgenabled) FROM relation r JOIN pg_trigger t ON tgrelid = r.oid WHERE NOT tgisinternal
    UNION ALL
    SELECT identity || ' sequence', concat_ws(' ', format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
      FROM relation r JOIN pg_sequence ON seqrelid = r.oid
    UNION ALL
    SELECT 'dumped ' || c.oid::regclass, condition FROM pg_extension, unnest(extconfig, extcondition) AS t (oid, condition), pg_class c
     WHERE extname = 'queue_jobs' AND c.oid = t.oid
    UNION ALL
    SELECT 'version', extversion FROM pg_extension WHERE extname = 'queue_jobs'
)
SELECT what || ': ' || coalesce(content, '') FROM line ORDER BY (what || ': ' || coalesce(content, '')) COLLATE "C";
