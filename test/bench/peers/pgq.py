"""PgQ, from Debian's package: a log of events that one consumer reads in batches, rather than jobs that are taken one by one."""


class PgQ:
    name = "pgq"
    settings = ("one consumer",)
    tasks = {"noop": "events of a log, in batches of 10000"}
    BATCH = 10000        # events between two ticks

    def __init__(self, bench):
        self.bench = bench
        bench.server.file("pgq/setup.sql")
        bench.notes.append("pgq " + bench.server.sql("SELECT pgq.version()"))

    def reset(self):
        self.bench.server.file("pgq/reset.sql")

    def enqueue_many(self, task, jobs):
        for _ in range(jobs // self.BATCH):
            self.bench.server.sql(f"SELECT count(pgq.insert_event('bench', '{task}', '{{\"n\": 1}}')) FROM generate_series(1, {self.BATCH})", "app")
            self.bench.server.sql("SELECT pgq.force_tick('bench')", "app")
            self.bench.server.sql("SELECT pgq.ticker('bench')", "app")

    def drain(self, task, setting, seconds):
        server = self.bench.server
        batches = int(max(10, 10 * seconds))
        self.bench.reset()
        self.enqueue_many(task, batches * self.BATCH)
        server.checkpoint()
        cpu = server.cpu_seconds()
        rate, _ = server.pgbench("pgq/drain.sql", 1, "-t", batches, synchronous=False)
        cpu = server.cpu_seconds() - cpu
        if server.sql("SELECT pgq.next_batch('bench', 'bench')", "app"):
            raise RuntimeError("events are left")
        return {"jobs/s": rate * self.BATCH, "server CPU s per 100,000 jobs": cpu * 100000 / (batches * self.BATCH)}
