"""Executes a statement on the caller's own connection, whatever wraps it.

Parameters are written %s and are texts, numbers, lists of these or None; the statement casts them. So no driver needs an adapter for intervals
or JSON, and none of its settings matters.
"""

from __future__ import annotations

from typing import Any, Sequence

Rows = list[dict[str, Any]]

# Gives a session its user and its role, as role_of() has them. Set for this transaction alone, they would give way to the handler's after it.
SET_ROLE = "SELECT pg_catalog.set_config('session_authorization', %s, false), pg_catalog.set_config('role', %s, false)"


def fetch(connection: Any, sql: str, parameters: Sequence[Any] = ()) -> Rows:
    """The statement's rows, on a connection of psycopg 3 or 2, Django or SQLAlchemy, or a session of SQLAlchemy."""
    if hasattr(connection, "get_bind"):
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):
        return [dict(row) for row in connection.exec_driver_sql(sql, _without_lists(parameters)).mappings()]
    if module_of(connection) == "psycopg":
        # Unprepared: a pooler may give the next statement to another session.
        return _rows(connection.cursor(row_factory=_tuple_row()).execute(sql, parameters, prepare=False))
    with connection.cursor(**_plain_cursor(connection)) as cursor:
        cursor.execute(sql, parameters)
        return _rows(cursor)


def role_of(connection: Any) -> list[str]:
    """The user and the role that the session has now."""
    row = fetch(connection, "SELECT session_user::text AS name, pg_catalog.current_setting('role') AS role")[0]
    return [row["name"], row["role"]]


async def afetch(connection: Any, sql: str, parameters: Sequence[Any] = ()) -> Rows:
    """The same on a psycopg.AsyncConnection, or on SQLAlchemy's AsyncConnection or AsyncSession with psycopg as driver."""
    if hasattr(connection, "get_bind"):
        connection = await connection.connection()
    if hasattr(connection, "exec_driver_sql"):
        return [dict(row) for row in (await connection.exec_driver_sql(sql, _without_lists(parameters))).mappings()]
    cursor = await connection.cursor(row_factory=_tuple_row()).execute(sql, parameters, prepare=False)
    return [dict(zip(_names(cursor), row)) for row in await cursor.fetchall()]


def _without_lists(parameters: Sequence[Any]) -> tuple[Any, ...]:
    """Lists as PostgreSQL's own texts of arrays: SQLAlchemy would take a list for the parameters of another execution."""
    return tuple(_array_text(value) if isinstance(value, list) else value for value in parameters)


def _array_text(values: list[Any]) -> str:
    return "{" + ",".join("NULL" if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values) + "}"


def module_of(connection: Any) -> str:
    """The driver's package, also of a class that is derived from the driver's."""
    for kind in type(connection).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("psycopg", "psycopg2"):
            return package
    return type(connection).__module__.partition(".")[0]


def _tuple_row() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _plain_cursor(connection: Any) -> dict[str, Any]:
    """A cursor whose rows are tuples, whatever kind the connection makes by default."""
    if module_of(connection) != "psycopg2":
        return {}
    from psycopg2.extensions import cursor

    return {"cursor_factory": cursor}


def _names(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _rows(cursor: Any) -> Rows:
    return [dict(zip(_names(cursor), row)) for row in cursor.fetchall()] if cursor.description else []
