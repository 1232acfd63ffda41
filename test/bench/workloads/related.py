"""Jobs that belong together: members of a batch, steps of a workflow, slices of a long job."""
CALLBACKS = 200
AT_ONCE, ITS_OWN = "at once", "its own"      # what releases the steps of pg-boss's flow(): resolveFlow() after each, or its resolver


def scaled(bench, number, least):
    return max(int(number * bench.scale), least)


def seconds(bench, expression):
    """Of the finished jobs: a difference of times."""
    return float(bench.server.sql(f"SELECT extract(epoch FROM {expression}) FROM queue_jobs.finished_job"))


def run_paused(bench, worker, condition):
    """From resume() until the condition holds. The rate is by the jobs' own times, so that asking every 50 ms does not count."""
    server = bench.server
    server.checkpoint()
    bench.warm_executors()
    begin = server.sql("SELECT clock_timestamp()")
    wal = server.wal_position()
    server.sql(f"SELECT queue_jobs.resume('{worker}')", "app")
    server.wait_until(condition)
    return begin, server.wal_position() - wal


def batch(bench):
    """The same jobs, of no batch, of one, and with a counter in SQL in place of the batch."""
    server = bench.server
    jobs = scaled(bench, 100000, 10000)

    def drain(worker, of_batch):
        bench.reset()
        server.sql(f"SELECT queue_jobs.pause('{worker}')", "app")
        more = ""
        if of_batch:
            number = server.sql("SELECT queue_jobs.new_batch('bench', on_success => 'called', open => true)", "app")
            more = f", batch => {number}"
        if worker == "counted":
            server.sql(f"UPDATE bench.pending SET jobs = {jobs}")
        wal = server.wal_position()
        bench.backlog(worker, jobs, more)
        if of_batch:
            server.sql(f"SELECT queue_jobs.close_batch({number})", "app")
        enqueued = server.wal_position() - wal
        # Tables of few rows: what is asked every 50 ms must not read all that has finished.
        done = "EXISTS (SELECT FROM queue_jobs.tracked_batch WHERE settled_at IS NOT NULL)" if of_batch else "NOT EXISTS (SELECT FROM queue_jobs.live_job)"
        begin, ran = run_paused(bench, worker, done)
        return {"jobs/s": jobs / seconds(bench, f"max(finished_at) - '{begin}'"), "WAL bytes per job": (enqueued + ran) / jobs}

    def held(of_batch):
        holder = server.session()
        holder.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue_jobs.lane")
        try:
            return drain("noop_kept", of_batch)
        finally:
            holder.close()

    case = f"{jobs:,} no-op jobs"
    yield case, "queue_jobs, no batch", lambda: drain("noop_kept", False)
    yield case, "queue_jobs, one batch with its callback", lambda: drain("noop_kept", True)
    yield case, "queue_jobs, no batch, a snapshot held", lambda: held(False)
    yield case, "queue_jobs, one batch with its callback, a snapshot held", lambda: held(True)
    yield case, "queue_jobs, a counter in SQL and its callback", lambda: drain("counted", False)

    def callbacks():
        bench.reset()
        bench.warm_executors()
        for _ in range(CALLBACKS):
            server.sql("SELECT queue_jobs.enqueue('noop_kept', '{}', batch => queue_jobs.new_batch(on_success => 'called'))", "app")
        server.wait_until(f"(SELECT count(*) = {CALLBACKS} FROM queue_jobs.finished_job f JOIN queue_jobs.lane n ON n.id = f.lane WHERE n.worker = 'called')")
        gap = ("SELECT percentile_cont({}) WITHIN GROUP (ORDER BY extract(epoch FROM c.started_at - m.finished_at) * 1000) FROM queue_jobs.job c"
               " JOIN queue_jobs.job m ON m.batch = (c.args ->> 'batch')::bigint AND m.worker = 'noop_kept' WHERE c.worker = 'called'")
        return {f"ms p{round(100 * p)}, member's end to callback's start": float(server.sql(gap.format(p))) for p in (0.5, 0.99)}

    yield "batches of one", "queue_jobs", callbacks


def workflow(bench):
    server = bench.server
    steps = scaled(bench, 9999, 1000)      # a workflow has at most 10,000

    def workflow_of(many, after):
        bench.reset()
        bench.warm_executors()
        wal = server.wal_position()
        server.sql("SELECT count(*) FROM queue_jobs.enqueue_workflow('bench', (SELECT jsonb_agg(jsonb_build_object('step', i::text, 'worker', 'noop_kept',"
                   f" 'after', {after})) FROM generate_series(1, {many}) AS i))", "app")
        server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")
        return {"steps/s": many / seconds(bench, "max(finished_at) - min(started_at)"), "WAL bytes per step": (server.wal_position() - wal) / many}

    def chain():
        return workflow_of(1000, "CASE WHEN i > 1 THEN jsonb_build_array((i - 1)::text) ELSE '[]' END")

    def fan_in():
        measured = workflow_of(steps + 1, f"CASE WHEN i > {steps} THEN (SELECT jsonb_agg(j::text) FROM generate_series(1, {steps}) AS j) ELSE '[]' END")
        last = server.sql("SELECT max(id) FROM queue_jobs.finished_job")
        return {**measured,
                "ms, last parent's end to the step's start": 1000 * seconds(bench, f"max(started_at) FILTER (WHERE id = {last}) - max(finished_at) FILTER (WHERE id <> {last})")}

    yield "1,000 steps in a chain", "queue_jobs", chain
    yield f"{steps:,} steps to one", "queue_jobs", fan_in
    boss = bench.peers.get("pg_boss")
    if boss is None:
        return
    yield "1,000 steps in a chain", "pg_boss, flow(), resolveFlow() after each", lambda: boss.flow("chain", 1000, AT_ONCE)
    # Some seconds will do, for it has a step done each second.
    yield "5 steps in a chain", "pg_boss, flow(), its resolver each second", lambda: boss.flow("chain", 5, ITS_OWN)
    yield f"{steps:,} steps to one", "pg_boss, flow(), resolveFlow() after each", lambda: boss.flow("fan_in", steps + 1, AT_ONCE)
    yield f"{steps:,} steps to one", "pg_boss, flow(), its resolver each second", lambda: boss.flow("fan_in", steps + 1, ITS_OWN)


def slices(bench):
    """One executor's work: a job that goes on a thousand times, and a thousand jobs that each enqueue the next."""
    server = bench.server

    def run(worker, args):
        bench.reset()
        bench.warm_executors()
        wal = server.wal_position()
        begin = server.sql("SELECT clock_timestamp()")
        server.sql(f"SELECT queue_jobs.enqueue('{worker}', '{args}')", "app")
        server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")
        return {"slices/s": 1000 / seconds(bench, f"max(finished_at) - '{begin}'"), "WAL bytes per slice": (server.wal_position() - wal) / 1000}

    yield "1,000 slices", "queue_jobs, continue_at()", lambda: run("sliced", "{}")
    yield "1,000 slices", "queue_jobs, a job for each", lambda: run("linked", '{"n": 1000}')
