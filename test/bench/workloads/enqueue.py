"""Jobs that are enqueued while no process takes them: one a transaction, in bulk, with duplicates, and by calls that change the job of their key.

A step is (case, competitor, function); the function returns {unit: value}. The driver runs the steps in turn, round by round.
"""
from itertools import product

ENQUEUERS = {
    "raw": ("raw/insert.sql", {}),
    "queue_jobs": ("queue_jobs/enqueue.sql", {"worker": "claimed_kept"}),
    "textbook": ("textbook/enqueue.sql", {}),
    "graphile_worker": ("graphile_worker/enqueue.sql", {}),
    "pgq": ("pgq/enqueue.sql", {}),
}
BULK = 100000
BULK_ENQUEUERS = {
    "raw": ("raw/insert_many.sql", {}),
    "queue_jobs": ("queue_jobs/enqueue_many.sql", {"worker": "claimed_kept"}),
    "textbook": ("textbook/enqueue_many.sql", {}),
    "graphile_worker": ("graphile_worker/enqueue_many.sql", {}),
}


def one_a_transaction(bench):
    def step(script, variables, clients, synchronous):
        bench.reset()
        rate, _ = bench.server.pgbench(script, clients, "-T", bench.duration, synchronous=synchronous, **variables)
        return {"jobs/s": rate}

    for synchronous, clients, competitor in product((True, False), bench.clients, bench.having(ENQUEUERS)):
        script, variables = ENQUEUERS[competitor]
        yield (case_of(clients, synchronous), competitor,
               lambda s=script, v=variables, c=clients, y=synchronous: step(s, v, c, y))


def case_of(clients, synchronous):
    return f"{clients} clients, synchronous_commit {'on' if synchronous else 'off'}"


def bulk(bench):
    def step(script, variables):
        bench.reset()
        rate, _ = bench.server.pgbench(script, 1, "-t", 3, jobs=BULK, **variables)
        return {"jobs/s": rate * BULK}

    for competitor in bench.having(BULK_ENQUEUERS):
        yield f"{BULK} jobs a statement", competitor, lambda s=BULK_ENQUEUERS[competitor]: step(*s)


def duplicates(bench):
    clients = max(c for c in bench.clients if c <= 8)

    def prepare():
        bench.reset()
        bench.server.sql("SELECT count(*) FROM queue_jobs.enqueue_many('unique', ARRAY(SELECT"
                         " jsonb_build_object('k', i) FROM generate_series(1, 1000) AS i))", "app")
        bench.server.sql("INSERT INTO raw.unique_job (id, created_at, run_at, lane, place, priority, version, attempt,"
                         " due, dedup_key, args)"
                         " SELECT i, now(), now(), 1, 1, 0, 0, 0, true, i::text, '{}' FROM generate_series(1, 1000) AS i")

    def step(script, percent, synchronous):
        prepare()
        rate, _ = bench.server.pgbench(script, clients, "-T", bench.duration, synchronous=synchronous, percent=percent)
        return {"jobs/s": rate}

    scripts = {"raw": "raw/insert_key.sql", "on conflict": "raw/insert_on_conflict.sql",
               "queue_jobs": "queue_jobs/enqueue_key.sql"}
    for synchronous, percent, competitor in product((True, False) if bench.full else (True,), (0, 50, 99), bench.having(scripts)):
        yield (f"{percent} % duplicates, {case_of(clients, synchronous)}", competitor,
               lambda s=scripts[competitor], p=percent, y=synchronous: step(s, p, y))


# How queue_jobs calls it, and graphile-worker, and for how long the job is put off. pg-boss's upsert() is "replace", its sendDebounced() "debounce".
MODES = {"replace": ("replace", "0 s"), "replace_args": ("preserve_run_at", "1 hour"), "debounce": ("replace", "1 hour")}
KEYS = {"one key": 1, "10000 keys at random": 10000}


def waiting(bench):
    """The job of a key that waits is changed (if_waiting)."""
    clients = max(c for c in bench.clients if c <= 8)
    scripts = {"on conflict": "raw/upsert.sql", "queue_jobs": "queue_jobs/call.sql", "graphile_worker": "graphile_worker/call.sql"}

    def step(script, how, keys, synchronous):
        bench.reset()
        mode, delay = MODES[how]
        rate, _ = bench.server.pgbench(script, clients, "-T", bench.duration, synchronous=synchronous, how=how, mode=mode, delay=delay, keys=keys)
        return {"calls/s": rate}

    def peer_step(how, keys, synchronous):
        bench.reset()
        return {"calls/s": bench.peers["pg_boss"].calls(how, keys, bench.duration, synchronous)}

    for (keys, number), how, synchronous in product(KEYS.items(), MODES, (True, False)):
        case = f"{how}, {keys}, {case_of(clients, synchronous)}"
        for competitor in bench.having(scripts):
            yield case, competitor, lambda s=scripts[competitor], h=how, n=number, y=synchronous: step(s, h, n, y)
        if bench.having(["pg_boss"]) and how != "replace_args":
            yield case, "pg_boss", lambda h=how, n=number, y=synchronous: peer_step(h, n, y)
