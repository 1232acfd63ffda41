"""The backend of Django's tasks, with an application that is django_project. Run by django.pl."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock
from datetime import timedelta

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "django_project"), os.path.join(here, "..")]
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

import django

django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from queue_jobs.django import enqueue_options
from queue_jobs.django.backend import task_error
from queue_jobs.django.framework import Task, TaskResultDoesNotExist, TaskResultStatus, task_backends
from queue_jobs.django.worker import django_worker
from queue_jobs.job import Discard
from queue_jobs.outcome import of_error
from queue_jobs.testing import run_due
from shop.models import Order
from shop.tasks import add, book, book_and_tell, fail_once, index, quiet, roll_back, work_as

LIMIT = 180


def setUpModule():
    call_command("migrate", run_syncdb=True, verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$")
        cursor.execute("SELECT queue_jobs.define_worker('django_tasks', retry_backoff => 'public.at_once')")


class Work:
    """manage.py queue_jobs, as a process of its own."""

    def __init__(self, *arguments):
        self.program = subprocess.Popen([sys.executable, "-B", "-m", "django", "queue_jobs", *arguments], cwd=here, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def finished(self, result):
        """The result, once its task has ended."""
        self.until(lambda: result.refresh() or result.is_finished)
        return result

    def until(self, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            self.check(self.program.poll() is None and time.monotonic() < end)
            time.sleep(0.05)

    def check(self, so):
        if not so:
            self.program.kill()
            raise AssertionError(f"ended with {self.program.wait()}: {self.program.stderr.read().decode()}")

    def __exit__(self, *_):
        self.program.send_signal(signal.SIGTERM)
        self.check(self.program.wait(LIMIT) == 0)
        self.program.stderr.close()


class Tasks(unittest.TestCase):
    class Inner(Exception):
        __module__ = "shop.errors"

    def setUp(self):
        Order.objects.all().delete()

    def check(self, mode):
        results = [book.enqueue(1), fail_once.enqueue(2), add.enqueue(2, b=3), asyncio.run(add.aenqueue(4, b=5))]
        with Work("--mode", mode, "--concurrency", "2") as work:
            for result in results:
                self.assertEqual(work.finished(result).status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual([result.return_value for result in results], [1, 2, 5, 9])
        self.assertEqual(results[1].attempts, 2)
        self.assertEqual([error.exception_class for error in results[1].errors], [ValueError])
        self.assertIn("in fail_once", results[1].errors[0].traceback)

    def test_transaction_mode(self):
        self.check("transaction")
        self.assertEqual(list(Order.objects.order_by("number").values_list("number", flat=True)), [1, 2])

    def test_lease_mode(self):
        fails = book.enqueue(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT queue_jobs.cancel(%s)", [int(fails.id)])
        fails.refresh()
        self.assertEqual(fails.status, TaskResultStatus.FAILED)
        Order.objects.create(number=5)
        results = [book.enqueue(1), add.enqueue(2, b=3)]
        with Work("--mode", "lease", "--concurrency", "2", "--queues", "default mails") as work:
            self.assertEqual([work.finished(result).return_value for result in results], [1, 5])

    def test_on_commit_and_savepoints(self):
        result = book_and_tell.enqueue(7)
        with Work() as work:
            self.assertIs(work.finished(result).return_value, True)
            work.until(lambda: Order.objects.count() == 2)
        self.assertEqual(sorted(Order.objects.values_list("number", flat=True)), [7, 8])

    def test_enqueue_belongs_to_the_transaction(self):
        try:
            with transaction.atomic():
                gone = book.enqueue(1)
                raise RuntimeError
        except RuntimeError:
            pass
        self.assertRaises(TaskResultDoesNotExist, book.get_result, gone.id)
        self.assertRaises(TaskResultDoesNotExist, book.get_result, "no number")

    def test_refused(self):
        """What would be refused again ends the command."""
        ended = subprocess.run([sys.executable, "-B", "-m", "django", "queue_jobs", "--queues", "urgencyy=high"], cwd=here, timeout=LIMIT, capture_output=True, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, "\nCommandError: invalid term .*urgencyy")

    def test_rollback_in_a_task(self):
        """Is refused, and charged to the task."""
        result = roll_back.enqueue()
        with Work() as work:
            self.assertEqual(work.finished(result).status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual([error.exception_class.__name__ for error in result.errors], ["ProgrammingError"])
        self.assertEqual(Order.objects.count(), 0)

    def test_role_in_a_task(self):
        """Ends with the task: it is neither the one that completes it nor that of the next."""
        results = [work_as.enqueue(role) for role in ("SET LOCAL ROLE pg_monitor", "SET ROLE pg_monitor", "SELECT 1")]
        with Work() as work:
            done = [work.finished(result) for result in results]
        self.assertEqual([error.traceback for result in done for error in result.errors], [])
        self.assertEqual([result.return_value for result in done], ["pg_monitor", "pg_monitor", connection.settings_dict["USER"]])
        with transaction.atomic():
            results = [work_as.enqueue("SET ROLE pg_monitor"), work_as.enqueue("SELECT 1")]
            ran = run_due(connection, django_worker(task_backends["default"]))
            self.assertEqual([one.result for one in ran], ["pg_monitor", connection.settings_dict["USER"]])

    def test_framework(self):
        """Django 6 has tasks of its own, and so needs no other package."""
        self.assertEqual(Task.__module__, {"django-tasks": "django_tasks.base", "Django 6": "django.tasks.base"}[os.environ["FRAMEWORK"]])
        self.assertEqual(django.VERSION[0] >= 6, os.environ["FRAMEWORK"] == "Django 6")

    def error_of(self, raised):
        """As get_result() gives it, where the server keeps 10,000 bytes of each text."""
        try:
            raise raised
        except Exception as error:
            job = unittest.mock.Mock(retry_delay=None)
            message, stack = (text.encode()[:10000].decode("utf-8", "ignore") for text in of_error(job, error).parameters[:2])
        return task_error({"message": message, "detail": stack})

    def test_class_of_an_error(self):
        cause = ValueError("cause")
        for raised in (ValueError("no\n number"), ValueError("no\nshop.ValueError: no\n  File x\nE: y"), Order.DoesNotExist("x: y"), KeyError(), self.Inner("a"),
                       self.Inner(" \n" * 20_000), self.Inner("ö" * 20_000), Discard("no\n use"), OSError(2, "x")):
            raised.__cause__ = cause
            self.assertEqual(self.error_of(raised).exception_class_path, f"{type(raised).__module__}.{type(raised).__qualname__}")
        self.assertEqual(task_error({"message": "session of claimant \"a\" ended"}).exception_class_path, "builtins.Exception")

    def test_time_for_the_class_of_an_error(self):
        """A regular expression took the third power of the number of lines."""
        signal.alarm(LIMIT)
        for line in ("\n x", "\nValueError: x", "\na.b", "\n", " x"):
            message = "ValueError: x" + line * 100_000 + "\n"
            stack = f"Traceback (most recent call last):\n  File x\n    raise x\n{message}"
            self.assertEqual(task_error({"message": message, "detail": stack}).exception_class_path, "builtins.ValueError")
            self.assertEqual(task_error({"message": "E: y", "detail": stack}).exception_class_path, "builtins.Exception")
        signal.alarm(0)

    def test_run_due(self):
        with transaction.atomic():
            result = book.enqueue(3)
            self.assertEqual([ran.result for ran in run_due(connection, django_worker(task_backends["default"]))], [1])
            self.assertEqual(book.get_result(result.id).return_value, 1)
            self.assertTrue(connection.in_atomic_block)
            transaction.set_rollback(True)
        self.assertEqual(Order.objects.count(), 0)

    def test_what_is_said_of_a_task(self):
        due = timezone.now() + timedelta(days=1)
        result = add.using(run_after=due, priority=-7).enqueue(1, b=2)
        found = add.get_result(result.id)
        self.assertEqual((found.args, found.kwargs, found.status), ([1], {"b": 2}, TaskResultStatus.READY))
        self.assertEqual((found.task.priority, found.task.queue_name, found.task.run_after), (-7, "mails", due))
        with connection.cursor() as cursor:
            cursor.execute("SELECT priority, queue FROM queue_jobs.job WHERE id = %s", [int(result.id)])
            self.assertEqual(cursor.fetchone(), (7, "mails"))
            cursor.execute("SELECT queue_jobs.cancel(%s)", [int(result.id)])

    def test_options(self):
        with transaction.atomic():
            first = index.enqueue(1, word="old")
            self.assertEqual(index.enqueue(1, word="new").id, first.id)
            self.assertEqual(index.get_result(first.id).kwargs, {"word": "new"})
            later = quiet.using(run_after=timezone.now() + timedelta(hours=2)).enqueue()
            with connection.cursor() as cursor:
                cursor.execute("SELECT tags, max_attempts, dedup_key FROM queue_jobs.job WHERE id = %s", [int(first.id)])
                self.assertEqual(cursor.fetchone(), (["search"], 1, "index 1"))
                cursor.execute("SELECT round(extract(epoch FROM run_at - created_at)) FROM queue_jobs.job WHERE id = %s", [int(later.id)])
                self.assertEqual(cursor.fetchone(), (3600,))
            transaction.set_rollback(True)
        with self.assertRaisesRegex(TypeError, "no option delay"):
            enqueue_options(delay=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
