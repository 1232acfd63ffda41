"""From COMMIT to the handler's first statement; measured by latency.c, which says how."""
import re
import subprocess


def run_latency(bench, jobs, options=()):
    done = subprocess.run(["./latency", bench.server.conninfo("app"), f"--jobs={jobs}", "--cold=0", *options],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(\S.*?\S) +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+)$", line)
        if match:
            p50, _, p99, maximum = map(float, match.groups()[1:])
            found[match.group(1)] = {"ms p50": p50, "ms p99": p99, "ms max": maximum}
    return found


def idle_server(bench):
    jobs = 500 if bench.full else 100

    def step():
        bench.reset()
        found = run_latency(bench, jobs)
        return {f"{unit}, {who}": value for label, who in LABELS.items() for unit, value in found[label].items()}

    yield f"{jobs} jobs on an idle server", "queue_jobs", step


LABELS = {
    "job: COMMIT returned -> handler starts": "COMMIT returned to handler",
    "job: COMMIT sent -> handler starts": "COMMIT sent to handler",
    "NOTIFY: there and back": "NOTIFY there and back",
}


def flooded_lane(bench):
    """Executors are busy with one worker's backlog (a larger one if it does not last) while another worker's jobs come in, one at a time."""
    flood = 1000000 if bench.full else 300000
    jobs = 2000 if bench.full else 1000  # of 100, a percentile moved by a third from round to round

    def step(flood=flood):
        bench.reset()
        bench.server.sql("SELECT queue_jobs.pause('noop_gone')", "app")
        bench.backlog("noop_gone", flood)
        bench.server.sql("SELECT queue_jobs.resume('noop_gone')", "app")
        found = run_latency(bench, jobs, ["--pause=1"])["job: COMMIT returned -> handler starts"]
        over = bench.server.sql("SELECT count(*) FROM queue_jobs.live_job") == "0"
        bench.server.sql("SELECT queue_jobs.pause('noop_gone')", "app")
        bench.reset()
        bench.server.sql("SELECT queue_jobs.resume('noop_gone')", "app")
        if over:
            return step(flood * 2)
        return {f"{unit}, COMMIT returned to handler": value for unit, value in found.items()}

    yield f"beside {flood} jobs of another lane", "queue_jobs", step
