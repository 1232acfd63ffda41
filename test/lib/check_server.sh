#!/usr/bin/env bash
# Before `make installcheck`: fails if the tests cannot pass, and says in one line what they need. Otherwise it prints nothing.
#
#   check_server.sh BINDIR MAJOR VERSION TAP   where psql is; PostgreSQL's major version; that of the extension; "yes" if there are TAP tests
#
# The server is the one to which psql connects: PGHOST, PGPORT and PGUSER name it, as for the tests themselves.
set -uo pipefail

bindir=$1 major=$2 version=$3 tap=$4
without="give TAP_TESTS= to run the regression and isolation tests only"

refuse() { echo "make installcheck: $1" >&2; exit 1; }

[ -w . ] || refuse "user $(id -un) may not write to $PWD, where the tests leave their results"
if [ "$tap" = yes ]; then
    [ "$(id -u)" -ne 0 ] || refuse "the TAP tests start servers of their own, which root may not: become another user, or $without"
    perl -MIPC::Run -e 1 2>/dev/null || refuse "the TAP tests need Perl's IPC::Run: install it (libipc-run-perl), or $without"
fi

missing=$("$bindir/psql" -XAtq -v ON_ERROR_STOP=1 -v version="$version" -v major="$major" -d postgres 2>&1 <<'SQL'
SELECT rolsuper AS superuser FROM pg_roles WHERE rolname = current_user \gset
\if :superuser
\else
    SELECT format('role %I is no superuser: make it one (createuser -s), or name another by PGUSER', current_user);
    \quit
\endif
SELECT current_setting('server_version_num')::int / 10000 AS server,
       coalesce(current_setting('queue_jobs.max_executors', true)::int, 0) AS executors,
       coalesce(current_setting('queue_jobs.max_executors_per_database', true)::int, 0) AS executors_per_database,
       coalesce(current_setting('queue_jobs.pools', true), '') AS pools,
       coalesce(current_setting('queue_jobs.run', true), 'on') AS run,
       (SELECT setting || '/queue_jobs.so' FROM pg_config WHERE name = 'PKGLIBDIR') AS library \gset
SELECT CASE
    WHEN :server <> :major
    THEN format('the server is PostgreSQL %s, and PG_CONFIG is that of %s', :server, :major)
    WHEN NOT EXISTS (SELECT FROM pg_available_extension_versions WHERE name = 'queue_jobs' AND version = :'version')
    THEN format('the server has no queue_jobs %s: make install first, with the server''s PG_CONFIG', :'version')
    WHEN current_setting('shared_preload_libraries') !~ '\mqueue_jobs\M'
    THEN 'shared_preload_libraries lacks queue_jobs: add it in the server''s postgresql.conf, and restart the server'
    WHEN (pg_stat_file(:'library', true)).modification > pg_postmaster_start_time()
    THEN 'the server was started before queue_jobs was installed: restart it'
    WHEN current_setting('max_worker_processes')::int < 8
    THEN format('max_worker_processes is %s, and the tests need 8, the default', current_setting('max_worker_processes'))
    WHEN least(:executors, :executors_per_database) < 4 OR :'pools' <> '' OR :'run' = 'off'
    THEN 'the tests need queue_jobs.max_executors and queue_jobs.max_executors_per_database of 4, the default, or more, no queue_jobs.pools, and queue_jobs.run on'
END;
SQL
) || refuse "${missing%%$'\n'*} (PGHOST, PGPORT and PGUSER name the server, and a superuser)"
[ -z "$missing" ] || refuse "$missing"
