"""Backlogs that are worked off: by executors, by claimants, and while more is enqueued."""
import time
from itertools import product

CLAIMANTS = {
    "raw, two empty commits": ("raw/two_commits.sql", None),
    "textbook, claim committed": ("textbook/claim_commit_delete.sql", None),
    "textbook, deleted with the next claim": ("textbook/delete_claim.sql", None),
    "textbook, one transaction": ("textbook/one_transaction.sql", None),
    "queue_jobs, claim committed": ("queue_jobs/claim_commit_complete.sql", "claimed_kept"),
    "queue_jobs, claim committed, nothing kept": ("queue_jobs/claim_commit_complete.sql", "claimed_gone"),
    "queue_jobs, completed with the next claim": ("queue_jobs/complete_claim.sql", "claimed_kept"),
    "queue_jobs, completed with the next claim, nothing kept": ("queue_jobs/complete_claim.sql", "claimed_gone"),
    "queue_jobs, one transaction": ("queue_jobs/one_transaction.sql", "claimed_kept"),
    "queue_jobs, one transaction, nothing kept": ("queue_jobs/one_transaction.sql", "claimed_gone"),
}


def left(bench):
    return int(bench.server.sql("SELECT count(*) FROM queue_jobs.live_job"))


def drain_by_executors(bench, worker, seconds, per_second=100000):
    """Runs jobs from a backlog that outlasts the time (a larger one if it did not). The clock runs from resume() to a snapshot of what is left; the
    executors are there when it starts."""
    server = bench.server
    jobs = int(per_second * seconds)
    bench.reset()
    server.sql(f"SELECT queue_jobs.pause('{worker}')", "app")
    bench.backlog(worker, jobs)
    server.checkpoint()
    bench.warm_executors()
    cpu = server.cpu_seconds()
    begin = float(server.sql(f"SELECT extract(epoch FROM clock_timestamp()) FROM queue_jobs.resume('{worker}')", "app"))
    time.sleep(seconds)
    cpu = server.cpu_seconds() - cpu
    end, rest = map(float, server.row("SELECT extract(epoch FROM statement_timestamp()), count(*) FROM queue_jobs.live_job"))
    server.sql(f"SELECT queue_jobs.pause('{worker}')", "app")
    bench.reset()
    server.sql(f"SELECT queue_jobs.resume('{worker}')", "app")
    if rest == 0:
        return drain_by_executors(bench, worker, seconds, per_second * 2)
    done = jobs - rest
    return {"jobs/s": done / (end - begin), "server CPU s per 100,000 jobs": cpu * 100000 / done}


EXECUTORS = "least(current_setting('queue_jobs.max_executors')::int, current_setting('queue_jobs.max_executors_per_database')::int)"
DELETED_BY_TID = "raw DELETE by TID"


def delete_by_workers(bench, workers, seconds, per_second=250000):
    """The ceiling of executors: as many background workers delete the same rows, one a transaction (ceiling.c)."""
    server = bench.server
    jobs = int(per_second * seconds)
    bench.reset()
    server.sql("SELECT queue_jobs.pause('noop_gone')", "app")
    bench.backlog("noop_gone", jobs)
    server.sql("INSERT INTO raw.backlog SELECT * FROM queue_jobs.live_job ORDER BY id")
    server.sql("TRUNCATE queue_jobs.live_job")
    server.sql("SELECT queue_jobs.resume('noop_gone')", "app")
    # Of max_worker_processes there are not enough for both.
    server.wait_until("NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor')")
    server.checkpoint()
    cpu = server.cpu_seconds()
    deleted, elapsed, ran_out = server.row(f"SELECT * FROM raw.delete_rows('raw.backlog', {workers}, {seconds})")
    cpu = server.cpu_seconds() - cpu
    bench.reset()
    if ran_out == "t":
        return delete_by_workers(bench, workers, seconds, per_second * 2)
    return {"jobs/s": int(deleted) / float(elapsed), "server CPU s per 100,000 jobs": cpu * 100000 / int(deleted)}


def executors(bench):
    """One transaction a job."""
    def update():
        bench.reset()
        return {"jobs/s": bench.server.pgbench("raw/update.sql", 8, "-T", bench.duration, synchronous=False)[0]}

    yield "yardstick", "raw UPDATE, 8 clients, synchronous_commit off", update
    workers = int(bench.server.sql("SELECT " + EXECUTORS))
    yield "yardstick", f"{DELETED_BY_TID}, {workers} background workers", lambda: delete_by_workers(bench, workers, bench.duration)
    for case, worker in (("no-op", "noop_kept"), ("no-op, nothing kept", "noop_gone"), ("one-row UPDATE", "update_kept"),
                         ("one-row UPDATE, plpgsql", "update_plpgsql")):
        yield case, "queue_jobs", lambda w=worker: drain_by_executors(bench, w, bench.duration)
    for name in bench.having(bench.peers):
        peer = bench.peers[name]
        for (task, case), setting in product(peer.tasks.items(), peer.settings):
            yield case, f"{name}, {setting}", lambda p=peer, t=task, s=setting: p.drain(t, s, bench.duration)


def claimants(bench):
    def step(competitor, clients, batch, per_second=20000):
        script, worker = CLAIMANTS[competitor]
        seconds = bench.duration
        jobs = int(seconds * per_second)
        bench.reset()
        if script.startswith("raw/"):
            return {"jobs/s": bench.server.pgbench(script, clients, "-T", seconds)[0] * batch}
        if worker:
            bench.backlog(worker, jobs)
        else:
            bench.server.sql(f"INSERT INTO textbook.job (args) SELECT jsonb_build_object('n', i) FROM generate_series(1, {jobs}) AS i; ANALYZE textbook.job")
        bench.server.checkpoint()
        variables = {"worker": worker} if worker else {}
        _, elapsed = bench.server.pgbench(script, clients, "-T", seconds, batch=batch, ids="{}", attempts="{}", **variables)
        rest = int(bench.server.sql(f"SELECT count(*) FROM {'queue_jobs.live_job' if worker else 'textbook.job'}"))
        if rest == 0:
            return step(competitor, clients, batch, per_second * 3)
        return {"jobs/s": (jobs - rest) / elapsed}

    for batch, clients, competitor in product((1, 10, 100), bench.clients, CLAIMANTS):
        if competitor.split(",")[0] in bench.having(["raw", "textbook", "queue_jobs"]):
            yield f"batch {batch}, {clients} clients", competitor, lambda n=competitor, c=clients, b=batch: step(n, c, b)


def together(bench):
    """Eight clients enqueue one a transaction, while the jobs are worked off; until nothing is left."""
    def by_executors():
        bench.reset()
        bench.warm_executors()
        begin = time.monotonic()
        rate, elapsed = bench.server.pgbench("queue_jobs/enqueue.sql", 8, "-T", bench.duration, synchronous=False, worker="noop_kept")
        bench.server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")
        return {"jobs/s": rate * elapsed / (time.monotonic() - begin)}

    def by_claimants(script, competitor):
        bench.reset()
        worker = {"worker": "claimed_kept"} if competitor == "queue_jobs" else {}
        rate, _ = bench.server.pgbench(script, 8, "-T", bench.duration, synchronous=False, batch=1, **worker)
        return {"jobs/s": rate}

    yield "8 enqueuers, executors", "queue_jobs", by_executors
    yield "8 clients that enqueue, claim, complete", "queue_jobs", lambda: by_claimants("queue_jobs/cycle.sql", "queue_jobs")
    if bench.having(["textbook"]):
        yield "8 clients that enqueue, claim, complete", "textbook", lambda: by_claimants("textbook/cycle.sql", "textbook")
