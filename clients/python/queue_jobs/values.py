"""Python's values as the texts that the statements cast."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Union

Interval = Union[timedelta, float, int, str]

LONGEST_JSON = 2**28


def to_json(value: Any) -> str:
    """JSON as PostgreSQL takes it: no NaN, no infinity."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # Half a character is an error here, and so is more than jsonb holds: the server ends a session that sends 1 GB.
    if (size := len(text.encode())) > LONGEST_JSON:
        raise ValueError(f"JSON of {size} bytes: the server takes {LONGEST_JSON} at most")
    return text


def interval(value: Interval | None) -> str | None:
    """A timedelta, a number of seconds, or what PostgreSQL reads as an interval."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, timedelta):
        try:
            value = timedelta(seconds=value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"no interval: {value!r}; give a timedelta, a number of seconds, or a text as PostgreSQL takes it") from error
    return f"{value // timedelta(microseconds=1)} microseconds"


def timestamp(value: datetime | str | None) -> str | None:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone: its time is ambiguous")
    return value.isoformat()
