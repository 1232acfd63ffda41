"""A line of JSON for each event: through logging, so that an application may do otherwise."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any

logger = logging.getLogger("queue_jobs")
logger.addHandler(logging.NullHandler())


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(), "level": record.levelname.lower(), "event": record.getMessage()}
        line.update(getattr(record, "queue_jobs", {}))
        return json.dumps(line, ensure_ascii=False, default=str)


def log(level: int, event: str, **fields: Any) -> None:
    logger.log(level, event, extra={"queue_jobs": {name: value for name, value in fields.items() if value is not None}})


def to_stderr(level: int = logging.INFO) -> None:
    """What the command does; an application that has its own logging leaves it out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(level)
