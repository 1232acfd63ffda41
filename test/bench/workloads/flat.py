"""Does it stay as fast: with large tables, with a snapshot held open, and over time.

The loads here keep the number of jobs as it is: each job that is run or claimed is replaced by another. The rate of runs is that of a
sequence which the handlers call: read at no cost, however many rows there are.
"""
import re
import time



class Chain:
    """Executors: each run enqueues its successor. Nothing runs but during run(), for the queues are paused."""
    worker = "chain"

    def __init__(self, bench, jobs=64, queues=1):
        self.bench, self.jobs, self.queues = bench, jobs, queues

    def every_queue(self, function):
        self.bench.server.sql(f"SELECT count(queue_jobs.{function}('q' || i)) FROM generate_series(0, {self.queues - 1}) AS i", "app")

    def prepare(self):
        queue = f"'q' || i % {self.queues}"
        self.every_queue("pause")
        for start in range(0, self.jobs, 200000):
            self.bench.server.sql(f"SELECT count(queue_jobs.enqueue('chain', jsonb_build_object('q', {queue}), queue => {queue}))"
                                  f" FROM generate_series(1, {min(200000, self.jobs - start)}) AS i", "app")

    def run(self, seconds):
        """Runs a second, for each second."""
        server = self.bench.server
        executors = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor' AND datname {} current_database()"
        most = "current_setting('queue_jobs.max_executors{}')::int"
        server.wait_until(f"({executors.format('<>')}) = 0")      # idle ones of another database would be in the way
        session = server.session()
        self.every_queue("resume")
        server.wait_until(f"({executors.format('=')}) >= least({most.format('')}, {most.format('_per_database')})")
        rates = sample_rates(seconds, lambda: int(session.sql("SELECT last_value FROM bench.runs")))
        session.close()
        self.every_queue("pause")
        return rates


class Cycle:
    """Eight clients that each enqueue a job, claim one and complete it, three transactions."""

    def __init__(self, bench, script, worker=None, jobs=64, queues=0):
        """queues: among so many, and claimed from all of them; 0: from that which is named as the worker."""
        self.bench, self.script, self.worker, self.jobs, self.queues = bench, script, worker, jobs, queues

    def prepare(self):
        if self.queues:
            self.bench.server.sql(f"SELECT count(queue_jobs.enqueue('{self.worker}', queue => 'q' || i % {self.queues}))"
                                  f" FROM generate_series(1, {self.jobs}) AS i", "app")
        elif self.worker:
            self.bench.backlog(self.worker, self.jobs)
        else:
            self.bench.server.sql(f"INSERT INTO textbook.job (args) SELECT jsonb_build_object('n', i) FROM generate_series(1, {self.jobs}) AS i")

    def run(self, seconds):
        """Of each second but the first, in which sessions begin, and the last, which pgbench may leave out."""
        variables = {"worker": self.worker, "queues": self.queues} if self.worker else {}
        server = self.bench.server
        started = server.start_pgbench(self.script, 8, "-T", seconds + 2, "-P", 1, synchronous=False, batch=1, **variables)
        return progress_rates(server.finish_pgbench(started))[1:int(seconds) + 1]


class OneKey:
    """Four clients enqueue the same deduplicated job over and over, while executors run it."""

    def __init__(self, bench):
        self.bench = bench
        self.enqueued = []

    def prepare(self):
        pass

    def run(self, seconds):
        server = self.bench.server
        started = server.start_pgbench("queue_jobs/enqueue_one_key.sql", 4, "-T", seconds + 2, "-P", 1, synchronous=False)
        session = server.session()
        rates = sample_rates(seconds, lambda: int(session.sql("SELECT last_value FROM bench.runs")))
        session.close()
        self.enqueued = progress_rates(server.finish_pgbench(started))[:int(seconds)]
        return rates


def sample_rates(seconds, read):
    rates = []
    begin = last_time = time.monotonic()
    last = read()
    for second in range(1, int(seconds) + 1):
        time.sleep(max(0, begin + second - time.monotonic()))
        now, value = time.monotonic(), read()
        rates.append((value - last) / (now - last_time))
        last_time, last = now, value
    return rates


def progress_rates(printed):
    """pgbench's transactions a second, for each second."""
    return [float(rate) for rate in re.findall(r"^progress: .*? s, ([\d.]+) tps", printed, re.M)]


def mean(rates):
    return sum(rates) / len(rates)


def asked_for(bench, loads):
    """Those of LOADS, by the last word of their names."""
    return {name: load for name, load in loads.items() if not bench.loads or name.split()[-1] in bench.loads}


