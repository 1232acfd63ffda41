"""Jobs by lease, for work outside of the database: at least once.

One thread claims for all, and the statement that claims the next jobs completes those that are done. While it waits in wait_for_jobs() the
threads report through a second connection, which also has the heartbeats.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import psycopg

from .connections import fetch
from .job import Job, columns, fetch_claimed
from .log import log
from .outcome import Outcome, of_snooze, write
from .session import Backoff, Waiting, is_lost, sqlstate

if TYPE_CHECKING:
    from .worker import Worker

Key = tuple[int, int]  # job and attempt

# The attempt does not have the job any more.
STALE = "55000"
# Errors that are none of the statement's own: it may well be heeded the next time. (Classes and codes.)
PASSING = ("08", "40", "53", "55P03", "57", "58")
# So often an outcome is reported that only such errors have met; then another is.
TRIES = 3
# In one statement with others; a message to the server has 1 GB at most.
LONGEST_AMONG_OTHERS = 1_000_000


@dataclass
class Run:
    """A job in hand; with an outcome, it waits for that to be reported."""

    job: Job
    since: float = field(default_factory=time.monotonic)
    outcome: Outcome | None = None
    tries: int = 0

    @property
    def key(self) -> Key:
        return self.job.id, self.job.attempt

    @property
    def ended(self) -> Outcome:
        """The outcome of a run that has one."""
        assert self.outcome is not None
        return self.outcome


class Side:
    """A connection for short statements of all threads, made when it is first used, and again after it was lost."""

    def __init__(self, worker: "Worker"):
        self._worker, self._lock = worker, threading.Lock()
        self._connection: psycopg.Connection | None = None

    def use(self, work: Callable[[Any], Any]) -> Any:
        with self._lock:
            if self._connection is None:
                self._connection = self._worker.open()
            try:
                with self._worker.watch.answer(self._connection):
                    return work(self._connection)
            except BaseException as error:
                if is_lost(self._connection, error):
                    self._connection.close()
                    self._connection = None
                raise


class LeaseLoop:
    def __init__(self, worker: "Worker"):
        self.worker = worker
        self.side = Side(worker)
        self.waiting = Waiting(worker.watch)
        self.backoff = Backoff(worker._stop)
        self.changed = threading.Condition()
        self.held: dict[Key, Run] = {}
        self.ready: deque[Run] = deque()
        self.claimer_waits = False
        self.abandoned = False
        self.ended = threading.Event()
        self.claimer = threading.Thread(target=self._claim_for_all, daemon=True)

    def start(self) -> None:
        self.claimer.start()
        threading.Thread(target=self._keep_leases, daemon=True).start()
        for _ in range(self.worker.concurrency):
            threading.Thread(target=self._call_handlers, daemon=True).start()

    def finish(self, deadline: float) -> None:
        """What was not begun is given back at once, what still runs after the deadline then."""
        with self.changed:
            self._give_back_ready()
        self._join(deadline)
        with self.changed:
            self.abandoned = True
            for run in self.held.values():
                if run.outcome is None:
                    log(logging.WARNING, "given_back", job=run.job.id, worker=run.job.worker, attempt=run.job.attempt)
                    run.outcome = of_snooze("0")
            self.changed.notify_all()
        self._join(time.monotonic() + 5)
        self.ended.set()

    def _give_back_ready(self) -> None:
        for run in self.ready:
            run.outcome = of_snooze("0")
        self.ready.clear()
        self.changed.notify_all()

    def _join(self, deadline: float) -> None:
        while self.claimer.is_alive() and time.monotonic() < deadline:
            self.waiting.interrupt()
            self.claimer.join(0.05)

    # ---- threads that run handlers ----

    def _call_handlers(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.ready or self.worker.stopping)
                if self.worker.stopping:
                    return  # what is ready is given back
                run = self.ready.popleft()
                run.since = time.monotonic()
            self._report(run, self.worker.outcome_of(run.job))

    def _report(self, run: Run, outcome: Outcome) -> None:
        """Has the claimer report it with its next claim, or does it itself while the claimer waits."""
        with self.changed:
            if self.abandoned:
                return
            if not self.claimer_waits:
                run.outcome = outcome
                self.changed.notify_all()
                return
        try:
            self.side.use(lambda connection: self._deliver(connection, run, outcome))
            with self.changed:
                self.held.pop(run.key, None)  # after the deadline the claimer may have reported it
                self.changed.notify_all()
        except Exception as error:  # whatever it is, this thread goes on
            self.worker.log_lost(error)
            with self.changed:
                run.outcome = outcome
                while self.claimer_waits:
                    self.waiting.interrupt()
                    self.changed.wait(0.1)
                self.changed.notify_all()

    # ---- the thread that claims ----

    def _claim_for_all(self) -> None:
        while not self.ended.is_set():
            try:
                with self.worker.open() as connection:
                    with self.worker.watch.answer(connection):
                        select = columns(connection)
                        self._give_back_unknown(connection)
                    while self._turn(connection, select):
                        self.backoff.reset()
                    return
            except Exception as error:  # of a connection mostly; whatever it is, this thread goes on
                self.worker.failed(error)
                if self.worker.stopping and not self.held:
                    return
                self.backoff.pause()

    def _give_back_unknown(self, connection: psycopg.Connection) -> None:
        """Gives back what a claim took whose answer was lost with its connection: our heartbeats would keep it for ever."""
        rows = fetch(connection, "SELECT id, attempt FROM queue_jobs.job WHERE claimant = %s::text AND state = 'executing'", [self.worker.claimant])
        unknown = [row for row in rows if (row["id"], row["attempt"]) not in self.held]
        if unknown:
            fetch(connection, "SELECT queue_jobs.snooze_many(%s::bigint[], %s::integer[], '0')", [[row["id"] for row in unknown], [row["attempt"] for row in unknown]])

    def _turn(self, connection: psycopg.Connection, select: str) -> bool:
        """Reports, claims, and waits if there was nothing to do; False at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self._done() or (not self.worker.stopping and self._free() > 0) or (self.worker.stopping and not self.held))
            done = self._done()
            free = 0 if self.worker.stopping else self._free() + len(done)
        if self.worker.stopping and not done:
            return bool(self.held)
        together = [run for run in done if run.ended.event == "completed" and len(run.ended.parameters[0] or "") < LONGEST_AMONG_OTHERS]
        for run in done:
            if run not in together:
                with self.worker.watch.answer(connection):
                    self._deliver(connection, run, run.ended)
                self._forget([run])
        with self.worker.watch.answer(connection):
            rows = self._exchange(connection, select, together, free)
        self.worker.claimed()
        with self.changed:
            for run in together:
                self.held.pop(run.key, None)
            for row in rows:
                run = Run(Job(row, None, self.worker, own=False))
                self.held[run.key] = run
                self.ready.append(run)
            if self.worker.stopping:
                self._give_back_ready()
            self.changed.notify_all()
        if not done and not rows:
            self._wait(connection)
        return True

    def _done(self) -> list[Run]:
        return [run for run in self.held.values() if run.outcome is not None]

    def _free(self) -> int:
        return self.worker.batch - len(self.held)

    def _forget(self, runs: list[Run]) -> None:
        with self.changed:
            for run in runs:
                self.held.pop(run.key, None)

    def _wait(self, connection: psycopg.Connection) -> None:
        with self.changed:
            if self._done() or self.worker.stopping:
                return
            self.claimer_waits = True
        try:
            self.waiting.wait(connection, self.worker.claimed_queues, self.worker._stop)
        finally:
            with self.changed:
                self.claimer_waits = False
                self.changed.notify_all()

    def _exchange(self, connection: psycopg.Connection, select: str, completed: list[Run], free: int) -> list[dict[str, Any]]:
        """Completes and claims in one statement, whose commit does for both; if that is refused, one by one.

        By the outer join nothing is claimed before they are completed, and they are completed though there is nothing to claim.
        """
        complete = "queue_jobs.complete_many(%s::bigint[], %s::integer[], %s::text[]::jsonb[])"
        claim = "queue_jobs.claim(%s::text, %s::text[], %s::integer, %s * interval '1 s') j"
        ours = [[run.job.id for run in completed], [run.job.attempt for run in completed], [run.ended.parameters[0] for run in completed]]
        wanted = [self.worker.claimant, self.worker.claimed_queues, free, self.worker.lease]
        if completed:
            try:
                sql = f"SELECT {select} FROM {complete} LEFT JOIN {claim} ON true" if free else f"SELECT {complete}"
                rows = fetch_claimed(connection, sql, ours + (wanted if free else []))
            except Exception as error:
                if is_lost(connection, error):
                    raise
                for run in completed:
                    self._deliver(connection, run, run.ended)
                    self._forget([run])
            else:
                for run in completed:
                    self.worker.log_outcome(run.job, run.ended, run.since)
                return [row for row in rows if row["id"] is not None] if free else []
        return fetch_claimed(connection, f"SELECT {select} FROM {claim}", wanted) if free else []

    def _deliver(self, connection: psycopg.Connection, run: Run, outcome: Outcome) -> None:
        """Reports one outcome, or what stands for one that is refused; one that comes too late is dropped."""
        run.tries += 1

        def give_up(error: Exception) -> bool:
            state = sqlstate(error) or ""
            return is_lost(connection, error) or state == STALE or (state.startswith(PASSING) and run.tries < TRIES)

        try:
            written = write(run.job, outcome, lambda outcome: outcome.report(connection, run.job), give_up)
            self.worker.log_outcome(run.job, written, run.since)
        except Exception as error:
            if sqlstate(error) != STALE:
                raise
            log(logging.WARNING, "stale", job=run.job.id, worker=run.job.worker, attempt=run.job.attempt, outcome=outcome.event, error=str(error).strip())

    # ---- the thread that keeps the leases ----

    def _keep_leases(self) -> None:
        pause = self.worker.lease / 3
        while not self.ended.wait(pause):
            pause = self.worker.lease / 3
            with self.changed:
                before = list(self.held.values())
            if not before:
                continue
            try:
                ids = {row["id"] for row in self.side.use(lambda connection: fetch(connection, "SELECT * FROM queue_jobs.heartbeat(%s::text) AS id", [self.worker.claimant]))}
            except Exception as error:
                self.worker.log_lost(error)
                pause = min(1.0, self.worker.lease / 10)
                continue
            for run in before:
                if run.job.id not in ids and run.outcome is None and self.held.get(run.key) is run and not run.job.lost.is_set():
                    run.job.lost.set()
                    log(logging.WARNING, "lost", job=run.job.id, worker=run.job.worker, attempt=run.job.attempt)
