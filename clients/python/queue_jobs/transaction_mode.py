"""Claim, handler and completion in one transaction: exactly once.

Each thread has its connection. They take turns at claiming: the one whose turn it is waits in wait_for_jobs() while there is nothing, for all of
them; with a job in hand it passes the turn on, and the next looks whether there is more.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL

from .connections import SET_ROLE, fetch, role_of
from .guard import guard
from .job import Job, PutBack, columns, fetch_claimed
from .log import log
from .outcome import Outcome, of_error, of_return, write
from .session import Backoff, Waiting, cancel, is_lost, settle

if TYPE_CHECKING:
    from .worker import Worker


# Each statement of a handler that is to end may need a request to cancel of its own.
CANCEL_EVERY = 0.1
LAST_SECONDS = 1.0
# The last requests are counted: seconds may pass while the machine stands still.
LAST_CANCELS = 100

IN_TRANSACTION = (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR)


class Thread(threading.Thread):
    """A thread, its connection, and the job that it runs."""

    def __init__(self, loop: "TransactionLoop"):
        super().__init__(target=loop.work, args=[self], daemon=True)
        self.connection: Any = None  # of psycopg, while there is one
        self.end_of_work = ""  # what the connection executes between handler and outcome
        self.job: Job | None = None
        self.backoff = Backoff(loop.worker._stop)


class TransactionLoop:
    def __init__(self, worker: "Worker"):
        self.worker = worker
        self.turn = threading.Lock()
        self.waiting = Waiting(worker.watch)
        # Jobs and attempts whose transaction ended without an outcome, and why: charged when they are claimed again.
        self.owed: dict[tuple[int, int], BaseException] = {}
        self.busy = threading.Condition()
        self.running = 0
        self.abandoned = False
        self.threads = [Thread(self) for _ in range(worker.concurrency)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def finish(self, deadline: float) -> None:
        """Returns when all threads have ended; after the deadline the jobs of those that have not are free again."""
        self._join(deadline)
        self.abandoned = True
        for thread in self._alive():
            job = thread.job
            log(logging.WARNING, "given_back", job=job and job.id, worker=job and job.worker, attempt=job and job.attempt)
        last = time.monotonic() + LAST_SECONDS
        while (alive := self._alive()) and time.monotonic() < last:
            for thread in alive:
                if thread.connection is not None and not thread.connection.closed:
                    cancel(thread.connection)
            alive[0].join(CANCEL_EVERY)
        for thread in alive:
            _roll_back(thread.connection)

    def _alive(self) -> list[Thread]:
        return [thread for thread in self.threads if thread.is_alive()]

    def _join(self, deadline: float) -> None:
        for thread in self.threads:
            while thread.is_alive() and time.monotonic() < deadline:
                self.waiting.interrupt()
                thread.join(0.05)

    # ---- in a thread ----

    def work(self, thread: Thread) -> None:
        while not self.worker.stopping:
            try:
                with self.worker.open() as thread.connection:
                    guard(thread.connection)
                    with self.worker.watch.answer(thread.connection):
                        select = columns(thread.connection)
                        thread.end_of_work = _end_of_work(thread.connection)
                    try:
                        while self._next(thread, select):
                            pass
                    finally:
                        if self.abandoned:
                            _roll_back(thread.connection)
            except Exception as error:  # of a connection mostly; whatever it is, this thread goes on
                self.worker.failed(error)
                thread.backoff.pause()

    def _next(self, thread: Thread, select: str) -> bool:
        """Claims a job and runs it; False when there is to be no more."""
        with self.turn:
            while True:
                job = self._claim(thread, select)
                if job is None:
                    return False
                if not _took_its_process_along(job):
                    break
                # It may do so again, with every job that has a transaction open here: so it runs alone.
                with self.busy:
                    alone = self.running == 0
                if alone:
                    return self._run(thread, job)
                self._command(thread.connection, "ROLLBACK")
                with self.busy:
                    self.busy.wait_for(lambda: self.running == 0)
            with self.busy:
                self.running += 1
        try:
            return self._run(thread, job)
        finally:
            with self.busy:
                self.running -= 1
                self.busy.notify_all()

    def _claim(self, thread: Thread, select: str) -> Job | None:
        """The next job, in a transaction that has begun; None when the program is to stop."""
        # The setting has what the handler enqueues by SQL of its own inherit the context, too.
        sql = f"SELECT {select}, set_config('queue_jobs.context', coalesce(j.context::text, ''), true) FROM queue_jobs.claim(%s::text, %s::text[]) j"
        connection = thread.connection
        while not self.worker.stopping:
            self._command(connection, "BEGIN")
            with self.worker.watch.answer(connection):
                settle(connection)
                rows = fetch_claimed(connection, sql, [self.worker.claimant, self.worker.claimed_queues])
            self.worker.claimed()
            if rows:
                del rows[0]["set_config"]
                return Job(rows[0], connection, self.worker, own=True)
            # Not ROLLBACK: the claim may have made a job dead whose last lease ran out.
            self._command(connection, "COMMIT")
            thread.backoff.reset()
            self.waiting.wait(connection, self.worker.claimed_queues, self.worker._stop)
        return None

    def _run(self, thread: Thread, job: Job) -> bool:
        since = time.monotonic()
        thread.job = job
        connection = thread.connection
        try:
            outcome = self._outcome(connection, job, thread.end_of_work)
            self._command(connection, "COMMIT")
        except Exception as error:
            if self.abandoned or is_lost(connection, error):
                raise
            self._without_transaction(thread, job, error)
        else:
            thread.backoff.reset()
            self.worker.log_outcome(job, outcome, since)
            if outcome.error is None:
                _call_all(job)
        finally:
            thread.job = None
            self.worker.watch.end(connection)
        return True

    def _outcome(self, connection: psycopg.Connection, job: Job, end_of_work: str) -> Outcome:
        """Runs the handler and reports its outcome; what a handler that fails has written goes back to the savepoint."""
        watch = self.worker.watch
        watch.begin(connection)
        try:
            with connection.transaction():
                try:
                    outcome = self._call(connection, job)
                finally:
                    watch.begin(connection)
                connection.execute(end_of_work, prepare=False)
                outcome.report(connection, job)
            return outcome
        except BaseException as error:
            if self.abandoned:
                raise
            outcome = of_error(job, error)
            if connection.closed:
                raise psycopg.OperationalError(f"the connection was lost while job {job.id} ran: {outcome.error}") from error

        def report(outcome: Outcome) -> None:
            watch.begin(connection)
            with connection.transaction():
                outcome.report(connection, job)

        return write(job, outcome, report, lambda error: is_lost(connection, error))

    def _call(self, connection: psycopg.Connection, job: Job) -> Outcome:
        if (owed := self.owed.pop((job.id, job.attempt), None)) is not None:
            raise owed
        self.worker.watch.end(connection)  # the handler's statements take as long as they take
        try:
            outcome = of_return(job, self.worker.call(job))
        except PutBack as put_back:
            outcome = of_error(job, put_back)
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise RuntimeError("the handler has ended the transaction of its job")
        return outcome

    def _without_transaction(self, thread: Thread, job: Job, error: Exception) -> None:
        """Charges a job whose transaction is over without its outcome: its handler has ended it, or the server has refused to commit."""
        error = RuntimeError(f"the transaction of the job has ended without its outcome: {type(error).__name__}: {error}")
        outcome = of_error(job, error)
        self._command(thread.connection, "ROLLBACK")
        try:
            with self.worker.watch.answer(thread.connection):
                outcome.report(thread.connection, job)  # if the handler has committed the claim, the job is ours yet
        except psycopg.Error:
            if thread.connection.closed:
                raise
            self.owed[job.id, job.attempt] = error
        log(logging.WARNING, "failed", job=job.id, worker=job.worker, attempt=job.attempt, error=outcome.error)
        thread.backoff.pause()

    def _command(self, connection: psycopg.Connection, sql: str) -> None:
        """BEGIN and the like, which the connection's own cursors refuse."""
        with self.worker.watch.answer(connection):
            psycopg.Cursor(connection).execute(sql)


