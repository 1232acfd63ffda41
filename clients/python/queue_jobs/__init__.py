"""The Python client of queue_jobs, the job queue inside PostgreSQL."""

from .client import aenqueue, aenqueue_many, close_batch, enqueue, enqueue_many, enqueue_workflow, new_batch, signal, try_enqueue
from .job import Discard, Job, Snooze, WaitForSignal
from .worker import Refused, Worker

__all__ = ["Discard", "Job", "Refused", "Snooze", "WaitForSignal", "Worker", "aenqueue", "aenqueue_many", "close_batch", "enqueue", "enqueue_many", "enqueue_workflow",
           "new_batch", "signal", "try_enqueue"]
