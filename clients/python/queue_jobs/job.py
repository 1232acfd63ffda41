"""What a handler is given: the job, and what it may say about its end."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Iterable, NoReturn, Sequence

import psycopg
from psycopg.adapt import Loader
from psycopg.rows import tuple_row

from . import client
from .connections import fetch
from .values import Interval, interval, to_json

if TYPE_CHECKING:
    from .worker import Worker

# What of a claimed job we ask for, if this version of the extension has it, and how it is cast.
_COLUMNS = {
    "id": "", "worker": "::text", "queue": "::text", "priority": "", "attempt": "", "max_attempts": "", "created_at": "", "run_at": "", "args": "::text",
    "context": "::text", "errors": "::text", "cursor": "::text", "progress": "", "batch": "", "wal_lsn": "::text",
}
_JSON = ("args", "context", "errors", "cursor")


class PutBack(Exception):
    """What ends a run and puts the job back, no failure; what was written in its transaction is kept."""


class Snooze(PutBack):
    """Raised by job.snooze()."""

    def __init__(self, delay: Interval):
        super().__init__(delay)
        self.delay = interval(delay)


class WaitForSignal(PutBack):
    """Raised by job.wait_for_signal()."""

    def __init__(self, name: str, timeout: Interval | None = None):
        super().__init__(name)
        self.name = name
        self.timeout = interval(timeout)


class Discard(Exception):
    """Raised by job.discard(): the job is dead, whatever retries are left."""


class Job:
    """A claimed job. Its attributes are the columns of the view queue_jobs.job of the same names."""

    id: int
    worker: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    args: Any
    context: dict[str, Any] | None
    errors: list[dict[str, Any]] | None
    cursor: Any = None
    progress: float | None = None
    batch: int | None = None

    def __init__(self, row: dict[str, Any], connection: Any, owner: "Worker | None" = None, *, own: bool):
        self.unreadable: Exception | None = None
        for name, value in row.items():
            setattr(self, name, self._read(name, value))
        self._connection = connection
        self._owner = owner
        self._own = own
        self._steps: dict[str, Any] | None = None
        self.lost = threading.Event()
        self.retry_delay: str | None = None
        self.next: tuple[str, str | None, float | None] | None = None
        self.when_committed: list[Callable[[], Any]] = []

    def _read(self, name: str, value: Any) -> Any:
        """A column's value. What cannot be read is the error of this job alone, as if its handler had raised it."""
        try:
            if isinstance(value, _Sent):
                value = value.read(name)
            elif isinstance(value, (bytes, memoryview)):
                value = _decode(name, value)
            return json.loads(value) if name in _JSON and value is not None else value
        except Exception as error:
            self.unreadable = ValueError(f"{name} of the job cannot be read here: {type(error).__name__}: {error}")
            return None

    @property
    def connection(self) -> Any:
        """In transaction mode: the connection in whose transaction the job is claimed and completed."""
        if not self._own:
            raise RuntimeError("only in transaction mode does a job have a connection of its own; in lease mode its handler opens one")
        return self._connection

    @property
    def stopping(self) -> bool:
        """The process is to stop: a long handler may snooze() or continue_at()."""
        return self._owner is not None and self._owner.stopping

    def snooze(self, delay: Interval) -> NoReturn:
        """Ends the run and has the job run again after the delay; no attempt is charged. What was written in its transaction is kept."""
        raise Snooze(delay)

    def wait_for_signal(self, name: str, timeout: Interval | None = None) -> NoReturn:
        """Ends the run and has the job run again when the signal has come, or after the timeout; no attempt is charged.

        At once if it has come before: look with signal_payload() first. What was written in its transaction is kept.
        """
        raise WaitForSignal(name, timeout)

    def discard(self, reason: str) -> NoReturn:
        """Ends the run as failed for good: the job is dead."""
        raise Discard(reason)

    def retry_in(self, delay: Interval) -> None:
        """If this run fails, the next attempt is due after that delay, whatever the worker's backoff says."""
        self.retry_delay = interval(delay)

    def continue_at(self, cursor: Any, delay: Interval | None = None, progress: float | None = None) -> None:
        """When the handler returns, the job is not completed, but runs again from this cursor."""
        self.next = (to_json(cursor), interval(delay), progress)

    def report(self, progress: float | None = None, message: str | None = None) -> None:
        """Says how far the job is: others see it at once in the view job. What is left out stays as this run has said before."""
        self._call("report", ("bigint", self.id), ("integer", self.attempt), ("float8", progress), ("text", message))

    def after_commit(self, function: Callable[[], Any]) -> None:
        """Transaction mode: calls the function when the run has been committed. It is lost if the process ends just then; a job of its own is not."""
        self.when_committed.append(function)

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Calls the function once per job and name; a later run gets what it returned.

        In transaction mode the value belongs to the transaction of the run: it goes back with it if the handler fails.
        """
        if self._steps is None:
            self._steps = json.loads(self._call("steps", ("bigint", self.id), cast="::text") or "{}")
        if name not in self._steps:
            value = to_json(function())
            self._call("save_step", ("bigint", self.id), ("integer", self.attempt), ("text", name), ("jsonb", value))
            self._steps[name] = json.loads(value)
        return self._steps[name]

    def signals(self) -> dict[str, Any]:
        """The payloads of the signals that were sent to this job so far, by their names."""
        return json.loads(self._call("signals", ("bigint", self.id), cast="::text"))

    def signal_payload(self, name: str) -> Any:
        """The payload of the signal of that name; None if it has not come. (Its payload may be None, too: then signals() has the name.)"""
        return self.signals().get(name)

    def signal(self, job: int, name: str, payload: Any = None) -> bool:
        """Sends a signal to another job."""
        return self._with(lambda connection: client.signal(connection, job, name, payload))

    def enqueue(self, worker: str, args: Any = None, **options: Any) -> int | None:
        """Enqueues another job: in transaction mode with this run's end, or not at all; in lease mode at once."""
        return self._with(lambda connection: client.enqueue(connection, worker, args, **options))

    def enqueue_many(self, worker: str, args: Iterable[Any], **options: Any) -> list[int]:
        return self._with(lambda connection: client.enqueue_many(connection, worker, args, **options))

    def batch_results(self, batch: int | None = None) -> list[dict[str, Any]]:
        """What the members of a batch have returned: job, step, worker, args, state, result.

        By default of the batch whose callback this is, or else of the job's own.
        """
        if batch is None:
            batch = self.args.get("batch") if isinstance(self.args, dict) else None
        sql = "SELECT job, step, worker, args::text, state, result::text FROM queue_jobs.batch_results(%s::bigint)"
        rows = self._with(lambda connection: fetch(connection, sql, [self.batch if batch is None else batch]))
        return [{**row, **{name: json.loads(row[name]) for name in ("args", "result") if row[name] is not None}} for row in rows]

    def results(self) -> dict[str, Any]:
        """In a workflow: what the steps before this one have returned, by their names."""
        if self.batch is None:
            return {}
        sql = """SELECT r.step, r.result::text AS result FROM queue_jobs.workflow_step s JOIN queue_jobs.batch_results(s.batch) r ON r.step = ANY (s.after)
                  WHERE s.batch = %s::bigint AND s.job = %s::bigint"""
        rows = self._with(lambda connection: fetch(connection, sql, [self.batch, self.id]))
        return {row["step"]: None if row["result"] is None else json.loads(row["result"]) for row in rows}

    def _with(self, work: Callable[[Any], Any]) -> Any:
        return work(self._connection) if self._own or self._owner is None else self._owner.aside(work)

    def _call(self, function: str, *parameters: tuple[str, Any], cast: str = "") -> Any:
        arguments = ", ".join(f"%s::{kind}" for kind, _ in parameters)
        sql = f"SELECT queue_jobs.{function}({arguments}){cast} AS value"
        return self._with(lambda connection: fetch(connection, sql, [value for _, value in parameters]))[0]["value"]

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.worker}, attempt {self.attempt}>"


