"""How a run has ended, and the call that says so to the server."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from .connections import fetch
from .job import Discard, Job, Snooze, WaitForSignal
from .values import to_json


@dataclass
class Outcome:
    """event: what the log says of it."""

    event: str
    sql: str
    parameters: list[Any]
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.event == "failed"

    def report(self, connection: Any, job: Job) -> None:
        fetch(connection, self.sql, [job.id, job.attempt, *self.parameters])


def of_return(job: Job, value: Any) -> Outcome:
    """The handler has returned."""
    if job.next is not None:
        return Outcome("continued", "SELECT queue_jobs.continue_at(%s::bigint, %s::integer, %s::jsonb, %s::interval, %s::float8)", list(job.next))
    result = None if value is None else to_json(value)
    return Outcome("completed", "SELECT queue_jobs.complete(%s::bigint, %s::integer, %s::jsonb)", [result])


def of_snooze(delay: str | None) -> Outcome:
    return Outcome("snoozed", "SELECT queue_jobs.snooze(%s::bigint, %s::integer, %s::interval)", [delay])


def of_error(job: Job, error: BaseException) -> Outcome:
    """The handler has raised: what puts the job back is no failure, everything else is one."""
    if isinstance(error, Snooze):
        return of_snooze(error.delay)
    if isinstance(error, WaitForSignal):
        return Outcome("waiting", "SELECT queue_jobs.wait_for_signal(%s::bigint, %s::integer, %s::text, %s::interval)", [error.name, error.timeout])
    final = isinstance(error, Discard)
    message = str(error) if final else f"{type(error).__name__}: {error}"
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    # PostgreSQL's text cannot hold it.
    texts = [text.replace("\0", "\\0").encode("utf-8", "replace").decode() for text in (message, stack)]
    sql = "SELECT queue_jobs.fail(%s::bigint, %s::integer, %s::text, %s::text, %s::interval, %s::boolean)"
    return Outcome("failed", sql, [*texts, None if final else job.retry_delay, final], texts[0])
