"""Python's values as the texts that the statements cast."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Union

Interval = Union[timedelta, float, int, str]


def to_json(value: Any) -> str:
    """JSON as PostgreSQL takes it: no NaN, no infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def interval(value: Interval | None) -> str | None:
    """A timedelta, a number of seconds, or what PostgreSQL reads as an interval."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, timedelta):
        value = timedelta(seconds=value)
    return f"{value // timedelta(microseconds=1)} microseconds"


def timestamp(value: datetime | str | None) -> str | None:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone: its time is ambiguous")
    return value.isoformat()