class _Sent:
    """A text or a time as the server has sent it."""

    def __init__(self, data: bytes, oid: int, connection: psycopg.Connection):
        self._data, self._oid, self._connection = data, oid, connection

    def read(self, name: str) -> Any:
        if self._oid == psycopg.adapters.types["text"].oid:
            return _decode(name, self._data)
        loader = self._connection.adapters.get_loader(self._oid, psycopg.pq.Format.TEXT)
        assert loader is not None
        return loader(self._oid, self._connection).load(self._data)


def _decode(name: str, data: Any) -> str:
    """A column's text. The server may have cut an error in the middle of a character."""
    return bytes(data).decode("utf-8", "replace" if name == "errors" else "strict")


class _SentLoader(Loader):
    def load(self, data: Any) -> _Sent:
        assert isinstance(self.connection, psycopg.Connection)
        return _Sent(bytes(data), self.oid, self.connection)


def fetch_claimed(connection: psycopg.Connection, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows for Job(): their texts and times are read there, so that one which cannot be read stands in no other's way."""
    cursor = connection.cursor(row_factory=tuple_row)
    for kind in ("text", "timestamptz"):
        cursor.adapters.register_loader(kind, _SentLoader)
    cursor.execute(sql, parameters, prepare=False)
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def columns(connection: Any) -> str:
    """The list of columns to select of claim() AS j."""
    rows = fetch(connection, """
        SELECT attname::text AS name, pg_catalog.current_setting('server_encoding') = 'SQL_ASCII' AS any_bytes
          FROM pg_catalog.pg_attribute WHERE attrelid = 'queue_jobs.job'::pg_catalog.regclass""")
    # The server refuses to send text that is not in our encoding; a database in SQL_ASCII may have such.
    texts = "pg_catalog.convert_to(j.{0}::text, 'SQL_ASCII') AS {0}" if rows[0]["any_bytes"] else "j.{0}::text AS {0}"
    have = {row["name"] for row in rows}
    return ", ".join((texts if cast else "j.{0} AS {0}").format(name) for name, cast in _COLUMNS.items() if name in have)
