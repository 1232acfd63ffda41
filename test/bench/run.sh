#!/usr/bin/env bash
# make bench, bench-latency, bench-exactly-once: runs one of the programs here on a server that is thrown away. Within the
# sandbox, so that it disturbs no other server.
#
#   run.sh PROGRAM [OPTION…]      PROGRAM: latency, exactly_once, or bench, which writes its JSON to file descriptor 3
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
compile() { cc -O2 -Wall -Wextra -pthread -I"$include" -o "$1" "test/bench/$1.c" -L"$lib" -lpq; }
if [ "$program" = bench ]; then
    compile latency
    compile tenants
    make -s -C test/bench/ceiling PG_CONFIG="$SERVER_PG_CONFIG" COPT=-Werror with_llvm=no pkglibdir="$(pg_config --pkglibdir)" install >make.log ||
        { cat make.log; exit 1; }
else
    compile "$program"
fi

initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
tr ';' '\n' >>"$data/postgresql.conf" <<<"${SETTINGS:-}"
finish() {
    pg_ctl -s -D "$data" -m fast stop || true
    [ ! -e bench.json ] || cat bench.json >&3      # as far as it came
}
trap finish EXIT
pg_ctl -s -w -D "$data" -l server.log \
    -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null || { cat server.log; exit 1; }
psql -X -q -h "$PWD" -U postgres -d postgres -c 'CREATE ROLE app LOGIN' -c 'CREATE DATABASE bench'
psql -X -q -h "$PWD" -U postgres -d bench -f test/bench/scripts/queue_jobs/database.sql

echo "$(nproc) processors, $(free -g | awk '/^Mem:/ { print $2 }') GB of memory, $(uname -s -m)${SETTINGS:+; $SETTINGS}"
if [ "$program" = bench ]; then
    set -- python3 test/bench/bench.py "$PWD" "$data" bench bench.json
else
    set -- "./$program" "host=$PWD user=postgres dbname=bench" "$@"
fi
"$@" || { tail -n 20 server.log; exit 1; }
