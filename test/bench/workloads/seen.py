"""What it takes to look: the views that monitoring reads, and the dashboard's overview, beside many jobs."""
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from statistics import median

QUEUES = 20
LOOKS = 9
WEB = Path(__file__).resolve().parents[3] / "web"


def milliseconds(look):
    begin = time.monotonic()
    look()
    return (time.monotonic() - begin) * 1000


class Dashboard:
    """queue_jobs_web on a port of its own choice. Answers of the last second are given again, so each look here comes later."""

    def __init__(self, server):
        environment = dict(os.environ, PGHOST=server.directory, PGUSER="postgres", PGDATABASE=server.database)
        self.process = subprocess.Popen([WEB / "queue_jobs_web", "--listen=127.0.0.1:0"], env=environment, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def look(self):
        time.sleep(1.1)
        return milliseconds(self.get)

    def get(self):
        with urllib.request.urlopen(self.url) as reply:
            page = reply.read().decode()
        if f"seen{QUEUES - 1}" not in page or 'class="problem"' in page:
            raise RuntimeError("not the overview: " + page)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def has_dashboard(bench):
    made = subprocess.run(["make", "-s", "-C", WEB], capture_output=True, text=True)
    if made.returncode != 0:
        bench.notes.append("the dashboard could not be built")
    return made.returncode == 0


def seen(bench):
    """Jobs of 20 workers, a fifth of them scheduled, which no process takes."""
    jobs = int(5000000 * bench.scale)
    other = bench.in_database("seen")
    filled = []

    def fill():
        server = other.server
        server.sql(f"SELECT count(queue_jobs.define_worker('seen' || i)) FROM generate_series(0, {QUEUES - 1}) AS i", "app")
        for i in range(QUEUES):
            other.backlog(f"seen{i}", jobs // QUEUES * 4 // 5)
            other.backlog(f"seen{i}", jobs // QUEUES // 5, ", delay => '1 day'")
        server.sql("VACUUM (ANALYZE) queue_jobs.live_job")
        server.checkpoint()
        filled.append(True)

    def look_at(view):
        if not filled:
            fill()
            return {**look_after_start(view), **look_at(view)}
        first, warm = [], []
        for _ in range(LOOKS):
            session = other.server.session()
            look = f"SELECT max(v::text) FROM queue_jobs.{view} v"      # all columns: the planner leaves out what is not asked for
            session.sql("SELECT 1")
            first.append(milliseconds(lambda: session.sql(look)))
            session.sql(look)
            warm.append(milliseconds(lambda: session.sql(look)))
            session.close()
        return {"ms, first look of a session": median(first), "ms, later look": median(warm)}

    def look_after_start(view):
        """Rows are counted, for all later looks."""
        session = other.server.session()
        took = milliseconds(lambda: session.sql(f"SELECT max(v::text) FROM queue_jobs.{view} v"))
        session.close()
        return {"ms, very first look at the database": took}

    def look_at_overview():
        if not filled:
            fill()
        dashboard = Dashboard(other.server)
        try:
            dashboard.get()
            return {"ms, overview": median(dashboard.look() for _ in range(LOOKS))}
        finally:
            dashboard.stop()

    case = f"{jobs} jobs"
    yield case, "queue_jobs, queue", lambda: look_at("queue")
    yield case, "queue_jobs, metric", lambda: look_at("metric")
    if has_dashboard(bench):
        yield case, "queue_jobs, dashboard", look_at_overview
