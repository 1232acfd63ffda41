"""A module with a Worker, for `python -m queue_jobs`."""

import os

from queue_jobs import Worker

worker = Worker()


@worker.handler(os.environ["WORKER"])
def handler(job):
    return job.attempt
