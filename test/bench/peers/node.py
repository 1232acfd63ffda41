"""graphile-worker and pg-boss, installed by npm into the throwaway directory; the programs beside this file run them."""
import json
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
NODE = HERE / "node_modules" / "node" / "bin" / "node"     # npm has Node itself, whatever version the system has
NODE_MAJOR = "22"


class NodePeer:
    tasks = {"noop": "no-op, nothing kept", "update": "one-row UPDATE"}      # and the case that each is

    def __init__(self, bench):
        self.bench = bench
        install("node", NODE_MAJOR)
        install(self.package, self.major)
        bench.notes.append(f"{self.name} {version(self.package)} on Node {version('node')}")
        bench.server.sql(f"GRANT CREATE ON DATABASE {bench.server.database} TO app")
        self.node("setup")

    def node(self, *arguments, synchronous=False):
        done = subprocess.run([NODE, HERE / self.program, self.bench.server.conninfo("app"), *map(str, arguments)],
                              capture_output=True, text=True, timeout=600,
                              env=dict(os.environ, PGOPTIONS=f"-c synchronous_commit={'on' if synchronous else 'off'}", PGHOST=self.bench.server.directory, PGUSER="app", PGDATABASE=self.bench.server.database))
        if done.returncode != 0:
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout

    def drain(self, task, setting, seconds):
        """The backlog is there when the program starts; it reports how long it worked, from its first job on."""
        server = self.bench.server
        jobs = int(max(30000, 30000 * seconds))
        self.bench.reset()
        self.enqueue_many(task, jobs)
        server.checkpoint()
        cpu = server.cpu_seconds()
        took = json.loads(self.node("drain", task, setting, jobs).splitlines()[-1])["seconds"]
        cpu = server.cpu_seconds() - cpu
        return {"jobs/s": jobs / took, "server CPU s per 100,000 jobs": cpu * 100000 / jobs}


def version(package):
    return json.loads((HERE / "node_modules" / package / "package.json").read_text())["version"]


def install(package, major):
    if not (HERE / "node_modules" / package).exists():
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", HERE, f"{package}@{major}"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("npm: " + (done.stderr or done.stdout))


class GraphileWorker(NodePeer):
    name = "graphile_worker"
    package, major = "graphile-worker", "0.18"
    program = "graphile_worker.mjs"
    # As its documentation's page on performance has it; that page recommends more than one process, too.
    settings = ("1 process", "2 processes")

    def enqueue_many(self, task, jobs):
        self.bench.server.sql("SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT ROW('%s', json_build_object('id', i %% 100000 + 1),"
                              " NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec FROM generate_series(1, %d) AS i))" % (task, jobs), "app")

    def reset(self):
        self.bench.server.sql("TRUNCATE graphile_worker._private_jobs")


class PgBoss(NodePeer):
    name = "pg_boss"
    package, major = "pg-boss", "12"
    program = "pg_boss.mjs"
    settings = ("8 loops, batches of 500",)

    def enqueue_many(self, task, jobs):
        self.node("enqueue_many", task, jobs)

    def calls(self, how, keys, seconds, synchronous):
        """Calls a second that change the job of their key, by its client."""
        return json.loads(self.node("calls", "noop", how, keys, seconds, synchronous=synchronous).splitlines()[-1])["rate"]

    def flow(self, shape, steps, resolver):
        """A chain, or a fan-in whose last step waits for the others, by flow(); times are those of its own rows."""
        server = self.bench.server
        self.bench.reset()
        wal = server.wal_position()
        self.node("flow", "noop", shape, steps, resolver)
        measured = {"steps/s": steps / float(server.sql("SELECT extract(epoch FROM max(completed_on) - min(started_on)) FROM pgboss.job")),
                    "WAL bytes per step": (server.wal_position() - wal) / steps}
        if shape == "fan_in":
            last = "data ->> 'id' = '%d'" % (steps - 1)
            measured["ms, last parent's end to the step's start"] = 1000 * float(server.sql(
                f"SELECT extract(epoch FROM max(started_on) FILTER (WHERE {last}) - max(completed_on) FILTER (WHERE NOT {last})) FROM pgboss.job"))
        return measured

    def reset(self):
        self.bench.server.sql("TRUNCATE pgboss.job, pgboss.job_dependency")
