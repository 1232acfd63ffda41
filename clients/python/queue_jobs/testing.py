"""For the tests of an application: in the test's own transaction, which it rolls back in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .connections import SET_ROLE, fetch, role_of
from .job import Job, PutBack, columns
from .outcome import Outcome, of_error, of_return
from .values import to_json
from .worker import Worker


@dataclass
class Ran:
    """A job that run_due() has run: event is completed, failed, snoozed, waiting or continued."""

    job: Job
    event: str
    result: Any = None
    error: BaseException | None = None


def run_due(connection: Any, worker: Worker, *, max_jobs: int = 1000, raise_errors: bool = True) -> list[Ran]:
    """Runs every job that is due for the worker's handlers here and now, also those that they enqueue; what ran, in that order.

    The connection is any that enqueue() takes, with a transaction under way. A handler finds it as job.connection. The error of a handler is
    raised, unless raise_errors is False: then the job fails as it would outside of a test.
    """
    select = columns(connection)
    role = role_of(connection)
    ran: list[Ran] = []
    while len(ran) < max_jobs:
        rows = fetch(connection, f"SELECT {select} FROM queue_jobs.claim('test', %s::text[]) j", [worker.claimed_queues])
        if not rows:
            return ran
        ran.append(_run(connection, worker, Job(rows[0], connection, worker, own=True), role, raise_errors))
    raise AssertionError(f"more than {max_jobs} jobs are due: do they enqueue each other for ever?")


def _run(connection: Any, worker: Worker, job: Job, role: list[str], raise_errors: bool) -> Ran:
    _execute(connection, "SAVEPOINT queue_jobs")
    try:
        value, outcome, error = _call(worker, job)
        _execute(connection, "SET CONSTRAINTS ALL IMMEDIATE")
        fetch(connection, SET_ROLE, role)
    except Exception as raised:
        if raise_errors:
            raise
        _execute(connection, "ROLLBACK TO SAVEPOINT queue_jobs")
        value, outcome, error = None, of_error(job, raised), raised
    outcome.report(connection, job)
    return Ran(job, outcome.event, value, error)


def _call(worker: Worker, job: Job) -> tuple[Any, Outcome, BaseException | None]:
    try:
        value = worker.call(job)
        return value, of_return(job, value), None
    except PutBack as put_back:
        return None, of_error(job, put_back), put_back


def _execute(connection: Any, sql: str) -> None:
    """A statement without rows; SQLAlchemy's result of one cannot be read."""
    if hasattr(connection, "get_bind"):
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(sql)
    else:
        fetch(connection, sql)


def enqueued(connection: Any, worker: str, args: Any = None) -> list[dict[str, Any]]:
    """The jobs of that worker, finished or not, whose args contain these: id, args, state, queue, priority, run_at, oldest first."""
    sql = "SELECT id, args, state, queue, priority, run_at FROM queue_jobs.job WHERE worker = %s::text AND args @> %s::jsonb ORDER BY id"
    return fetch(connection, sql, [worker, to_json({} if args is None else args)])


def assert_enqueued(connection: Any, worker: str, args: Any = None, *, count: int | None = None) -> None:
    """Fails unless so many such jobs (by default: one or more) have been enqueued."""
    found = enqueued(connection, worker, args)
    if len(found) == count or (count is None and found):
        return
    others = [job["args"] for job in enqueued(connection, worker)]
    wanted = "a job" if count is None else f"{count} jobs"
    raise AssertionError(f"{wanted} of {worker} with args {args} should have been enqueued, and {len(found)} were; args of all of its jobs: {others}")
