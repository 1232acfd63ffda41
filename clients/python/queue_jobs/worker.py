"""Claims jobs and calls their handlers, until it is to stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
import signal
import socket
import threading
import time
from typing import Any, Callable, Iterable

import psycopg

from .client import job_context
from .job import Job, Snooze
from .log import log
from .outcome import Outcome, of_error, of_return
from .session import Watch, connect as connect_to, is_hopeless, prepare, says_lost, sqlstate
from .values import Interval

Handler = Callable[[Job], Any]
Middleware = Callable[[Job, Callable[[], Any]], Any]


# How long a job for which there is no handler is left to processes of another version.
NO_HANDLER_DELAY = "1 min"


class Refused(Exception):
    """The server refuses what the worker begins with, and would do so again: run() ends."""


class Worker:
    """Handlers, and how their jobs are claimed.

    conninfo     as libpq takes it; "" is what PGHOST and the like say. Direct to the server, not through a pooler in transaction mode.
    queues       names, "namespace:*", "*", or selectors; by default the workers that have a handler here
    mode         "transaction": claim, handler and completion are one transaction, exactly once; "lease": at least once, for work outside of the database
    concurrency  how many handlers run at once, each in a thread
    batch        lease mode: how many jobs it has in hand at most, running or not begun; by default as many as run at once
    lease        seconds for which a job is ours without a heartbeat; a heartbeat comes three times as often
    grace        seconds from SIGTERM until what still runs is given back
    name         what the claimant's name begins with; each start gets one of its own
    connect      makes a connection of psycopg 3 in autocommit mode, instead of conninfo
    silence      seconds without an answer to a statement of the worker's own, after which the connection counts as lost
    """

    def __init__(self, conninfo: str = "", *, queues: Iterable[str] | None = None, mode: str = "transaction", concurrency: int = 1,
                 batch: int | None = None, lease: float = 300, grace: float = 25, name: str | None = None,
                 connect: Callable[[], psycopg.Connection] | None = None, silence: float = 120):
        if mode not in ("transaction", "lease"):
            raise ValueError(f'mode is "transaction" or "lease", not {mode!r}')
        if concurrency < 1 or (batch is not None and batch < concurrency):
            raise ValueError("concurrency is at least 1, and batch at least as much")
        self.queues = list(queues) if queues is not None else None
        self.mode, self.concurrency, self.lease, self.grace, self.name = mode, concurrency, lease, grace, name
        self.batch = batch or concurrency
        self.connect = connect or (lambda: connect_to(conninfo))
        self.silence = silence
        self.handlers: dict[str, Handler] = {}
        self.around: list[Middleware] = []
        self.claimant = ""
        self._loop: Any = None
        self._stop = threading.Event()
        self._pipe: tuple[int, int] | None = None
        self._watch: Watch | None = None
        self._claimed = False
        self._refused: BaseException | None = None

    # ---- registration ----

    def handler(self, worker: str) -> Callable[[Handler], Handler]:
        """Decorator: the function does the jobs of that worker. It takes a Job; what it returns is the result."""

        def register(function: Handler) -> Handler:
            if worker in self.handlers:
                raise ValueError(f"worker {worker!r} has a handler already")
            self.handlers[worker] = function
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Decorator: is called around each handler, as function(job, call_next), and returns what call_next() does. The first one is the outermost."""
        self.around.append(function)
        return function

    # ---- running ----

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Has run() end: nothing more is claimed, what runs is finished or, after the grace time, given back. May be called in a signal handler."""
        if self._pipe is not None:
            os.write(self._pipe[1], b"s")

    def run(self) -> None:
        """Works until stop(), which SIGTERM and SIGINT call if this is the main thread. Error: Refused."""
        from .lease_mode import LeaseLoop
        from .transaction_mode import TransactionLoop

        self.claimant = "-".join([self.name or socket.gethostname(), str(os.getpid()), secrets.token_hex(4)])
        self._stop.clear()
        self._claimed, self._refused = False, None
        self._watch = Watch(self.silence, self.claimant)
        self._pipe = os.pipe()
        loop: TransactionLoop | LeaseLoop = TransactionLoop(self) if self.mode == "transaction" else LeaseLoop(self)
        self._loop = loop
        before = self._catch_signals()
        log(logging.INFO, "started", claimant=self.claimant, mode=self.mode, concurrency=self.concurrency, queues=self.claimed_queues)
        try:
            loop.start()
            os.read(self._pipe[0], 1)
            self._stop.set()
            log(logging.INFO, "stopping", claimant=self.claimant, grace=self.grace)
            loop.finish(time.monotonic() + self.grace)
            log(logging.INFO, "stopped", claimant=self.claimant)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._watch.close()
            pipe, self._pipe = self._pipe, None
            for end in pipe:
                os.close(end)
        if self._refused is not None:
            raise Refused(str(self._refused).strip()) from self._refused

    def _catch_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: signal.signal(number, lambda *_: self.stop()) for number in (signal.SIGTERM, signal.SIGINT)}

    @property
    def claimed_queues(self) -> list[str]:
        if self.queues is not None:
            return self.queues
        if not self.handlers:
            raise ValueError("no handler is registered, and no queue is named")
        return ["worker=" + ",".join(sorted(self.handlers))]

    @property
    def watch(self) -> Watch:
        assert self._watch is not None
        return self._watch

    def open(self) -> psycopg.Connection:
        """A connection of the worker's own."""
        connection = self.connect()
        with self.watch.answer(connection):
            prepare(connection)
        return connection

    def claimed(self) -> None:
        """A claim has been heeded: what is refused from here on is tried again."""
        self._claimed = True

    def failed(self, error: BaseException) -> None:
        """A connection is lost, or what the worker does with it refused: the worker ends if it has only begun and waiting would not help."""
        if self._claimed or self.stopping or not is_hopeless(error):
            self.log_lost(error)
        elif self._refused is None:
            self._refused = error
            log(logging.ERROR, "refused", claimant=self.claimant, error=str(error).strip(), sqlstate=sqlstate(error))
            self.stop()

    def aside(self, work: Callable[[Any], Any]) -> Any:
        """Lease mode: does something with the connection that heartbeats go through."""
        return self._loop.side.use(work)

    # ---- one job ----

    def call(self, job: Job) -> Any:
        """Calls the handler, within the middleware, in the job's context."""
        if job.worker is not None and job.worker not in self.handlers:
            log(logging.ERROR, "no_handler", job=job.id, worker=job.worker)
            raise Snooze(NO_HANDLER_DELAY)
        if job.unreadable is not None:
            raise job.unreadable
        handler = self.handlers[job.worker]
        token = job_context.set(job.context)
        try:
            return self._through(list(self.around), handler, job)
        finally:
            job_context.reset(token)

    def _through(self, around: list[Middleware], handler: Handler, job: Job) -> Any:
        if around:
            return around[0](job, lambda: self._through(around[1:], handler, job))
        if inspect.iscoroutinefunction(handler):
            return asyncio.run(handler(job))
        return handler(job)

    def outcome_of(self, job: Job) -> Outcome:
        try:
            return of_return(job, self.call(job))
        except BaseException as error:  # also SystemExit, which would end the thread without a word
            return of_error(job, error)

    def log_outcome(self, job: Job, outcome: Outcome, since: float) -> None:
        level = logging.INFO if outcome.error is None else logging.WARNING
        context = job.context if isinstance(job.context, dict) else {}
        log(level, outcome.event, job=job.id, worker=job.worker, attempt=job.attempt, seconds=round(time.monotonic() - since, 4),
            error=outcome.error, traceparent=context.get("traceparent"))

    def log_lost(self, error: BaseException) -> None:
        """An error that has a thread connect again."""
        log(logging.WARNING, "disconnected" if says_lost(error) else "error", claimant=self.claimant, error=str(error).strip(), sqlstate=sqlstate(error))
