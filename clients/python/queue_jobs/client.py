"""Enqueues within the caller's own transaction: what is rolled back was never enqueued.

Each function takes a connection first (see connections.py). Those whose name begins with "a" are the same for asynchronous connections.
"""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Callable, Iterable, NamedTuple, Optional

from .connections import afetch, fetch
from .values import Interval, interval, timestamp, to_json

# The context of the job that this thread or task runs. What its handler enqueues inherits it.
job_context: ContextVar[Optional[dict[str, Any]]] = ContextVar("queue_jobs_context", default=None)


class Call(NamedTuple):
    sql: str
    parameters: list[Any]


class Step(NamedTuple):
    """A job of a workflow."""

    step: str
    job: int


def _array(values: Iterable[int]) -> list[int]:
    return list(values)


# How each option of enqueue() is cast, and how its value becomes that text.
_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "run_at": ("timestamptz", timestamp),
    "delay": ("interval", interval),
    "priority": ("integer", int),
    "queue": ("text", str),
    "dedup_key": ("text", str),
    "context": ("jsonb", to_json),
    "expires_in": ("interval", interval),
    "jitter": ("interval", interval),
    "batch": ("bigint", int),
    "after": ("bigint[]", _array),
    "if_dead": ("text", str),
    "max_retries": ("integer", int),
    "timeout": ("interval", interval),
    "keep_completed": ("interval", interval),
    "tags": ("text[]", list),
    "if_waiting": ("text", str),
    "max_delay": ("interval", interval),
    "run_ats": ("timestamptz[]", lambda times: [timestamp(time) for time in times]),
    "priorities": ("integer[]", list),
    "dedup_keys": ("text[]", list),
    "batch_size": ("integer", int),
    "batch_interval": ("interval", interval),
    "on_success": ("text", str),
    "on_ended": ("text", str),
    "on_dead": ("text", str),
    "args": ("jsonb", to_json),
    "parent": ("bigint", int),
    "open": ("boolean", bool),
    "keep": ("interval", interval),
    "name": ("text", str),
}


def _call(function: str, positional: list[tuple[str, Any]], options: dict[str, Any]) -> Call:
    """A call with those of the options that are given; the function's own defaults stand for the others."""
    given = {name: value for name, value in options.items() if value is not None}
    arguments = [f"%s::{cast}" for cast, _ in positional]
    arguments += [f"{name} => %s::{_OPTIONS[name][0]}" for name in given]
    values = [value for _, value in positional] + [_OPTIONS[name][1](value) for name, value in given.items()]
    return Call(f"SELECT * FROM queue_jobs.{function}({', '.join(arguments)}) AS result", values)


def _context(context: dict[str, Any] | None) -> dict[str, Any] | None:
    """The context given, or the running job's; with the trace that OpenTelemetry has under way, if the application uses it."""
    if context is None:
        context = job_context.get()
    if "opentelemetry.propagate" not in sys.modules:
        return context
    carrier: dict[str, Any] = {}
    sys.modules["opentelemetry.propagate"].inject(carrier)
    return {**(context or {}), **carrier} or None


def _enqueue(function: str, worker: str, args: Any, options: dict[str, Any]) -> Call:
    options = {**options, "context": _context(options.get("context"))}
    return _call(function, [("text", worker), ("jsonb", to_json({} if args is None else args))], options)


def _enqueue_many(worker: str, args: Iterable[Any], contexts: Iterable[Any] | None, options: dict[str, Any]) -> Call:
    texts = [to_json(one) for one in args]
    context = _context(None)
    if contexts is None and context is not None:
        contexts = [context] * len(texts)
    positional = [("text", worker), ("text[]::jsonb[]", texts)]
    if contexts is not None:
        positional.append(("text[]::jsonb[]", [to_json(one) for one in contexts]))
    return _call("enqueue_many", positional, options)


def _one(rows: list[dict[str, Any]]) -> Any:
    return rows[0]["result"] if rows else None


def enqueue(connection: Any, worker: str, args: Any = None, *, run_at: datetime | str | None = None, delay: Interval | None = None,
            priority: int | None = None, queue: str | None = None, dedup_key: str | None = None,
            context: dict[str, Any] | None = None, expires_in: Interval | None = None, jitter: Interval | None = None,
            batch: int | None = None, after: Iterable[int] | None = None, if_dead: str | None = None, max_retries: int | None = None,
            timeout: Interval | None = None, keep_completed: Interval | None = None, tags: Iterable[str] | None = None,
            if_waiting: str | None = None, max_delay: Interval | None = None) -> int | None:
    """The id of the job that will do the work; None if the worker is disabled."""
    return _one(fetch(connection, *_enqueue("enqueue", worker, args, _given(locals()))))


