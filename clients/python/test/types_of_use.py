"""What the types allow and what they refuse. Checked by mypy (package.py), not run: there, a comment that ignores no error is an error."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Callable

import psycopg
from queue_jobs import Job, Worker, aenqueue, enqueue, enqueue_many, enqueue_workflow, new_batch, signal, try_enqueue
from queue_jobs.testing import Ran, assert_enqueued, run_due

worker = Worker("dbname=shop", mode="lease", queues=["mail"], concurrency=4, grace=2.5)


@worker.handler("mail")
def mail(job: Job) -> dict[str, int]:
    job.report(0.5, "half of it")
    job.continue_at({"line": 1}, delay=timedelta(seconds=1), progress=0.5)
    parts: dict[str, Any] = job.results()
    sent: bool = job.signal(job.id, "go", {"n": len(parts)})
    return {"status": 250 if sent else job.attempt + job.priority}


@worker.handler("later")
async def later(job: Job) -> None:
    payload: Any = job.signal_payload("go")
    seen: dict[str, Any] = job.signals()
    if payload is None and not seen:
        job.wait_for_signal("go", timedelta(days=3))
    job.snooze("5 min")


@worker.middleware
def timed(job: Job, call_next: Callable[[], Any]) -> Any:
    return call_next()


async def asynchronous(connection: psycopg.AsyncConnection[Any]) -> int | None:
    return await aenqueue(connection, "mail", {"n": 1}, delay=1)


def use(connection: psycopg.Connection[Any]) -> list[Ran]:
    id: int | None = enqueue(connection, "mail", {"n": 1}, delay=timedelta(minutes=1), run_at=datetime.now(timezone.utc), after=[1, 2], context={"tenant": 1})
    enqueue_many(connection, "mail", [{"n": 1}], batch=new_batch(connection, "mails", on_success="done"), priority=1)
    jobs: list[int] = [step.job for step in enqueue_workflow(connection, "nightly", [{"step": "a", "worker": "mail"}], keep="1 day")]
    signal(connection, jobs[0], "go")
    enqueue(connection, 13)  # type: ignore[arg-type]
    enqueue(connection, "mail", {}, delayed=1)  # type: ignore[call-arg]
    enqueue(connection, "mail", {}, dedup_key=7)  # type: ignore[arg-type]
    Worker(concurrency="4")  # type: ignore[arg-type]
    worker.handler("other")(lambda: None)  # type: ignore[arg-type, misc]
    assert_enqueued(connection, "mail", {"n": id}, count=1)
    try_enqueue(connection, "mail", dedup_key="once")
    enqueue(connection, "mail", {}, dedup_key="quiet", if_waiting="debounce", delay=5, max_delay=timedelta(minutes=1), tags=["a"])
    return run_due(connection, worker)
