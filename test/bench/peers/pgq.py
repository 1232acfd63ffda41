"""PgQ, from Debian's package: batches of a log of events that are read by one consumer, rather than jobs that are taken one by one."""
import time


class PgQ:
    name = "pgq"
    settings = ("one consumer",)
    tasks = ("noop",)
    TICK = 10000        # events

    def __init__(self, bench):
        self.bench = bench
        bench.server.file("pgq/setup.sql")
        bench.notes.append("pgq " + bench.server.sql("SELECT pgq.version()"))

    def reset(self):
        """Reads what is there."""
        self.bench.server.sql("SELECT pgq.ticker()", "app")

    def enqueue_many(self, task, jobs):
        for start in range(0, jobs, self.TICK):
            self.bench.server.sql("SELECT count(pgq.insert_event('bench', '%s', '{\"n\": 1}')) FROM generate_series(1, %d)"
                                  % (task, min(self.TICK, jobs - start)), "app")
            self.bench.server.sql("SELECT pgq.force_tick('bench')", "app")
            self.bench.server.sql("SELECT pgq.ticker('bench')", "app")
