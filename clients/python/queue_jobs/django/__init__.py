"""Django's tasks on queue_jobs: TASKS = {"default": {"BACKEND": "queue_jobs.django.backend.QueueJobsBackend"}}, "queue_jobs.django" in INSTALLED_APPS."""

from __future__ import annotations

from typing import Any, Callable

__all__ = ["enqueue_options"]

_NAMES = frozenset({"dedup_key", "expires_in", "jitter", "batch", "after", "if_dead", "max_retries", "timeout", "keep_completed", "tags", "if_waiting", "max_delay"})


def enqueue_options(**options: Any) -> Callable[[Any], Any]:
    """Below @task: options of queue_jobs.enqueue() for each job of this task. dedup_key may be a function of the task's arguments."""
    if unknown := options.keys() - _NAMES:
        raise TypeError(f"enqueue_options has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_NAMES))}")

    def note(function: Any) -> Any:
        function.queue_jobs_options = {**enqueue_options_of(function), **options}
        return function

    return note


def enqueue_options_of(function: Any) -> dict[str, Any]:
    return getattr(function, "queue_jobs_options", {})