def _end_of_work(connection: psycopg.Connection) -> str:
    """Raises the errors that would come at COMMIT, and gives the session back the role that it has now, whichever the handler has set."""
    statements = "SET CONSTRAINTS ALL IMMEDIATE; " + SET_ROLE.replace("%s", "{}")
    return SQL(statements).format(*role_of(connection)).as_string(connection)


def _call_all(job: Job) -> None:
    for function in job.when_committed:
        try:
            function()
        except BaseException as error:  # also SystemExit, which would end the thread without a word
            log(logging.ERROR, "after_commit", job=job.id, worker=job.worker, error=of_error(job, error).error)


def _took_its_process_along(job: Job) -> bool:
    errors = job.errors or []
    return bool(errors) and errors[-1].get("sqlstate") == "57P02"


def _roll_back(connection: psycopg.Connection | None) -> None:
    """Ends the transaction under a handler that does not look at its connection: so its job is not charged with a lost session."""
    if connection is not None and _lock(connection):
        while not connection.closed:
            connection.pgconn.exec_(b"ROLLBACK")
            # A request to cancel the handler's statement can come late, and hit the ROLLBACK.
            if connection.pgconn.transaction_status not in IN_TRANSACTION:
                connection.pgconn.finish()
        connection.lock.release()


def _lock(connection: psycopg.Connection) -> bool:
    """Gets the connection's lock, which a thread has while it executes a statement."""
    for _ in range(LAST_CANCELS):
        if connection.lock.acquire(timeout=CANCEL_EVERY):
            return True
        if not cancel(connection):
            break
    return False