def loads(bench, jobs=64, queues=0):
    found = {"queue_jobs, executors": Chain(bench, jobs, queues or 1)}
    script = "queue_jobs/cycle_queues.sql" if queues else "queue_jobs/cycle.sql"
    found["queue_jobs, claimants"] = Cycle(bench, script, "claimed_gone", jobs, queues)
    if queues <= 1 and bench.having(["textbook"]):
        found["textbook"] = Cycle(bench, "textbook/cycle.sql", None, jobs)
    return asked_for(bench, found)


def size(bench):
    """10,000 live jobs, against more: of the same lane, in the future, finished, and in 1,000 queues. Each in a database of its own,
    which is filled once: loads that hardly differ are compared in turn within seconds, or the machine's moods are compared."""
    backlog = int(5000000 * bench.scale)
    other = int(1000000 * bench.scale)

    def future(load):
        if load.worker:
            load.bench.backlog(load.worker, other, ", delay => '1 day'")
        else:
            load.bench.server.sql(f"INSERT INTO textbook.job (args, run_at) SELECT jsonb_build_object('n', i), now() + interval '1 day' FROM generate_series(1, {other}) AS i")

    def finished(load):
        load.bench.backlog("noop_kept", other)
        load.bench.server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job)")

    filled = set()

    def step(load, surroundings):
        server = load.bench.server
        if load not in filled:
            filled.add(load)
            surroundings(load)
            load.prepare()
        if surroundings is not finished:      # what earlier rounds have left
            server.sql("TRUNCATE queue_jobs.finished_job")
        server.sql("VACUUM (ANALYZE) queue_jobs.live_job, textbook.job")      # or autovacuum would be at work beside it
        server.checkpoint()
        return {"jobs/s": mean(load.run(bench.duration))}

    nothing = lambda load: None
    for number, (case, jobs, queues, surroundings) in enumerate((
            ("10000 jobs", 10000, 1, nothing), (f"{backlog} jobs", backlog, 1, nothing), (f"and {other} future jobs", 10000, 1, future),
            (f"and {other} finished jobs", 10000, 1, finished), ("in 1000 queues", 10000, 1000, nothing))):
        for competitor, load in loads(bench, jobs, queues).items():
            if competitor != "textbook" or "finished" not in case:
                load.bench = bench.in_database(f"size_{number}_{competitor.split()[-1]}")
                yield case, competitor, lambda l=load, s=surroundings: step(l, s)


class HeldSnapshot:
    """A transaction that took a snapshot and stays open, as a report or a backup does."""

    def __init__(self, server):
        self.session = server.session()

    def __enter__(self):
        self.session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")      # of no table, so that it may be truncated

    def __exit__(self, *_):
        self.session.close()


def over_time(bench, load, seconds, held):
    """Rates of each second; of the first and the last part as figures."""
    from workloads.latency import run_latency
    bench.reset()
    load.prepare()
    bench.server.checkpoint()
    if not isinstance(load, Cycle):
        bench.warm_executors()
    figures = {}
    if held:
        with HeldSnapshot(bench.server):
            rates = load.run(seconds)
            if isinstance(load, Chain):
                found = run_latency(bench, 100)["job: COMMIT returned -> handler starts"]
                figures = {f"{unit}, COMMIT returned to handler": value for unit, value in found.items()}
    else:
        rates = load.run(seconds)
    part = max(1, min(15 if seconds < 600 else 60, int(seconds // 4)))
    figures.update({"jobs/s, first": mean(rates[:part]), "jobs/s, last": mean(rates[-part:]), "jobs/s by second": rates})
    if isinstance(load, OneKey):
        figures["enqueued/s, first"], figures["enqueued/s, last"] = mean(load.enqueued[:part]), mean(load.enqueued[-part:])
    return figures


def held(bench):
    for competitor, load in {**loads(bench), **asked_for(bench, {"queue_jobs, one key": OneKey(bench)})}.items():
        for case, is_held in (("nothing held", False), ("snapshot held", True)):
            yield f"{case}, {bench.hold:g} s", competitor, lambda l=load, h=is_held: over_time(bench, l, bench.hold, h)


def steady(bench):
    for competitor, load in {**loads(bench), **asked_for(bench, {"queue_jobs, one key": OneKey(bench)})}.items():
        yield f"{bench.steady_seconds:g} s", competitor, lambda l=load: over_time(bench, l, bench.steady_seconds, False)
