"""Refuses what would begin or end the transaction of a job: it is the one that completes the job."""

from __future__ import annotations

import re
from typing import Any, Iterator

import psycopg
from psycopg.sql import Composable

_MAY = re.compile(r"\b(?:begin|start|commit|end|abort|rollback|prepare)\b", re.I)

# SQL in pieces, so that words in texts, names and comments are none. No alternative fails once it has begun, so the time is linear.
_ESCAPED, _PLAIN = r"'(?:[^'\\]+|\\.|'')*'?", r"'[^']*'?"
_PIECE = r"""--[^\n\r]*|(?P<comment>/\*)|[eE]%s|%s|"[^"]*"?|(?P<dollars>\$(?:[^\W\d]\w*)?\$)|(?P<word>[^\W\d][\w$]*)|\d+|(?P<end>;)|[^\w'"$;/-]+|."""
_PIECES = {"on": re.compile(_PIECE % (_ESCAPED, _PLAIN), re.S), "off": re.compile(_PIECE % (_ESCAPED, _ESCAPED), re.S)}
_COMMENT = re.compile(r"/\*|\*/")


def ends_transaction(sql: str, standard_strings: str = "on") -> bool:
    """Whether one of its statements begins or ends a transaction. standard_strings: the server's standard_conforming_strings."""
    if not _MAY.search(sql):
        return False
    pieces = _PIECES[standard_strings]
    words: list[str] = []  # the first ones of a statement
    last = ""
    at = 0
    while at < len(sql):
        piece = pieces.match(sql, at)
        assert piece is not None
        at = piece.end()
        if piece["comment"]:
            at = _end_of_comment(sql, at)
        elif piece["dollars"]:
            end = sql.find(piece["dollars"], at)
            at = len(sql) if end < 0 else end + len(piece["dollars"])
        elif piece["end"]:
            if _is_end(words):
                return True
            words = []
        elif piece["word"]:
            before, last = last, piece["word"].lower()
            if (before, last) == ("begin", "atomic"):
                return False  # the body of a function, with semicolons of its own
            if len(words) < 3:
                words.append(last)
    return _is_end(words)


def _end_of_comment(sql: str, at: int) -> int:
    depth = 1
    for mark in _COMMENT.finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)


def _is_end(words: list[str]) -> bool:
    first, *more = words or [""]
    if first == "prepare":
        return more[:1] == ["transaction"]
    if first == "rollback":
        return "to" not in more[:1] and more[1:] != ["to"]
    return first in ("begin", "start", "commit", "end", "abort")


class _Guarded(psycopg.Cursor):
    """A cursor as a handler of transaction mode gets it."""

    def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
        self._check(query)
        return super().execute(query, *parameters, **options)

    def executemany(self, query: Any, *parameters: Any, **options: Any) -> None:
        self._check(query)
        super().executemany(query, *parameters, **options)

    def stream(self, query: Any, *parameters: Any, **options: Any) -> Iterator[Any]:
        self._check(query)
        return super().stream(query, *parameters, **options)

    def _check(self, query: Any) -> None:
        text = query.as_string(self) if isinstance(query, Composable) else query.decode("utf-8", "replace") if isinstance(query, bytes) else str(query)
        if ends_transaction(text, self.connection.info.parameter_status("standard_conforming_strings") or "on"):
            raise psycopg.ProgrammingError("a handler does not begin or end the transaction: it is the one of its job; use a savepoint, or lease mode")


def guard(connection: psycopg.Connection) -> None:
    """From here on its cursors refuse. What goes round them, by the class psycopg.Cursor or by libpq, is charged to the job when it has happened."""
    connection.cursor_factory = type("Cursor", (_Guarded, connection.cursor_factory), {})
