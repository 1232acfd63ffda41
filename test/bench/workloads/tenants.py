"""Many databases, a few of them at work: how soon the first job of one starts that has rested; measured by tenants.c, which says how."""
import re
import subprocess
import time
from pathlib import Path

WORKER = """
CREATE TABLE sent (n int, at timestamptz);
CREATE TABLE started (n int, at timestamptz);
CREATE FUNCTION note(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO public.started VALUES (n, clock_timestamp()); SELECT pg_sleep(0.005)';
SELECT queue_jobs.define_worker('note', 'public.note');
"""
WORKER_SLOTS = 32
OURS = "backend_type IN ('queue_jobs scheduler', 'queue_jobs executor')"


def run_tenants(bench, databases, at_work, seconds):
    done = subprocess.run(["./tenants", f"host={bench.server.directory} user=postgres", f"--databases={databases}", f"--at_work={at_work}",
                           f"--seconds={seconds}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found = {}
    for label, what in (("first job after a rest", "first job"), ("those after it", "those after it")):
        p50, _, p99, maximum = re.search(rf"^{label} +\d+ +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+)$", done.stdout, re.M).groups()
        found |= {f"ms p50, {what}": float(p50), f"ms p99, {what}": float(p99), f"ms max, {what}": float(maximum)}
    found["jobs not run"] = float(re.search(r"^not run +(\d+)$", done.stdout, re.M).group(1))
    return found


def restart(bench):
    """With the options that it was started with."""
    subprocess.run(["pg_ctl", "-s", "-w", "-t", "600", "-m", "fast", "-D", bench.server.data, "-l", "server.log", "restart"], check=True)


def create(bench, databases):
    server = bench.server
    template = server.in_database("tenant")
    server.sql("CREATE DATABASE tenant")
    template.sql("CREATE EXTENSION queue_jobs;" + WORKER)
    bench.databases.append("tenant")
    session = server.session()
    for number in range(1, databases + 1):
        session.sql(f"CREATE DATABASE tenant_{number} TEMPLATE tenant STRATEGY file_copy")
        bench.databases.append(f"tenant_{number}")
    session.close()


def tenants(bench):
    """With the server's default settings but for the number of worker slots."""
    databases = 500 if bench.full else 60
    at_work = 20
    seconds = 60 if bench.full else 15
    create(bench, databases)
    bench.server.sql(f"ALTER SYSTEM SET max_worker_processes = {WORKER_SLOTS}")
    restart(bench)

    def with_default_slots():
        bench.server.sql("ALTER SYSTEM RESET max_worker_processes")
        restart(bench)

    bench.undo.append(with_default_slots)

    def rested():
        time.sleep(seconds)      # until all databases have been looked into
        bench.server.wait_until(f"NOT EXISTS (SELECT FROM pg_stat_activity WHERE {OURS})")
        return run_tenants(bench, databases, at_work, seconds)

    def restarted():
        restart(bench)
        return run_tenants(bench, databases, at_work, seconds)

    def promoted():
        (Path(bench.server.data) / "standby.signal").touch()
        restart(bench)
        subprocess.run(["pg_ctl", "-s", "-w", "-D", bench.server.data, "promote"], check=True)
        return run_tenants(bench, databases, at_work, seconds)

    for what, step in (("", rested), (", from a restart on", restarted), (", from a promotion on", promoted)):
        yield f"{databases} databases, {at_work} at work{what}", "queue_jobs", step
