#!/usr/bin/env bash
# soak.sh MINUTES RATE: so many transactions a second of every kind of job for so long, on a server that is thrown away; each
# minute a line with the memory of our processes, the sizes of the tables, and how late jobs were started. Within the sandbox.
set -euo pipefail
minutes=$1 rate=$2
data=$PWD/soak_data
initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
trap 'pg_ctl -s -D "$data" -m immediate stop || true' EXIT
pg_ctl -s -w -D "$data" -l server.log -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null ||
    { cat server.log; exit 1; }
export PGHOST=$PWD PGUSER=postgres PGDATABASE=postgres
psql -X -q -v ON_ERROR_STOP=1 -o /dev/null -f test/soak/setup.sql
pgbench -n -c 4 -j 1 -R "$rate" -T $((minutes * 60)) -f test/soak/load.sql >pgbench.log 2>&1 &
load=$!

# Memory that is a process's own, in kB; shared buffers are not.
own_memory() {
    local pid sum=0
    for pid in $(psql -X -At -c "SELECT pid FROM pg_stat_activity WHERE backend_type = '$1'"); do
        sum=$((sum + $(awk '/^RssAnon:/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo 0)))
    done
    echo "$sum"
}

echo "| minute | jobs run | executors, kB | scheduler, kB | launcher, kB | live_job, kB | history, kB | live rows | queueing p50, ms | p99, ms |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for minute in $(seq 1 "$minutes"); do
    psql -X -q -o /dev/null -c 'SELECT queue_jobs.reset_statistics()'
    sleep 58
    echo "| $minute | $(psql -X -At -F ' | ' -c "SELECT sum(runs) FROM queue_jobs.worker_statistics") |" \
        "$(own_memory 'queue_jobs executor') | $(own_memory 'queue_jobs scheduler') | $(own_memory 'queue_jobs launcher') |" \
        "$(psql -X -At -F ' | ' -c "SELECT pg_total_relation_size('queue_jobs.live_job') / 1024,
            (SELECT sum(pg_total_relation_size(relid)) / 1024 FROM pg_partition_tree('queue_jobs.finished_job') WHERE isleaf)::bigint,
            (SELECT count(*) FROM queue_jobs.live_job),
            (SELECT round((1000 * queueing_time_p50)::numeric, 2) FROM queue_jobs.worker_statistics WHERE worker = 'gone'),
            (SELECT round((1000 * queueing_time_p99)::numeric, 2) FROM queue_jobs.worker_statistics WHERE worker = 'gone')") |"
done
wait $load || { cat pgbench.log; exit 1; }
grep -E '^(number of transactions actually|number of failed)' pgbench.log
grep -cE 'ERROR|FATAL|PANIC' server.log | sed 's/^/lines with errors in the log, apart from those that were made: /' || true
grep -E 'ERROR|FATAL|PANIC' server.log | grep -v 'not this time' | head -n 5 || true
