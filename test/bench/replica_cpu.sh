#!/usr/bin/env bash
# make bench-replica [READ_JOBS=1000]: what jobs cost the primary, in seconds of CPU for 1,000 of them, according to where they read.
#
#   primary    the read handler runs on the primary (data_consistency always)
#   replica    on a replica, over libpq (sticky)
#   standby    what executors on a standby would leave to the primary: claims that are committed first, with a lease, and then
#              a transaction with handler and completion, over two connections that are kept (pgbench). An estimate from below,
#              for such executors would also have to be told when there is something to claim.
#   no read    neither: executors and the handler alone
#
# CPU time is that of all processes of the primary, from when the jobs are let go until the last is done; enqueuing is not
# counted. It is the sum over processes that share two machines' work on one: time on the clock says nothing here.
#
# Within the sandbox, so that it disturbs no other server.
set -euo pipefail

jobs=${READ_JOBS:-1000}
primary=$PWD/bench_primary
replica=$PWD/bench_replica
port=5432

initdb -D "$primary" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
cat >>"$primary/postgresql.conf" <<CONF
shared_preload_libraries = 'queue_jobs'
listen_addresses = ''
unix_socket_directories = '$PWD'
queue_jobs.max_executors = 2
queue_jobs.replica_timeout = 10s
queue_jobs.idle_timeout = 1min
autovacuum = off
CONF
finish() { for dir in "$replica" "$primary"; do pg_ctl -s -D "$dir" -m fast stop || true; done; }
trap finish EXIT
start() { pg_ctl -s -w -D "$1" -l "$1.log" -o "-p $2" start >/dev/null || { cat "$1.log"; exit 1; }; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -h "$PWD" -p $port -U postgres postgres -c "$1"; }

start "$primary" $port
pg_basebackup -h "$PWD" -p $port -U postgres -D "$replica" -R -c fast
start "$replica" $((port + 1))
sql "CREATE EXTENSION queue_jobs"
sql "CREATE TABLE seen (n bigint)"
sql "CREATE FUNCTION reads(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS
     \$\$ SELECT to_jsonb(count(*)) FROM generate_series(1, (args->>'work')::int) \$\$"
sql "CREATE FUNCTION writes(args jsonb, read jsonb) RETURNS void LANGUAGE sql AS \$\$ INSERT INTO seen VALUES ((read #>> '{}')::bigint) \$\$"
sql "CREATE FUNCTION only_writes(args jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO seen VALUES (0)'"
sql "SELECT queue_jobs.add_replica('replica', 'host=$PWD port=$((port + 1))');
     SELECT queue_jobs.define_worker('no read', 'public.only_writes');
     SELECT queue_jobs.define_worker('primary', 'public.writes', read_handler => 'public.reads');
     SELECT queue_jobs.define_worker('replica', 'public.writes', read_handler => 'public.reads', data_consistency => 'sticky');
     SELECT queue_jobs.define_worker('standby')" >/dev/null

# User and system time of the server's processes, those included that are gone, in clock ticks.
ticks() {
    local pid
    pid=$(head -n 1 "$primary/postmaster.pid")
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | sed 's/^\([0-9]*\) (.*) /\1 x /' |
        awk -v pid="$pid" '$1 == pid { n += $14 + $15 + $16 + $17 } $4 == pid { n += $14 + $15 } END { print n }'
}

executors() {
    sql "SELECT queue_jobs.resume('$1')" >/dev/null
    sql "DO \$\$ BEGIN WHILE EXISTS (SELECT FROM queue_jobs.live_job) LOOP PERFORM pg_sleep(0.1); END LOOP; END \$\$" >/dev/null
}
claimants() {
    sql "SELECT queue_jobs.resume('$1')" >/dev/null
    cat >claimants.sql <<'SQL'
SELECT id, attempt FROM queue_jobs.claim('standby', '{standby}', 1) \gset
BEGIN;
SELECT writes('{}', '1');
SELECT queue_jobs.complete(:id::bigint, :attempt::int);
COMMIT;
SQL
    PGOPTIONS='-c synchronous_commit=off' pgbench -n -M prepared -c 2 -t $((jobs / 2)) -f claimants.sql -h "$PWD" -p $port -U postgres postgres >pgbench.log 2>&1 ||
        { cat pgbench.log; exit 1; }
}

# measure WORKER WORK HOW: prints seconds of CPU for 1,000 jobs
measure() {
    local before after
    sql "SELECT queue_jobs.pause('$1'); SELECT queue_jobs.enqueue_many('$1', array_fill('{\"work\": $2}'::jsonb, ARRAY[$jobs]))" >/dev/null
    sleep 2     # sticky jobs fall due, and the replica catches up
    before=$(ticks)
    "$3" "$1"
    after=$(ticks)
    awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" -v jobs="$jobs" 'BEGIN { printf "%.2f", ticks / hz / jobs * 1000 }'
}

for worker in 'no read' primary replica; do measure "$worker" 1 executors >/dev/null; done    # warm up
echo "$jobs jobs each; seconds of the primary's CPU for 1,000 jobs"
echo "no read: $(measure 'no read' 1 executors); standby: $(measure standby 1 claimants)"
for work in 1 10000 50000 200000; do
    echo "a read over $work rows: primary $(measure primary $work executors), replica $(measure replica $work executors)"
done
echo "jobs that read from the replica: $(sql "SELECT round(100.0 * sum(jobs) FILTER (WHERE strategy = 'replica') / sum(jobs)) FROM queue_jobs.load_balancing WHERE worker = 'replica'") %"
