from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from queue_jobs.__main__ import add_options, apply_options
from queue_jobs.django.backend import QueueJobsBackend
from queue_jobs.django.framework import task_backends
from queue_jobs.django.worker import django_worker
from queue_jobs.log import to_stderr
from queue_jobs.worker import Refused


class Command(BaseCommand):
    help = "Runs the tasks that were enqueued by the backend, until SIGTERM."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="its name in TASKS")
        add_options(parser)

    def handle(self, **options: Any) -> None:
        backend = task_backends[options["backend"]]
        if not isinstance(backend, QueueJobsBackend):
            raise CommandError(f"the backend {options['backend']} is a {type(backend).__name__}, no QueueJobsBackend")
        worker = django_worker(backend, mode=options["mode"] or "transaction")
        try:
            apply_options(worker, type("Options", (), options))
        except ValueError as error:
            raise CommandError(str(error), returncode=2)
        to_stderr()
        try:
            worker.run()
        except Refused as refused:
            raise CommandError(str(refused))
