#!/usr/bin/env python3
"""Runs the workloads on the throwaway server and writes what was measured as JSON: medians and all samples.

    bench.py SOCKET_DIRECTORY DATA_DIRECTORY DATABASE OUTPUT.json

Everything else by environment variables; see `make bench` in docs/benchmark/README.md.
"""
import copy
import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from server import Server
from peers import PEERS, find_peers
from workloads import cost, drain, enqueue, flat, latency, related, seen, tenants

WORKLOADS = {
    "enqueue": enqueue.one_a_transaction,
    "bulk": enqueue.bulk,
    "duplicates": enqueue.duplicates,
    "waiting": enqueue.waiting,
    "executors": drain.executors,
    "claimants": drain.claimants,
    "together": drain.together,
    "batch": related.batch,
    "workflow": related.workflow,
    "slices": related.slices,
    "latency": latency.idle_server,
    "flood": latency.flooded_lane,
    "seen": seen.seen,
    "cost": cost.wal_and_disk,
    "idle": cost.idle,
    "size": flat.size,
    "held": flat.held,
    "steady": flat.steady,
    "tenants": tenants.tenants,
}

MINUTES = ("idle", "held", "steady", "tenants")                     # workloads that take minutes have rounds of their own
SETUP = ("raw/setup.sql", "raw/ceiling.sql", "textbook/setup.sql", "queue_jobs/setup.sql")
YARDSTICKS = ("raw", "on conflict", "queue_jobs")      # always there


class Bench:
    """What the workloads share: the server, the parameters, and the states they start from."""

    def __init__(self, server):
        environment = os.environ
        full = environment.get("FULL", "") not in ("", "0")

        def number(name, quick, otherwise):
            value = float(environment.get(name) or (otherwise if full else quick))
            return int(value) if value.is_integer() else value

        def words(name, quick, otherwise):
            return environment[name].split(",") if environment.get(name) else otherwise if full else quick

        self.server = server
        self.full = full
        self.duration = number("DURATION", 1, 5)
        self.rounds = int(number("ROUNDS", 3, 3))
        self.held_rounds = number("HELD_ROUNDS", 1, 1)
        self.hold = number("HOLD", 8, 180)
        self.steady_seconds = number("STEADY", 30, 600)
        self.scale = number("SCALE", 0.02, 1)
        self.idle_seconds = number("IDLE", 5, 60)
        self.clients = [int(c) for c in words("CLIENTS", ["8"], ["1", "2", "8", "16"])]
        self.workloads = words("WORKLOADS", [name for name in WORKLOADS if name not in ("steady", "tenants")], list(WORKLOADS))
        self.competitors = words("COMPETITORS", ["textbook", "graphile_worker"], ["textbook", *PEERS])
        self.loads = words("LOADS", [], [])          # none: all
        self.notes = []
        self.peers = {}
        self.databases = []
        self.undo = []               # what a workload has changed of the server, functions

    def rounds_of(self, workload):
        """What "size" compares hardly differs: more rounds, but for a quick look."""
        return self.held_rounds if workload in MINUTES else 3 * self.rounds if workload == "size" and self.full else self.rounds

    def set_up(self):
        for script in SETUP:
            self.server.file(script)

    def in_database(self, name):
        """The same bench in a database of its own, without peers; there until drop_databases()."""
        self.server.sql(f"CREATE DATABASE {name}")
        self.databases.append(name)
        other = copy.copy(self)
        other.peers = {}
        other.server = self.server.in_database(name)
        other.server.file("queue_jobs/database.sql")
        other.set_up()
        return other

    def clean_up(self):
        self.drop_databases()
        while self.undo:
            self.undo.pop()()

    def drop_databases(self):
        while self.databases:
            self.server.sql(f"DROP DATABASE {self.databases.pop()} WITH (FORCE)")

    def having(self, competitors):
        """Those of the competitors that take part: asked for, and installed."""
        return [c for c in competitors
                if c in YARDSTICKS or c in self.competitors and (c not in PEERS or c in self.peers)]

    def reset(self):
        """Empty tables; nothing runs. The scheduler, which looks at the same tables in another order, may be in the way."""
        self.server.sql_again("TRUNCATE queue_jobs.live_job, queue_jobs.finished_job, raw.job, raw.unique_job, raw.backlog, textbook.job,"
                              " queue_jobs.tracked_batch, queue_jobs.joint_member, queue_jobs.member_range, queue_jobs.dependency, queue_jobs.saved_step")
        for peer in self.peers.values():
            peer.reset()

    def backlog(self, worker, jobs, more=""):
        args = "'q', 'q0'" if worker == "chain" else "'id', i % 100000 + 1"       # what its handler takes
        for start in range(0, jobs, 200000):
            number = min(200000, jobs - start)
            self.server.sql(f"SELECT count(*) FROM queue_jobs.enqueue_many('{worker}',"
                            f" ARRAY(SELECT jsonb_build_object({args}) FROM generate_series(1, {number}) AS i){more})", "app")

    def warm_executors(self):
        """All executors are started, and wait."""
        self.backlog("warm", 2000)
        self.server.wait_until("NOT EXISTS (SELECT FROM queue_jobs.live_job l JOIN queue_jobs.lane n ON n.id = l.lane"
                               " WHERE n.worker = 'warm')")


def machine(server):
    def first(command):
        try:
            return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
        except (OSError, IndexError):
            return None

    model = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024 // 1024
    return {"processors": f"{os.cpu_count()} × {model[0] if model else platform.machine()}", "memory": f"{memory} GB",
            "system": f"{platform.system()} {platform.release()}", "postgresql": server.sql("SHOW server_version"),
            "queue_jobs": server.sql("SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'"),
            "node": first(["node", "--version"]), "commit": os.environ.get("COMMIT") or None}


def measure(bench, workload):
    """All rounds of a workload; every other round backwards, so that what drifts hits each competitor alike."""
    results = {}
    steps = list(WORKLOADS[workload](bench))
    for turn in range(bench.rounds_of(workload)):
        for case, competitor, function in steps if turn % 2 == 0 else reversed(steps):
            for unit, value in function().items():
                sample = results.setdefault((case, competitor, unit), [])
                sample.append(value)
                if not isinstance(value, list):
                    print(f"{workload} · {case} · {competitor}: {value:.4g} {unit}", flush=True)
    return [{"workload": workload, "case": case, "competitor": competitor, "unit": unit, "samples": samples}
            for (case, competitor, unit), samples in results.items()]


def main():
    directory, data, database, output = sys.argv[1:]
    server = Server(directory, data, database)
    bench = Bench(server)
    bench.set_up()
    bench.peers = find_peers(bench)
    for note in bench.notes:
        print(note, flush=True)
    sections = {}
    for workload in bench.workloads:
        begin, load = time.monotonic(), os.getloadavg()[0]
        sections[workload] = {
            "results": measure(bench, workload),
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "parameters": {"rounds": bench.rounds_of(workload), "duration": bench.duration, "clients": bench.clients, "hold": bench.hold,
                           "steady": bench.steady_seconds, "scale": bench.scale},
            "load": round(load, 1),      # of the machine at its beginning: other work beside it would show
            "seconds": round(time.monotonic() - begin, 1),
        }
        bench.clean_up()
        notes = bench.notes + sorted(server.warnings)
        Path(output).write_text(json.dumps({"machine": machine(server), "notes": notes, "workloads": sections}, indent=1))


if __name__ == "__main__":
    main()
