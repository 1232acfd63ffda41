"""How a run has ended, and the call that says so to the server."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from typing import Any, Callable

from .connections import fetch
from .job import Discard, Job, Snooze, WaitForSignal
from .log import log
from .values import to_json

# The server cuts an error's texts to less.
LONGEST_TEXT = 100_000
# A job of which nothing can be written runs again so much later.
PUT_BACK = "1 min"


@dataclass
class Outcome:
    """event: what the log says of it."""

    event: str
    sql: str
    parameters: list[Any]
    error: str | None = None
    final: bool = False

    @property
    def failed(self) -> bool:
        return self.event == "failed"

    def report(self, connection: Any, job: Job) -> None:
        fetch(connection, self.sql, [job.id, job.attempt, *self.parameters])


def _delay(value: str | None) -> str:
    """The parameter of a delay: one below zero is none."""
    return "%s::interval" if value is None else "greatest(%s::interval, '0')"


def of_return(job: Job, value: Any) -> Outcome:
    """The handler has returned."""
    if job.next is not None:
        delay = _delay(job.next[1])
        return Outcome("continued", f"SELECT queue_jobs.continue_at(%s::bigint, %s::integer, %s::jsonb, {delay}, %s::float8)", list(job.next))
    result = None if value is None else to_json(value)
    return Outcome("completed", "SELECT queue_jobs.complete(%s::bigint, %s::integer, %s::jsonb)", [result])


def of_snooze(delay: str | None, error: str | None = None) -> Outcome:
    return Outcome("snoozed", f"SELECT queue_jobs.snooze(%s::bigint, %s::integer, {_delay(delay)})", [delay], error)


def of_error(job: Job, error: BaseException) -> Outcome:
    """The handler has raised: what puts the job back is no failure, everything else is one."""
    try:
        if isinstance(error, Snooze):
            return of_snooze(error.delay)
        if isinstance(error, WaitForSignal):
            sql = f"SELECT queue_jobs.wait_for_signal(%s::bigint, %s::integer, %s::text, {_delay(error.timeout)})"
            return Outcome("waiting", sql, [error.name, error.timeout])
    except Exception as other:  # of a class derived from these
        error = other
    final = isinstance(error, Discard)
    message = _text(lambda: str(error) if final else f"{type(error).__name__}: {error}", error)
    stack = _text(lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)), error)
    return _failed(message, stack, None if final else job.retry_delay, final)


def _failed(message: str, stack: str | None, delay: str | None, final: bool) -> Outcome:
    sql = f"SELECT queue_jobs.fail(%s::bigint, %s::integer, %s::text, %s::text, {_delay(delay)}, %s::boolean)"
    return Outcome("failed", sql, [message, stack, delay, final], message, final)


def _text(make: Callable[[], str], error: BaseException) -> str:
    """A text of an error, whose own methods may raise what they like, in characters that PostgreSQL has."""
    try:
        return make()[:LONGEST_TEXT].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    except BaseException as other:
        return f"{type(error).__qualname__}, whose text cannot be made: it raises {type(other).__qualname__}"


def write(job: Job, outcome: Outcome, report: Callable[[Outcome], None], give_up: Callable[[Exception], bool]) -> Outcome:
    """Reports the outcome; if that is refused, as a failure with nothing in it that can be; if even that is, it puts the job back.

    What was written in the end. give_up: whether an error is none of the outcome's own; it is raised then.
    """
    for otherwise in (_refused, _put_back):
        try:
            report(outcome)
            return outcome
        except Exception as error:
            if give_up(error):
                raise
            log(logging.ERROR, "error", job=job.id, worker=job.worker, attempt=job.attempt, outcome=outcome.event, error=_text(lambda: str(error).strip(), error))
            outcome = otherwise(job, outcome, error)
    report(outcome)
    return outcome


def _refused(job: Job, outcome: Outcome, error: Exception) -> Outcome:
    why = _text(lambda: str(error).strip(), error)
    message = f"{outcome.error} (not written as it is: {why})" if outcome.failed else f'the outcome "{outcome.event}" cannot be written: {why}'
    return _failed(message.encode("ascii", "backslashreplace").decode(), None, None, outcome.final)


def _put_back(job: Job, outcome: Outcome, error: Exception) -> Outcome:
    return of_snooze(PUT_BACK, f"{outcome.error}; not written: {_text(lambda: str(error).strip(), error)}")
