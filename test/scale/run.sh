#!/usr/bin/env bash
# make scale: counts what each job takes of what all sessions share, on the server that server.sh has built. Runs in the sandbox.
#
#   COUNTING  the counting postgres, by server.sh
#   SESSIONS  how many at once, one after the other; default: 1 8 64 200
#   WORK      enqueue, execute, claim, claim_10; default: all
#   COUNTED   seconds to count for; default: 6
#
# The tables go to the standard output.
set -euo pipefail

sessions=${SESSIONS:-1 8 64 200}
work=${WORK:-enqueue execute claim claim_10}
counted=${COUNTED:-6}
data=$PWD/scale_data
results=$PWD/scale_results
mkdir "$results"

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -h "$PWD" -U "${role:-postgres}" -d bench "$@"; }
start() {
    pg_ctl -s -w -t 300 -p "$PWD/counting/bin/postgres" -D "$data" -l server.log -o "-c listen_addresses= -k '$PWD' -c queue_jobs.max_executors=$1 \
        -c queue_jobs.max_executors_per_database=$1" start >/dev/null || { cat server.log; exit 1; }
}
stop() { pg_ctl -s -w -t 300 -D "$data" -m fast stop; }
trap 'stop || true; tail -n 5 server.log' ERR

# The counting program finds the installation's files, and its own queue_jobs, beside itself.
install() {
    mkdir -p counting/bin counting/lib/postgresql counting/share/postgresql
    cp "$COUNTING" counting/bin/postgres
    ln -s "$(pg_config --pkglibdir)"/* counting/lib/postgresql
    ln -s "$(pg_config --sharedir)"/* counting/share/postgresql
    [ -e counting/share/postgresql/timezone ] || ln -s /usr/share/zoneinfo counting/share/postgresql/timezone
    make -s -j"$(nproc)" -B PG_CONFIG="$SERVER_PG_CONFIG" COPT="-include $PWD/test/scale/count.h" queue_jobs.so
    rm -f counting/lib/postgresql/queue_jobs.so
    cp queue_jobs.so counting/lib/postgresql
    make -s -C test/scale PG_CONFIG="$SERVER_PG_CONFIG" module.so
}
[ -e counting/bin/postgres ] || install
initdb -D "$data" -U postgres -A trust --no-locale >initdb.log
cat >>"$data/postgresql.conf" <<SETTINGS
shared_preload_libraries = 'queue_jobs'
max_connections = 250
max_worker_processes = 230
shared_buffers = 1GB
max_wal_size = 8GB
checkpoint_timeout = 1h
SETTINGS
start 4
psql -X -q -h "$PWD" -U postgres -d postgres -c 'CREATE ROLE app LOGIN' -c 'CREATE DATABASE bench'
sql -f test/bench/scripts/queue_jobs/database.sql
sql -f test/scale/workers.sql >setup.log
sql -c "CREATE FUNCTION scale_restart() RETURNS void LANGUAGE c AS '$PWD/test/scale/module.so'" \
    -c "ALTER DATABASE bench SET queue_jobs.run = off"
stop

enqueue() {                 # worker, jobs; a session for each part, for it has room to count some 100,000 buffers
    local first
    for ((first = 1; first <= $2; first += 100000)); do
        role=app sql -c "SELECT count(*) FROM queue_jobs.enqueue_many('$1', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series($first, $((first + 99999))) AS i))"
    done >enqueued.log
}
live() { sql -c 'SELECT count(*) FROM queue_jobs.live_job'; }
load() {                    # sessions, script, settings of pgbench…
    local clients=$1 script=$2
    shift 2
    pgbench -n -h "$PWD" -U app -c "$clients" -j 2 -M prepared "$@" -f "test/bench/scripts/queue_jobs/$script.sql" bench >pgbench.log 2>&1 &
    load=$!
}
# Begins at zero once all sessions are at work; then samples what they wait for.
count() {                   # name
    local name=$1
    sql -c 'SELECT scale_restart()' >/dev/null
    rm -f "$data"/scale/*             # of sessions that have ended
    sql -F ' ' -c "SELECT wal_records, wal_fpi, wal_bytes, wal_write, wal_sync FROM pg_stat_wal" >"$results/$name.wal"
    sql -c 'SELECT pg_current_wal_insert_lsn()' >"$results/$name.lsn"
    for ((i = 0; i < counted * 5; i++)); do
        echo "SELECT coalesce(wait_event_type || ':' || wait_event, 'none') FROM pg_stat_activity
              WHERE pid <> pg_backend_pid() AND (backend_type = 'client backend' AND state = 'active' OR backend_type ~ 'queue_jobs executor');
              SELECT pg_stat_clear_snapshot(); SELECT pg_sleep(0.2);"
    done | sql | grep . >"$results/$name.waits" || true
    sql -c 'SELECT pg_current_wal_insert_lsn()' >>"$results/$name.lsn"
    sql -F ' ' -c 'SELECT wal_records, wal_fpi, wal_bytes, wal_write, wal_sync FROM pg_stat_wal' >>"$results/$name.wal"
}

for kind in $work; do
    for n in $sessions; do
        name=$kind.$n
        warm=$((2 + n / 40))
        rm -rf "$data/scale"
        start "$([ "$kind" = execute ] && echo "$n" || echo 4)"
        sql -c 'TRUNCATE queue_jobs.live_job'
        case $kind in
            enqueue)
                load "$n" enqueue -D worker=noop_kept -T $((warm + counted + 60))
                sleep "$warm" ;;
            claim | claim_10)
                batch=$([ "$kind" = claim ] && echo 1 || echo 10)
                enqueue claimed_kept $(((warm + counted) * (batch == 1 ? 30000 : 80000)))
                sql -c 'VACUUM ANALYZE queue_jobs.live_job'
                load "$n" one_transaction -D worker=claimed_kept -D batch="$batch" -T $((warm + counted + 60))
                sleep "$warm" ;;
            execute)
                load=
                # More for more executors, which are started one after the other while the first are at work.
                enqueue noop_kept $(((2 * counted + n / 10) * 100000))
                sql -c 'VACUUM ANALYZE queue_jobs.live_job' -c 'ALTER DATABASE bench SET queue_jobs.run = on'
                sql -c 'SELECT queue_jobs.resume()' >/dev/null 2>&1 || true
                for ((i = 0; i < 300; i++)); do
                    [ "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'queue_jobs executor'")" -lt "$n" ] || break
                    sleep 0.2
                done
                sleep 2 ;;
        esac
        count "$name"
        if [ "$kind" != enqueue ] && [ "$(live)" -eq 0 ]; then echo "$name: no jobs were left" >&2; fi
        [ -z "$load" ] || { kill "$load" && wait "$load" || true; }
        sql -c 'ALTER DATABASE bench SET queue_jobs.run = off'
        sql -F ' ' -c "SELECT pg_relation_filenode(oid), relname FROM pg_class WHERE relkind IN ('r', 'i', 'S', 't', 'm') AND relfilenode IS NOT NULL" >"$results/$name.relations"
        pg_waldump -p "$data/pg_wal" -z --stats=record -s "$(head -n 1 "$results/$name.lsn")" -e "$(tail -n 1 "$results/$name.lsn")" >"$results/$name.waldump" 2>/dev/null || true
        stop
        cat "$data"/scale/* >"$results/$name.counts"
    done
done
python3 -B test/scale/table.py "$results" "$(awk '/^cpu MHz/ { print $4; exit }' /proc/cpuinfo)"
