#!/usr/bin/env bash
# make bench-latency, make bench-exactly-once: builds one of the programs here and runs it on a server that is thrown
# away. Within the sandbox, so that it disturbs nobody.
#
#   run.sh PROGRAM [OPTION…]
#
# PostgreSQL's default settings, but shared_preload_libraries = 'queue_jobs' and a Unix socket only; more by
#   SETTINGS   e.g. SETTINGS='queue_jobs.max_executors = 2'  (several: separated by ;)
set -euo pipefail

program=$1
shift
data=$PWD/bench_data

# The private installation has programs and libraries only; libpq's header is where the one that it copies has it.
include=$(pg_config --includedir)
lib=$(pg_config --libdir)
[ -e "$include/libpq-fe.h" ] || { include=/${include#*/pg/} lib=/${lib#*/pg/}; }
cc -O2 -Wall -Wextra -I"$include" -o "$program" "test/bench/$program.c" -L"$lib" -lpq

initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
tr ';' '\n' >>"$data/postgresql.conf" <<<"${SETTINGS:-}"
trap 'pg_ctl -s -D "$data" -m fast stop || true' EXIT
pg_ctl -s -w -D "$data" -l server.log \
    -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null || { cat server.log; exit 1; }
createdb -h "$PWD" -U postgres bench
psql -X -q -h "$PWD" -U postgres -d bench -c 'CREATE EXTENSION queue_jobs'

echo "$(nproc) processors, $(free -g | awk '/^Mem:/ { print $2 }') GB of memory, $(uname -s -m)${SETTINGS:+; $SETTINGS}"
"./$program" "host=$PWD user=postgres dbname=bench" "$@" || { tail -n 20 server.log; exit 1; }
