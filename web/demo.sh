#!/usr/bin/env bash
# make web-demo: the dashboard on a throwaway server, with the shop of the demo and jobs of every other
# state in it. Within the sandbox; ends with Ctrl-C.
#
#   LISTEN   where the dashboard listens; default: 127.0.0.1:8480
set -euo pipefail

data=$PWD/demo_data
sql() { psql -X -q -v ON_ERROR_STOP=1 -h "$PWD" -U postgres -d shop "$@"; }

make -s -C web
initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
trap 'pg_ctl -s -D "$data" -m fast stop || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
pg_ctl -s -w -D "$data" -l server.log \
    -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD' -c max_worker_processes=16" start >/dev/null || { cat server.log; exit 1; }
createdb -h "$PWD" -U postgres shop
sql -f test/demo/shop.sql
sql -c 'CALL app.place_orders(500)'
sql -f web/demo.sql

PGHOST=$PWD PGUSER=postgres PGDATABASE=shop web/queue_jobs_web --listen="${LISTEN:-127.0.0.1:8480}"
