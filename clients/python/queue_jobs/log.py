"""A line of JSON for each event: through logging, so that an application may do otherwise."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timezone
from typing import Any

logger = logging.getLogger("queue_jobs")
logger.addHandler(logging.NullHandler())


# As the clients of all languages call them.
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {level: name for name, level in _LEVELS.items()}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line = {"time": time, "level": _NAMES.get(record.levelno, record.levelname.lower()), "event": record.getMessage()}
        line.update(getattr(record, "queue_jobs", {}))
        return json.dumps(line, ensure_ascii=False, default=str)


def log(level: int, event: str, **fields: Any) -> None:
    logger.log(level, event, extra={"queue_jobs": {name: value for name, value in fields.items() if value is not None}})


def to_stderr(level: int | None = None) -> None:
    """What the command does; an application that has its own logging leaves it out. Without a level QUEUE_JOBS_LOG says which."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(_LEVELS.get(os.environ.get("QUEUE_JOBS_LOG", ""), logging.INFO) if level is None else level)
