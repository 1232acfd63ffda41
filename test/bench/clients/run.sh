#!/usr/bin/env bash
# make bench-clients: each client's worker loop beside queues of its language, on a server that is thrown away;
# within the sandbox. Prints a line of JSON for each: no-op jobs a second, and milliseconds from enqueuing one
# job on an idle server to its handler's begin.
#
#   run.sh
#
#   LANGUAGES="node python ruby"
#   JOBS=20000        jobs of a drain          ROUNDS=3    drains of each, of which the median counts
#   LATENCIES=200     jobs one after another   QUEUES=     names, separated by commas; default: all
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
data=$PWD/bench_data

initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
trap 'pg_ctl -s -D "$data" -m fast stop || true' EXIT
pg_ctl -s -w -D "$data" -l server.log -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null ||
    { cat server.log; exit 1; }
export PGHOST=$PWD PGUSER=postgres PGDATABASE=bench PGOPTIONS='-c synchronous_commit=off'
createdb bench

# Celery, RQ and Sidekiq have a Redis of their own, which writes nothing to disk.
export REDIS_SOCKET=$PWD/redis.sock
redis() {
    if [ ! -S "$REDIS_SOCKET" ]; then
        redis-server --port 0 --unixsocket "$REDIS_SOCKET" --save '' --daemonize yes >/dev/null
        trap 'redis-cli -s "$REDIS_SOCKET" shutdown nosave || true; pg_ctl -s -D "$data" -m fast stop || true' EXIT
        until redis-cli -s "$REDIS_SOCKET" ping >/dev/null 2>&1; do sleep 0.1; done
    fi
    redis-cli -s "$REDIS_SOCKET" flushall >/dev/null
}

for language in ${LANGUAGES:-node python ruby}; do
    case $language in
        node)
            (cd clients/node && npm ci --silent)
            npm install --silent --no-audit --no-fund --no-save --prefix "$here" graphile-worker@0.18 pg-boss@12
            node "$here/node.mjs"
            ;;
        python)
            redis
            PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/clients/python:$here /usr/bin/python3 "$here/python_queues.py"
            ;;
        ruby)
            redis
            RUBYLIB=$PWD/clients/ruby/lib ruby "$here/ruby_queues.rb"
            ;;
        *) echo "LANGUAGES: no such language: $language (node, python, ruby)" >&2; exit 2 ;;
    esac
done
