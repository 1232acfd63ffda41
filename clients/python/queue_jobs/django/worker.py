"""A Worker whose handlers use Django's own connections."""

from __future__ import annotations

from typing import Any, Callable

import psycopg
from django.db import close_old_connections, connections, transaction
from django.utils import timezone

from ..job import Job
from ..worker import Worker
from .backend import WORKER, QueueJobsBackend
from .framework import TaskContext, TaskResultStatus, task_finished, task_started


def django_worker(backend: QueueJobsBackend, **options: Any) -> Worker:
    """Runs the tasks of that backend. In transaction mode what a task writes by Django's default connection is committed with its completion."""
    alias = backend.options.get("DATABASE", "default")
    worker = Worker(**options)
    if worker.mode == "transaction":
        worker.connect = lambda: _connection_of_thread(alias)
        worker.middleware(_in_atomic_block(alias))
    else:
        worker.connect = lambda: _connect(connections.create_connection(alias))
        worker.middleware(_with_fresh_connections)
    worker.handler(WORKER)(lambda job: run_task(backend, job))
    return worker


def run_task(backend: QueueJobsBackend, job: Job) -> Any:
    """Calls the task of a job; its error has the job fail, and be tried again as the worker says."""
    task, args, kwargs = backend.call_of(job.args, vars(job))
    result = backend.result_of(task, str(job.id), TaskResultStatus.RUNNING, args, kwargs, enqueued_at=job.created_at, started_at=timezone.now(),
                               last_attempted_at=timezone.now(), worker_ids=[job._owner.claimant if job._owner else ""] * job.attempt)
    task_started.send(type(backend), task_result=result)
    context = [TaskContext(task_result=result)] if task.takes_context else []
    status = TaskResultStatus.FAILED
    try:
        value = task.call(*context, *args, **kwargs)
        status = TaskResultStatus.SUCCESSFUL
        return value
    finally:
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", status)
        task_finished.send(type(backend), task_result=result)


def _connection_of_thread(alias: str) -> psycopg.Connection:
    """The connection that Django gives this thread, made again if there was one."""
    connections[alias].close()
    return _connect(connections[alias])


def _connect(connection: Any) -> psycopg.Connection:
    connection.connect()
    return connection.connection


def _in_atomic_block(alias: str) -> Callable[[Job, Callable[[], Any]], Any]:
    """Tells Django that a transaction is open, so that transaction.atomic() in a task makes a savepoint, and on_commit() waits for our COMMIT."""

    def middleware(job: Job, call_next: Callable[[], Any]) -> Any:
        connection = connections[alias]
        if connection.in_atomic_block:  # run_due() in a test, which has a transaction of Django's own
            return call_next()
        connection.in_atomic_block, connection.autocommit, connection.run_on_commit = True, False, []
        try:
            value = call_next()
            if connection.needs_rollback:
                raise transaction.TransactionManagementError("the task has gone on after an error of the database")
            for _, function, *_ in connection.run_on_commit:
                job.after_commit(function)
            return value
        finally:
            connection.in_atomic_block, connection.autocommit, connection.run_on_commit = False, True, []
            connection.needs_rollback, connection.savepoint_ids = False, []

    return middleware


def _with_fresh_connections(job: Job, call_next: Callable[[], Any]) -> Any:
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()