async def aenqueue(connection: Any, worker: str, args: Any = None, **options: Any) -> int | None:
    return _one(await afetch(connection, *_enqueue("enqueue", worker, args, options)))


def try_enqueue(connection: Any, worker: str, args: Any = None, **options: Any) -> int | None:
    """As enqueue(), but None for a duplicate."""
    return _one(fetch(connection, *_enqueue("try_enqueue", worker, args, options)))


def enqueue_many(connection: Any, worker: str, args: Iterable[Any], *, contexts: Iterable[dict[str, Any]] | None = None,
                 run_at: datetime | str | None = None, delay: Interval | None = None, priority: int | None = None,
                 batch_size: int | None = None, batch_interval: Interval | None = None, batch: int | None = None,
                 run_ats: Iterable[datetime | str | None] | None = None, priorities: Iterable[int | None] | None = None,
                 dedup_keys: Iterable[str | None] | None = None, queue: str | None = None, jitter: Interval | None = None,
                 expires_in: Interval | None = None, tags: Iterable[str] | None = None, max_retries: int | None = None) -> list[int]:
    """A job for each of args, in that order; their ids. run_ats, priorities and dedup_keys have one for each, or None."""
    options = _given(locals())
    del options["contexts"]
    return [row["result"] for row in fetch(connection, *_enqueue_many(worker, args, contexts, options))]


async def aenqueue_many(connection: Any, worker: str, args: Iterable[Any], *, contexts: Iterable[dict[str, Any]] | None = None, **options: Any) -> list[int]:
    return [row["result"] for row in await afetch(connection, *_enqueue_many(worker, args, contexts, options))]


def new_batch(connection: Any, name: str | None = None, *, on_success: str | None = None, on_ended: str | None = None, on_dead: str | None = None,
              args: Any = None, parent: int | None = None, open: bool | None = None, keep: Interval | None = None) -> int:
    """A batch: the id that enqueue(batch=…) takes."""
    options = {**_given(locals()), "name": name, "args": args}
    return _one(fetch(connection, *_call("new_batch", [], options)))


def close_batch(connection: Any, batch: int) -> None:
    """A batch that was made with open=True can end from now on."""
    fetch(connection, *_call("close_batch", [("bigint", batch)], {}))


def enqueue_workflow(connection: Any, name: str, steps: Iterable[dict[str, Any]], *, context: dict[str, Any] | None = None, on_success: str | None = None,
                     on_ended: str | None = None, on_dead: str | None = None, args: Any = None, dedup_key: str | None = None,
                     keep: Interval | None = None) -> list[Step]:
    """Jobs of which some wait for others: steps are {"step", "worker", "args", "after": […], "if_dead", "delay", "priority", "queue", "max_retries", "timeout", "tags", "dedup_key"}."""
    options = {**_given(locals()), "args": args}
    for other in ("name", "steps", "context"):
        options.pop(other, None)
    written = to_json([{**step, **{key: interval(step[key]) for key in ("delay", "timeout") if key in step}} for step in steps])
    call = _call("enqueue_workflow", [("text", name), ("jsonb", written)], options)
    return [Step(row["step"], row["job"]) for row in _fetch_with_context(connection, call, _context(context))]


def _fetch_with_context(connection: Any, call: Call, context: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The rows of a call whose jobs take their context from the session: for its time, that is what they are to inherit."""
    if context is None:
        return fetch(connection, *call)
    before = _one(fetch(connection, "SELECT coalesce(current_setting('queue_jobs.context', true), '') AS result"))
    # In one statement, for outside of a transaction the setting lasts no longer. The name depends on it, so it is made first.
    setting = "(SELECT set_config('queue_jobs.context', %s::text, true) AS context) AS setting, LATERAL "
    sql = call.sql.replace("FROM ", "FROM " + setting, 1).replace("(%s::text, ", "(%s::text || left(setting.context, 0), ", 1)
    rows = fetch(connection, sql, [to_json({**json.loads(before or "{}"), **context}), *call.parameters])
    fetch(connection, "SELECT set_config('queue_jobs.context', %s::text, true)", [before])
    return rows


def signal(connection: Any, job: int, name: str, payload: Any = None) -> bool:
    """True if this is the first signal of that name to a job that is not finished."""
    return _one(fetch(connection, *_call("signal", [("bigint", job), ("text", name), ("jsonb", to_json(payload))], {})))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The options among a function's parameters."""
    return {name: value for name, value in values.items() if name not in ("connection", "worker", "args")}
