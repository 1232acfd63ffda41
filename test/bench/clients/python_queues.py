"""The Python client beside RQ and Celery on Redis, each at its best documented settings; see run.sh.

This file is the benchmark, and the module that the workers import: each runs in a process of its own, and says by a
datagram when it begins the job of a pick-up. (Both clocks are the machine's.)

A drain: the backlog is there when the workers start; the clock runs from the first job taken until none is left.
"""
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import redis
import rq
from celery import Celery
from queue_jobs import Worker, enqueue, enqueue_many

HERE = Path(__file__).parent
JOBS = int(os.environ.get("JOBS", 20_000))
ROUNDS = int(os.environ.get("ROUNDS", 3))
LATENCIES = int(os.environ.get("LATENCIES", 200))
REDIS = os.environ["REDIS_SOCKET"]
BEGUN = os.environ.setdefault("BENCH_SOCKET", f"{os.getcwd()}/begun.sock")
LIMIT = 300     # seconds for anything

teller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def noop(told):
    if told:
        teller.sendto(str(time.monotonic()).encode(), BEGUN)


worker = Worker("")


@worker.handler("noop")
def run(job):
    noop(job.args["told"])


application = Celery("python_queues", broker=f"redis+socket://{REDIS}")
application.conf.update(task_ignore_result=True, worker_prefetch_multiplier=128)
celery_noop = application.task(noop, name="noop")


class QueueJobs:
    def __init__(self, mode, *options):
        self.options = [f"--mode={mode}", *options]
        self.settings = " ".join(self.options)
        self.command = [sys.executable, "-m", "queue_jobs", "python_queues", *self.options]
        self.connection = psycopg.connect("", autocommit=True)

    def fill(self, count):
        enqueue_many(self.connection, "noop", [{"told": False}] * count)
        self.connection.execute("CHECKPOINT")

    def enqueue(self):
        enqueue(self.connection, "noop", {"told": True})

    def left(self):
        return self.connection.execute("SELECT count(*) FROM queue_jobs.live_job").fetchone()[0]


class Rq:
    settings = "SimpleWorker, which does not fork for each job, in two processes; results not kept"
    command = ["sh", "-c", 'rq worker -q -w rq.SimpleWorker -u "unix://$REDIS_SOCKET" & exec rq worker -q -w rq.SimpleWorker -u "unix://$REDIS_SOCKET"']

    def __init__(self):
        self.connection = redis.Redis(unix_socket_path=REDIS)
        self.queue = rq.Queue(connection=self.connection)

    def fill(self, count):
        for begin in range(0, count, 1000):
            self.queue.enqueue_many([rq.Queue.prepare_data(noop, (False,), result_ttl=0) for _ in range(begin, min(begin + 1000, count))])

    def enqueue(self):
        self.queue.enqueue(noop, True, result_ttl=0)

    def left(self):
        return len(self.queue) + self.queue.started_job_registry.count


class OfCelery:
    settings = "prefork, a process for each processor, prefetch multiplier 128, results ignored, neither gossip nor mingle nor heartbeat"
    command = [sys.executable, "-m", "celery", "-q", "-A", "python_queues", "worker", "--without-gossip", "--without-mingle", "--without-heartbeat"]

    def __init__(self):
        self.connection = redis.Redis(unix_socket_path=REDIS)

    def fill(self, count):
        with application.pool.acquire(block=True) as connection, application.amqp.Producer(connection) as producer:
            for _ in range(count):
                celery_noop.apply_async((False,), producer=producer)

    def enqueue(self):
        celery_noop.delay(True)

    def left(self):
        return self.connection.llen("celery") + self.connection.hlen("unacked")


QUEUES = {
    "queue_jobs": lambda: QueueJobs("lease", "--concurrency=4", "--batch=500"),
    "queue_jobs_transaction": lambda: QueueJobs("transaction", "--concurrency=4"),
    "rq": Rq,
    "celery": OfCelery,
}


def wait_until(condition, pause=0.005):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("gave up waiting")
        time.sleep(pause)


class Running:
    """The queue's workers, for as long as the block takes."""

    def __init__(self, queue):
        self.process = subprocess.Popen(queue.command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(LIMIT)


def drain(queue):
    queue.fill(JOBS)
    with Running(queue):
        wait_until(lambda: queue.left() < JOBS, 0.001)
        begin = time.monotonic()
        wait_until(lambda: queue.left() == 0)
        return JOBS / (time.monotonic() - begin)


def latencies(queue):
    begun = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    begun.bind(BEGUN)
    begun.settimeout(LIMIT)
    measured = []
    with Running(queue):
        for _ in range(LATENCIES + 1):
            begin = time.monotonic()
            queue.enqueue()
            measured.append(1000 * (float(begun.recv(100)) - begin))
            wait_until(lambda: queue.left() == 0, 0.001)
    os.unlink(BEGUN)
    return measured[1:]     # until the first one the workers started


def main():
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS queue_jobs")
        connection.execute("SELECT queue_jobs.define_worker('noop', keep_completed => '0')")
    for name in os.environ.get("QUEUES", ",".join(QUEUES)).split(","):
        queue = QUEUES[name]()
        rate = statistics.median(drain(queue) for _ in range(ROUNDS))
        print(json.dumps({"language": "python", "queue": name, "settings": queue.settings, "jobs/s": round(rate),
                          "pick-up ms, p50": round(statistics.median(latencies(queue)), 2)}), flush=True)


if __name__ == "__main__":
    import python_queues    # as its workers import it: RQ names functions by their module

    python_queues.main()
