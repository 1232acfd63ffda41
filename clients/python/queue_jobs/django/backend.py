"""A backend of Django's tasks. What is enqueued within transaction.atomic() belongs to that transaction.

Each task is a job of the worker "django_tasks" with the args {"task", "args", "kwargs"}. Django's priorities run from -100 to 100, higher first;
here the lower comes first, so the sign is turned.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from . import enqueue_options_of
from .. import client
from ..connections import fetch
from ..job import Discard
from .framework import BaseTaskBackend, Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_enqueued

WORKER = "django_tasks"

_STATUS = {"executing": TaskResultStatus.RUNNING, "completed": TaskResultStatus.SUCCESSFUL, "dead": TaskResultStatus.FAILED, "cancelled": TaskResultStatus.FAILED}
_FIND = """
SELECT id, args::text AS args, state::text AS state, queue, priority, run_at, created_at, started_at, finished_at, attempt, claimant,
       errors::text AS errors, result::text AS result
  FROM queue_jobs.job WHERE id = %s::bigint AND worker = %s::text"""


class QueueJobsBackend(BaseTaskBackend):
    """OPTIONS: "DATABASE", the alias in DATABASES; default: "default"."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def connection(self) -> Any:
        return connections[self.options.get("DATABASE", "default")]

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        self.validate_task(task)
        result = self.result_of(task, "", TaskResultStatus.READY, list(args), dict(kwargs), enqueued_at=timezone.now())
        job = client.enqueue(self.connection, WORKER, {"task": task.module_path, "args": result.args, "kwargs": result.kwargs},
                             **self.options_of(task, result))
        object.__setattr__(result, "id", str(job))
        task_enqueued.send(type(self), task_result=result)
        return result

    def options_of(self, task: Task, result: TaskResult) -> dict[str, Any]:
        """What task.using() says, and what enqueue_options() has noted of the function."""
        options = {"queue": task.queue_name, "priority": -int(task.priority), "run_at": task.run_after, **enqueue_options_of(task.func)}
        if options.get("if_waiting") == "debounce" and task.run_after is not None:
            options["delay"] = max(options.pop("run_at") - timezone.now(), timedelta())  # after the latest call
        if callable(options.get("dedup_key")):
            options["dedup_key"] = options["dedup_key"](*result.args, **result.kwargs)
        return options

    def get_result(self, result_id: str) -> TaskResult:
        rows = fetch(self.connection, _FIND, [result_id, WORKER]) if result_id.isdecimal() else []
        if not rows:
            raise TaskResultDoesNotExist(result_id)
        row = rows[0]
        task, args, kwargs = self.call_of(json.loads(row["args"]), row)
        result = self.result_of(
            task, result_id, _STATUS.get(row["state"], TaskResultStatus.READY), args, kwargs, enqueued_at=row["created_at"], started_at=row["started_at"],
            finished_at=row["finished_at"], last_attempted_at=row["started_at"],
            errors=[task_error(error) for error in json.loads(row["errors"] or "[]")], worker_ids=[row["claimant"] or ""] * row["attempt"])
        object.__setattr__(result, "_return_value", json.loads(row["result"] or "null"))
        return result

    def call_of(self, args: dict[str, Any], job: dict[str, Any]) -> tuple[Task, list[Any], dict[str, Any]]:
        """The task that a job calls, and with what."""
        task = import_string(args["task"])
        due_later = job["run_at"] if job["run_at"] != job["created_at"] else None
        return task.using(priority=-job["priority"], queue_name=job["queue"], run_after=due_later, backend=self.alias), args["args"], args["kwargs"]

    def result_of(self, task: Task, id: str, status: TaskResultStatus, args: list[Any], kwargs: dict[str, Any], **more: Any) -> TaskResult:
        values = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
        return TaskResult(task=task, id=id, status=status, args=args, kwargs=kwargs, backend=self.alias, **{**values, "errors": [], "worker_ids": [], **more})


def task_error(error: dict[str, Any]) -> TaskError:
    return TaskError(exception_class_path=_class_path(error["message"], error.get("detail") or ""), traceback=error.get("detail") or error["message"])


def _class_path(message: str, stack: str) -> str:
    """The exception's class with its module: as the traceback has it on the line with the message, which has the bare name. Either may have been cut."""
    name, _, text = message.partition(":")
    said = {name: text, Discard.__name__: f" {message}"}
    at = 0
    for line in stack.splitlines(keepends=True):
        path = line.rstrip("\n").partition(":")[0]
        rest = said.get(path.rpartition(".")[2])
        begin = at + len(path) + 1
        if rest is not None and path.replace(".", "").isidentifier() and (not rest.strip() or stack.startswith(rest[:len(stack) - begin], begin)):
            return path if "." in path else f"builtins.{path}"
        at += len(line)
    return "builtins.Exception"
