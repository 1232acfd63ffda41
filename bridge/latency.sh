#!/usr/bin/env bash
# How long after the enqueue on the managed server a job starts on the queue server, over a bridge that is set
# up, by the clocks of both: they are to agree, or be one. The time begins before the COMMIT of the enqueue,
# which is part of it.
#
#   latency.sh MANAGED QUEUE [SECONDS [RATE]]
#
# MANAGED, QUEUE: connection strings, of a role that may enqueue and of a superuser. Default: 30 s, 50 a second.
set -euo pipefail

managed=$1 queue=$2 seconds=${3:-30} rate=${4:-50}

psql -XAtq -d "$queue" -c "SELECT queue_jobs.define_worker('bridge_latency', 'pg_catalog.clock_timestamp', keep_completed => '1 h')" > /dev/null
first=$(psql -XAtq -d "$managed" -c "SELECT queue_jobs.enqueue('bridge_latency')")
pgbench -n -c 1 -T "$seconds" -R "$rate" -f <(echo "SELECT queue_jobs.enqueue('bridge_latency');") "$managed" > /dev/null
last=$(psql -XAtq -d "$managed" -c "SELECT queue_jobs.enqueue('bridge_latency')")
until [ "$(psql -XAtq -d "$queue" -c "SELECT count(*) FROM queue_jobs_bridge.outbox o JOIN queue_jobs.job j ON j.id = o.job WHERE o.id = $last AND state = 'completed'")" = 1 ]; do
    sleep 0.2
done
psql -Xq -d "$queue" <<SQL
WITH run AS (
    SELECT EXTRACT(epoch FROM (j.result #>> '{}')::timestamptz - o.created_at)::float8 * 1000 AS ms
      FROM queue_jobs_bridge.outbox o JOIN queue_jobs.job j ON j.id = o.job
     WHERE o.worker = 'bridge_latency' AND o.id > $first AND j.state = 'completed'
)
SELECT count(*) AS jobs, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1) AS "p50 ms",
       round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)::numeric, 1) AS "p99 ms", round(max(ms)::numeric, 1) AS "max ms" FROM run;
SQL
