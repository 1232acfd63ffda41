"""What a job costs beside time: WAL, disk; and what the extension costs when there is nothing to do."""
import time

from server import switches


def wal_and_disk(bench):
    jobs = 100000 if bench.full else 10000
    server = bench.server

    def pgbench_wal(script, **variables):
        before = server.wal_position()
        server.pgbench(script, 8, "-t", jobs // 8, synchronous=False, **variables)
        return (server.wal_position() - before) / jobs

    def raw():
        bench.reset()
        server.checkpoint()
        first = int(server.sql("SELECT nextval('raw.job_id')"))
        inserted = pgbench_wal("raw/insert.sql")
        deleted = pgbench_wal("raw/delete.sql", base=first, each=jobs // 8, i=0)
        if server.sql("SELECT count(*) FROM raw.job") != "0":
            raise RuntimeError("not all rows were deleted")
        return {"WAL bytes per job, INSERT": inserted, "WAL bytes per job": inserted + deleted}

    def by_executors(worker):
        bench.reset()
        bench.warm_executors()
        server.checkpoint()
        before = server.wal_position()
        server.pgbench("queue_jobs/enqueue.sql", 8, "-t", jobs // 8, synchronous=False, worker=worker)
        server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")
        return {"WAL bytes per job": (server.wal_position() - before) / jobs}

    def enqueued_only():
        bench.reset()
        server.checkpoint()
        return {"WAL bytes per job, INSERT": pgbench_wal("queue_jobs/enqueue.sql", worker="claimed_gone")}

    def textbook():
        bench.reset()
        server.checkpoint()
        return {"WAL bytes per job": pgbench_wal("textbook/cycle.sql", batch=1)}

    def cycle():
        bench.reset()
        server.checkpoint()
        return {"WAL bytes per job": pgbench_wal("queue_jobs/cycle.sql", batch=1, worker="claimed_gone")}

    def size(table, fill):
        bench.reset()
        fill()
        return {"bytes on disk per job": int(server.sql(f"SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('{table}')")
                                             or server.sql(f"SELECT pg_total_relation_size('{table}')")) / jobs}

    def finish():
        bench.backlog("noop_kept", jobs)
        server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")

    yield "enqueue to finished", "raw", raw
    yield "enqueue to finished", "queue_jobs, executors, nothing kept", lambda: by_executors("noop_gone")
    yield "enqueue to finished", "queue_jobs, executors", lambda: by_executors("noop_kept")
    yield "enqueue to finished", "queue_jobs, claim committed, nothing kept", cycle
    yield "enqueue alone", "queue_jobs", enqueued_only
    if bench.having(["textbook"]):
        yield "enqueue to finished", "textbook", textbook
        yield "waiting", "textbook", lambda: size("textbook.job", lambda: server.pgbench("textbook/enqueue.sql", 8, "-t", jobs // 8, synchronous=False))
    yield "waiting", "raw", lambda: size("raw.job", lambda: server.pgbench("raw/insert.sql", 8, "-t", jobs // 8, synchronous=False))
    yield "waiting", "queue_jobs", lambda: size("queue_jobs.live_job", lambda: bench.backlog("claimed_kept", jobs))
    yield "finished and kept", "queue_jobs", lambda: size("queue_jobs.finished_job", finish)


def idle(bench):
    """Nothing is done in the database, with jobs that are due in a day; then what the server counted is compared."""
    server = bench.server

    def step():
        bench.reset()
        bench.backlog("chain", 1000, ", delay => '1 day'")
        bench.warm_executors()
        # The server's own look into each database once a minute is no doing of ours.
        server.sql("ALTER SYSTEM SET autovacuum = off")
        server.sql("SELECT pg_reload_conf()")
        server.checkpoint()
        time.sleep(20)               # queue_jobs.idle_timeout is 4 s; after 15 s the server itself has logged its last word
        watcher = server.session(database="postgres")
        ours = [int(pid) for pid in watcher.sql("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity"
                                                " WHERE backend_type LIKE 'queue_jobs %'").split()]
        counts = (f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{server.database}'",
                  "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        before = [int(watcher.sql(count)) for count in counts]
        slept = switches(ours)
        time.sleep(bench.idle_seconds)
        slept = switches(ours) - slept
        transactions, wal = (int(watcher.sql(count)) - was for count, was in zip(counts, before))
        watcher.close()
        server.sql("ALTER SYSTEM RESET autovacuum")
        server.sql("SELECT pg_reload_conf()")
        return {"processes": len(ours), "wake-ups": slept, "transactions": transactions, "WAL bytes": wal}

    yield f"{bench.idle_seconds:g} s", "queue_jobs", step
