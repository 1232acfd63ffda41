"""The connections of a worker: made, watched, waited on and ended."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .log import log

# Errors of a connection; what the server says of a statement is none of these, except for its own shutdown.
LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONNECT_WITHIN = 10
# With several hosts libpq goes from one to the next within this time, and a host that is gone takes some two minutes of it.
CONNECT_TO_ANY_WITHIN = 130
CANCEL_WITHIN = 5.0

# A dead peer is known after about a minute on a connection by TCP: name in a conninfo, option of the socket, value.
_KEEPALIVE = [("keepalives_idle", "TCP_KEEPIDLE", 30), ("keepalives_interval", "TCP_KEEPINTVL", 10), ("keepalives_count", "TCP_KEEPCNT", 3),
              ("tcp_user_timeout", "TCP_USER_TIMEOUT", 60_000)]

# Our texts are UTF-8, and psycopg reads no other dates, whatever the role or the database has.
_SETTINGS = "SELECT set_config('client_encoding', 'UTF8', false), set_config('DateStyle', 'ISO', false)"

_LEVELS = {"WARNING": logging.WARNING, "DEBUG": logging.DEBUG}

# SQLSTATE classes of what the server would refuse as well the next time: rights, names, values, features.
_HOPELESS = ("0A", "22", "28", "3D", "3F", "42")
# libpq has no SQLSTATE of what comes before the session; a server that does not speak English is asked again.
_HOPELESS_TEXTS = ('" does not exist', "authentication failed for user", "no password supplied", "no pg_hba.conf entry", "pg_hba.conf rejects", "is not permitted to log in",
                   "permission denied for database", "invalid integer value", "invalid port number", ' value: "')


def connect(conninfo: str) -> psycopg.Connection:
    given = conninfo_to_dict(conninfo)
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        hosts = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "")
        given["connect_timeout"] = CONNECT_TO_ANY_WITHIN if "," in str(hosts) else CONNECT_WITHIN
    return psycopg.connect(**given, autocommit=True)


def prepare(connection: psycopg.Connection) -> None:
    """Has a new connection say what the server notices, and speak as we do."""
    connection.add_notice_handler(_log_notice)
    _keep_alive(connection)
    settle(connection)


def settle(connection: psycopg.Connection) -> None:
    """Has the session speak as we do: when it begins, and where a handler has left it otherwise. The server tells of each change."""
    said = connection.info.parameter_status
    if said("client_encoding") != "UTF8" or not (said("DateStyle") or "").startswith("ISO"):
        psycopg.Cursor(connection).execute(_SETTINGS)


def _log_notice(notice: Any) -> None:
    severity = notice.severity_nonlocalized or notice.severity
    log(_LEVELS.get(severity, logging.INFO), "notice", severity=severity, message=notice.message_primary, detail=notice.message_detail,
        hint=notice.message_hint, sqlstate=notice.sqlstate)


def _keep_alive(connection: psycopg.Connection) -> None:
    given = connection.info.get_parameters()
    with _socket_of(connection) as own:
        if own.family == getattr(socket, "AF_UNIX", None) or given.get("keepalives") == "0":
            return
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, option, value in _KEEPALIVE:
            if name not in given and hasattr(socket, option):
                own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _socket_of(connection: psycopg.Connection) -> socket.socket:
    """A second handle of the same socket; closing it leaves the connection."""
    return socket.fromfd(connection.fileno(), -1, -1, -1)


def is_lost(connection: psycopg.Connection, error: BaseException) -> bool:
    """Whether the error is one of the connection, or of a server that goes down; what was sent may have been heeded."""
    return connection.closed or (sqlstate(error) or "")[:3] in ("57P", "08P") or (isinstance(error, LOST) and sqlstate(error) is None)


def says_lost(error: BaseException) -> bool:
    """Whether the error alone tells of a lost connection: of the network, of a server that goes down, or of a timeout that has ended the session."""
    state = sqlstate(error)
    return isinstance(error, LOST) if state is None else state.startswith(("08", "57P", "25P03", "25P04"))


def sqlstate(error: BaseException | None) -> str | None:
    """Of psycopg's error, or of that which another library has wrapped."""
    return getattr(error, "sqlstate", None) or getattr(getattr(error, "__cause__", None), "sqlstate", None)


def is_hopeless(error: BaseException) -> bool:
    """Whether the server would say the same the next time."""
    state = sqlstate(error)
    if state is not None:
        return state.startswith(_HOPELESS)
    return isinstance(error, psycopg.ProgrammingError) or any(text in str(error) for text in _HOPELESS_TEXTS)


def cancel(connection: psycopg.Connection) -> bool:
    """Ends the statement that the connection waits for, if the request does not come too early or too late. False: the server cannot be asked."""
    asked = []

    def ask() -> None:
        try:
            connection.cancel()
            asked.append(True)
        except LOST:
            pass  # then there is no statement any more

    # libpq waits for the answer, for ever where there is none.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(CANCEL_WITHIN)
    return bool(asked)


class Watch:
    """Hangs up a connection whose server does not answer in time: what waits for the answer then gets an error."""

    def __init__(self, silence: float, claimant: str):
        self.silence, self._claimant = silence, claimant
        self._lock = threading.Lock()
        self._until: dict[psycopg.Connection, float] = {}
        self._over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def begin(self, connection: psycopg.Connection) -> None:
        """From here on the server has to answer."""
        with self._lock:
            self._until[connection] = time.monotonic() + self.silence

    def end(self, connection: psycopg.Connection) -> None:
        with self._lock:
            self._until.pop(connection, None)

    @contextmanager
    def answer(self, connection: psycopg.Connection) -> Iterator[None]:
        self.begin(connection)
        try:
            yield
        finally:
            self.end(connection)

    def close(self) -> None:
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(self.silence / 20):
            now = time.monotonic()
            with self._lock:
                late = [connection for connection, until in self._until.items() if until < now]
                for connection in late:
                    del self._until[connection]
                    self._hang_up(connection)

    def _hang_up(self, connection: psycopg.Connection) -> None:
        log(logging.WARNING, "disconnected", claimant=self._claimant, error=f"no answer for {self.silence:g} s")
        if not connection.closed:
            with _socket_of(connection) as own:
                own.shutdown(socket.SHUT_RDWR)


class Backoff:
    """Waits longer after each failure, up to some seconds, with jitter; briefly once the program is to stop."""

    def __init__(self, stop: threading.Event):
        self.stop, self.failures = stop, 0

    def pause(self) -> None:
        self.failures += 1
        delay = min(5.0, 0.05 * 2 ** min(self.failures, 10)) * random.uniform(0.5, 1)
        if self.stop.is_set():
            time.sleep(min(delay, 0.5))
        else:
            self.stop.wait(delay)

    def reset(self) -> None:
        self.failures = 0


class Waiting:
    """The connection that waits for jobs, if one does, and how that wait is ended from another thread."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._connection: psycopg.Connection | None = None

    def wait(self, connection: psycopg.Connection, queues: list[str], stop: threading.Event) -> None:
        with self._lock:
            if stop.is_set():
                return
            self._connection = connection
        try:
            with self._watch.answer(connection):
                connection.execute("CALL queue_jobs.wait_for_jobs(%s::text[], %s * interval '1 s')", [queues, self._watch.silence / 2])
        except psycopg.errors.QueryCanceled:
            pass
        finally:
            with self._lock:
                self._connection = None

    def interrupt(self) -> None:
        """The statement that waits ends soon; one that has not reached the server yet may need it again."""
        with self._lock:
            if self._connection is not None:
                cancel(self._connection)
