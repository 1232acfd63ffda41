"""What is the Python client's own: connections of all kinds, the context of a job, the helper for tests, the command. Run by package.pl."""

import asyncio
import contextlib
import io
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from datetime import datetime, timedelta, timezone

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))

import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import dict_row

import queue_jobs
from queue_jobs import Job, Worker, transaction_mode
from queue_jobs.__main__ import queue_list
from queue_jobs.log import JsonFormatter, logger
from queue_jobs.testing import assert_enqueued, enqueued, run_due

ENGINE = sqlalchemy.create_engine("postgresql+psycopg2://")
LIMIT = 180


def sql(statement, *parameters):
    with psycopg.connect(autocommit=True) as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else None


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up; jobs: {sql('SELECT id, worker, state, attempt, last_error FROM queue_jobs.job')}")
        time.sleep(0.05)


class Case(unittest.TestCase):
    """Workers with the test's name, so that no test meets another's jobs."""

    def setUp(self):
        self.name = self.id().rpartition(".")[2]
        sql("SELECT queue_jobs.define_worker(%s, max_retries => 3, retry_backoff => 'public.at_once')", self.name)

    def jobs(self, columns="args"):
        return sql(f"SELECT {columns} FROM queue_jobs.job WHERE worker = %s ORDER BY id", self.name)

    def work(self, worker, done):
        """Runs the worker in a thread until something is so."""
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            until(done)
        finally:
            worker.stop()
            thread.join(LIMIT)
        self.assertFalse(thread.is_alive())

    def finished(self, count=1):
        return lambda: len(sql("SELECT id FROM queue_jobs.job WHERE worker = %s AND state IN ('completed', 'dead')", self.name)) == count


class Refused(Case):
    def test_in_the_words_of_the_server(self):
        refused = [({"if_waiting": "last", "dedup_key": "a"}, "if_waiting must be"), ({"if_waiting": "debounce", "dedup_key": "a"}, "needs a delay"), ({"max_delay": 1}, "max_delay needs")]
        for options, message in refused:
            with psycopg.connect() as connection, self.assertRaisesRegex(psycopg.errors.InvalidParameterValue, message):
                queue_jobs.enqueue(connection, self.name, {}, **options)


class Connections(Case):
    def check(self, connection, commit, rollback):
        """Enqueues, and takes it back with the transaction."""
        self.assertIsInstance(queue_jobs.enqueue(connection, self.name, {"n": 0}), int)
        rollback()
        one = queue_jobs.enqueue(connection, self.name, {"n": 1, "text": "ö %s"}, delay=timedelta(minutes=5))
        many = queue_jobs.enqueue_many(connection, self.name, [{"n": 2}, {"n": 3}], priorities=[7, None], priority=7, tags=["a", "b c"], max_retries=2,
                                       run_ats=[None, "2001-01-01 00:00Z"], dedup_keys=[None, None])
        token = queue_jobs.enqueue(connection, self.name, {"n": 4}, dedup_key="token", tags=("own",), max_retries=0, timeout=timedelta(minutes=1), keep_completed="1 day")
        self.assertIsNone(queue_jobs.try_enqueue(connection, self.name, {"n": 5}, dedup_key="token"))
        latest = queue_jobs.enqueue(connection, self.name, {"n": 5}, dedup_key="latest", if_waiting="debounce", delay="2 hours", max_delay=timedelta(hours=1))
        self.assertEqual(queue_jobs.enqueue(connection, self.name, {"n": 6}, dedup_key="latest", if_waiting="replace_args"), latest)
        self.assertEqual(queue_jobs.enqueue_many(connection, self.name, []), [])
        assert_enqueued(connection, self.name, {"n": 1})
        commit()
        self.assertEqual(self.jobs("id, args ->> 'n', priority"), [(one, "1", 0), (many[0], "2", 7), (many[1], "3", 7), (token, "4", 0), (latest, "6", 0)])
        self.assertEqual(self.jobs("round(extract(epoch FROM run_at - created_at))")[-1], (3600,))
        self.assertEqual(self.jobs("tags, max_attempts")[1:4], [(["a", "b c"], 3), (["a", "b c"], 3), (["own"], 1)])

    def test_psycopg(self):
        with psycopg.connect() as connection:
            self.check(connection, connection.commit, connection.rollback)

    def test_psycopg_with_rows_of_another_kind(self):
        with psycopg.connect(row_factory=dict_row) as connection:
            self.check(connection, connection.commit, connection.rollback)

    def test_psycopg2(self):
        connection = psycopg2.connect("")
        self.check(connection, connection.commit, connection.rollback)
        connection.close()

    def test_psycopg2_with_rows_of_another_kind(self):
        connection = psycopg2.connect("", connection_factory=psycopg2.extras.RealDictConnection)
        self.check(connection, connection.commit, connection.rollback)
        connection.close()

    def test_sqlalchemy_connection(self):
        with ENGINE.connect() as connection:
            transactions = [connection.begin()]

            def rollback():
                transactions.pop().rollback()
                transactions.append(connection.begin())

            self.check(connection, lambda: transactions[0].commit(), rollback)

    def test_sqlalchemy_session(self):
        with sqlalchemy.orm.Session(ENGINE) as session:
            self.check(session, session.commit, session.rollback)

    def test_psycopg_async(self):
        async def main():
            async with await psycopg.AsyncConnection.connect() as connection:
                await queue_jobs.aenqueue(connection, self.name, {"n": 0})
                await connection.rollback()
                await queue_jobs.aenqueue(connection, self.name, {"n": 1}, run_at=datetime(2100, 1, 1, tzinfo=timezone.utc))
                await queue_jobs.aenqueue_many(connection, self.name, [{"n": 2}])

        asyncio.run(main())
        self.assertEqual([args["n"] for (args,) in self.jobs()], [1, 2])

    def test_batches_and_workflows(self):
        """On connections whose drivers take lists in different ways."""
        for connect in (psycopg.connect, lambda: psycopg2.connect(""), lambda: sqlalchemy.orm.Session(ENGINE)):
            connection = connect()
            self.check_batches(connection)
            connection.rollback()
            connection.close()

    def check_batches(self, connection):
        batch = queue_jobs.new_batch(connection, "import", on_success=self.name, args={"import": 7}, open=True)
        queue_jobs.enqueue(connection, self.name, {"n": 1}, batch=batch)
        queue_jobs.enqueue_many(connection, self.name, [{"n": 2}], batch=batch)
        queue_jobs.close_batch(connection, batch)
        steps = [{"step": "load", "worker": self.name, "delay": timedelta(minutes=1)}, {"step": "report", "worker": self.name, "after": ["load"], "args": {"n": 3}}]
        load, report = queue_jobs.enqueue_workflow(connection, "nightly", steps, dedup_key="today", keep=3600)
        self.assertEqual([load.step, report.step], ["load", "report"])
        self.assertEqual([job["state"] for job in enqueued(connection, self.name)], ["available", "available", "scheduled", "waiting"])
        later = queue_jobs.enqueue(connection, self.name, after=[load.job, report.job], if_dead="run")
        self.assertEqual(enqueued(connection, self.name)[-1]["state"], "waiting")
        self.assertIs(queue_jobs.signal(connection, later, "paid", {"amount": None}), True)
        self.assertIs(queue_jobs.signal(connection, later, "paid"), False)
        worker = Worker()
        worker.handler(self.name)(lambda job: [(row["args"], row["result"]) for row in job.batch_results()])
        self.assertEqual([one.result for one in run_due(connection, worker)], [[({"n": 1}, None), ({"n": 2}, None)], [({"n": 1}, [[{"n": 1}, None], [{"n": 2}, None]]), ({"n": 2}, None)]])

    def test_context_and_trace(self):
        class Propagate:
            """What we use of OpenTelemetry."""

            @staticmethod
            def inject(carrier):
                carrier["traceparent"] = "00-1-2-01"

        sys.modules["opentelemetry.propagate"] = Propagate
        self.addCleanup(sys.modules.pop, "opentelemetry.propagate")
        with psycopg.connect(autocommit=True) as connection:
            connection.execute("""SET queue_jobs.context = '{"user": 1}'""")
            queue_jobs.enqueue(connection, self.name, context={"tenant": "ö"})
            queue_jobs.enqueue_many(connection, self.name, [{}])
            queue_jobs.enqueue_workflow(connection, "nightly", [{"step": "one", "worker": self.name}], context={"tenant": "ö"})
            self.assertEqual(connection.execute("SELECT current_setting('queue_jobs.context')").fetchone(), ('{"user": 1}',))
            queue_jobs.enqueue_workflow(connection, "nightly", [{"step": "one", "worker": self.name}])
        trace = {"traceparent": "00-1-2-01"}
        self.assertEqual([context for (context,) in self.jobs("context")], [{"tenant": "ö", **trace}, trace, {"user": 1, "tenant": "ö", **trace}, {"user": 1, **trace}])

    def test_refused(self):
        with psycopg.connect() as connection:
            self.assertRaises(ValueError, queue_jobs.enqueue, connection, self.name, run_at=datetime(2100, 1, 1))
            self.assertRaises(ValueError, queue_jobs.enqueue, connection, self.name, {"n": float("nan")})
            self.assertRaises(psycopg.errors.UndefinedObject, queue_jobs.enqueue, connection, "no such worker")


class Handlers(Case):
    def test_middleware_and_logged_lines(self):
        lines = io.StringIO()
        handler = logging.StreamHandler(lines)
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        worker, calls, stops = Worker(), [], []
        handler.addFilter(lambda record: record.getMessage() != "stopping" or stops.append(worker.stopping) is None)

        @worker.middleware
        def outer(job, call_next):
            calls.append("outer")
            return {"outer": call_next()}

        @worker.middleware
        def inner(job, call_next):
            calls.append("inner")
            return call_next()

        @worker.handler(self.name)
        async def handler_of_the_job(job):
            calls.append("handler")
            return job.args["n"]

        with psycopg.connect() as connection:
            id = queue_jobs.enqueue(connection, self.name, {"n": 1}, context={"traceparent": "00-1-2-01"})
        # The line comes after the job's COMMIT.
        self.work(worker, lambda: '"event": "completed"' in lines.getvalue())
        logger.removeHandler(handler)
        self.assertEqual(calls, ["outer", "inner", "handler"])
        self.assertEqual(self.jobs("result"), [({"outer": 1},)])
        events = {line["event"]: line for line in map(json.loads, lines.getvalue().splitlines())}
        self.assertEqual(list(events), ["started", "completed", "stopping", "stopped"])
        self.assertEqual(stops, [True])
        self.assertEqual((events["completed"]["job"], events["completed"]["traceparent"]), (id, "00-1-2-01"))

    def test_retry_in_and_discard(self):
        for mode in ("transaction", "lease"):
            worker, queue = Worker(mode=mode, queues=[mode]), mode

            @worker.handler(self.name)
            def handler(job):
                if job.args["n"] == 0:
                    job.discard("no use")
                job.retry_in("1 hour")
                raise RuntimeError("later")

            with psycopg.connect() as connection:
                ids = [queue_jobs.enqueue(connection, self.name, {"n": n}, queue=queue) for n in (0, 1)]
            find = "SELECT state::text, last_error, coalesce(finished_at, run_at) > now() + '50 min' FROM queue_jobs.job WHERE id = ANY (%s) AND last_error IS NOT NULL ORDER BY id"
            self.work(worker, lambda: len(sql(find, ids)) == 2)
            self.assertEqual(sql(find, ids), [("dead", "no use", False), ("retryable", "RuntimeError: later", True)])

    def test_workflow(self):
        """Its steps in order, with the results of those before, in the context of who enqueued them; a batch's callback has its results."""
        for mode in ("transaction", "lease"):
            worker, seen, queue = Worker(mode=mode, queues=[mode]), [], mode

            @worker.handler(self.name)
            def handler(job):
                if job.args.get("start"):
                    with psycopg.connect(autocommit=True) as connection:
                        queue_jobs.enqueue_workflow(connection, "nightly", [
                            {"step": step, "worker": self.name, "args": {"step": step}, "after": after, "queue": queue}
                            for step, after in (("a", []), ("b", []), ("sum", ["a", "b"]))])
                elif job.args["step"] == "sum":
                    seen.append((job.results(), job.context, [row["step"] for row in job.batch_results() if row["result"]]))
                return job.args.get("step")

            with psycopg.connect() as connection:
                queue_jobs.enqueue(connection, self.name, {"start": mode}, queue=queue, context={"tenant": mode})
            self.work(worker, lambda: seen)
            self.assertEqual(seen, [({"a": "a", "b": "b"}, {"tenant": mode}, ["a", "b"])])

    def test_wait_for_a_signal_without_a_name(self):
        """What the server refuses is a failure, in both modes."""
        for mode in ("transaction", "lease"):
            worker = Worker(mode=mode)
            worker.handler(self.name)(lambda job: job.wait_for_signal(""))
            with psycopg.connect() as connection:
                id = queue_jobs.enqueue(connection, self.name)
            self.work(worker, lambda: sql("SELECT state::text, last_error LIKE '%%invalid signal name%%' FROM queue_jobs.job WHERE id = %s", id) == [("dead", True)])

    def test_signal_and_after_commit(self):
        """A handler's signal and what it enqueues belong to its run; after_commit() comes after it."""
        for mode in ("transaction", "lease"):
            worker, seen = Worker(mode=mode, queues=[mode]), []

            @worker.handler(self.name)
            def handler(job):
                if mode == "transaction":
                    job.after_commit(lambda: seen.append(sql("SELECT state::text FROM queue_jobs.job WHERE id = %s", job.id)))
                return [job.signal(job.args["to"], "go", {"by": job.id}), job.signal(job.args["to"], "go"), len(job.enqueue_many(self.name, [{}, {}], delay="1 day"))]

            with psycopg.connect() as connection:
                to = queue_jobs.enqueue(connection, self.name, delay="1 hour")
                id = queue_jobs.enqueue(connection, self.name, {"to": to}, queue=mode)
            self.work(worker, lambda: sql("SELECT id FROM queue_jobs.job WHERE id = %s AND state = 'completed'", id) and (seen or mode == "lease"))
            self.assertEqual(sql("SELECT result FROM queue_jobs.job WHERE id = %s", id), [([True, False, 2],)])
            self.assertEqual(sql("SELECT payload FROM queue_jobs.job_signal WHERE job = %s", to), [({"by": id},)])
            self.assertEqual(seen, [[("completed",)]] if mode == "transaction" else [])

    def test_what_fails_goes_back(self):
        sql("CREATE TABLE written (n int PRIMARY KEY, other int REFERENCES written DEFERRABLE INITIALLY DEFERRED)")
        worker = Worker(concurrency=2)

        @worker.handler(self.name)
        def handler(job):
            job.connection.execute("INSERT INTO written VALUES (%s, %s)", [job.args["n"], job.args.get("other")])
            if job.args["n"] == 2:
                job.connection.execute("SELECT 1 / 0")
            if job.args["n"] == 3:
                return {1, 2}

        sql("SELECT queue_jobs.define_worker(%s, max_retries => 0)", self.name)
        with psycopg.connect() as connection:
            queue_jobs.enqueue_many(connection, self.name, [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4, "other": 5}, {"n": 6}])
        self.work(worker, self.finished(5))
        self.assertEqual(sql("SELECT n FROM written ORDER BY n"), [(1,), (6,)])
        self.assertEqual([error and error.partition(":")[0] for (error,) in self.jobs("last_error")], [None, "DivisionByZero", "TypeError", "ForeignKeyViolation", None])

    def test_what_does_not_end_in_time_is_not_charged(self):
        # No seconds are left if the machine stands still for so long.
        for seconds in (transaction_mode.LAST_SECONDS, 0):
            with unittest.mock.patch.object(transaction_mode, "LAST_SECONDS", seconds):
                self.abandon_two_jobs()
            free = sql("SELECT id, attempt, errors FROM queue_jobs.claim('next', ARRAY[%s], 2, '1 hour')", self.name)
            self.assertEqual([row[1:] for row in free], [(1, None)] * 2)

    def abandon_two_jobs(self):
        begun = []
        worker = Worker(concurrency=2, grace=0.1, queues=[self.name])

        @worker.handler(self.name)
        def handler(job):
            begun.append(job.id)
            if job.args["n"] == 1:
                time.sleep(LIMIT)
            with contextlib.suppress(psycopg.errors.QueryCanceled), job.connection.transaction():
                job.connection.execute("SELECT pg_sleep(600)")
            job.connection.execute("SELECT pg_sleep(600)")

        with psycopg.connect() as connection:
            for n in [1, 2]:
                queue_jobs.enqueue(connection, self.name, {"n": n}, queue=self.name)
        self.work(worker, lambda: len(begun) == 2)

    def test_a_job_that_takes_its_process_along_takes_no_other(self):
        """Its neighbours are charged once at most, since it is run alone from then on."""
        program = os.path.join(HERE, "poison")
        sql("SELECT queue_jobs.define_worker('poison')")
        with psycopg.connect() as connection:
            queue_jobs.enqueue_many(connection, self.name, [{}] * 3)
            queue_jobs.enqueue(connection, "poison")
            queue_jobs.enqueue_many(connection, self.name, [{}] * 3)
        while subprocess.run([sys.executable, program, self.name], stderr=subprocess.DEVNULL, timeout=LIMIT).returncode != 0:
            pass
        self.assertEqual(sql("SELECT state::text FROM queue_jobs.job WHERE worker = 'poison'"), [("dead",)])
        self.assertEqual(self.jobs("state::text"), [("completed",)] * 6)


class Helper(Case):
    def test_run_due(self):
        worker = Worker()

        @worker.handler(self.name)
        def handler(job):
            if job.args["n"] > 2:
                job.enqueue(self.name, {"n": job.args["n"] - 1})
            if job.args["n"] == 1:
                job.retry_in("1 hour")
                raise RuntimeError("one")
            return job.connection is not None

        with psycopg.connect() as connection:
            queue_jobs.enqueue(connection, self.name, {"n": 4})
            queue_jobs.enqueue(connection, self.name, {"n": 5}, delay="1 hour")
            ran = run_due(connection, worker)
            self.assertEqual([(one.job.args["n"], one.event, one.result) for one in ran], [(4, "completed", True), (3, "completed", True), (2, "completed", True)])
            queue_jobs.enqueue(connection, self.name, {"n": 1})
            with self.assertRaisesRegex(RuntimeError, "one"):
                run_due(connection, worker)
            connection.rollback()
            queue_jobs.enqueue(connection, self.name, {"n": 1})
            ran = run_due(connection, worker, raise_errors=False)
            self.assertEqual([(one.event, str(one.error)) for one in ran], [("failed", "one")])
            self.assertEqual([job["state"] for job in enqueued(connection, self.name)], ["retryable"])
            connection.rollback()
        self.assertEqual(self.jobs(), [])

    def test_run_due_with_a_signal(self):
        worker = Worker()

        @worker.handler(self.name)
        def handler(job):
            if "go" not in job.signals():
                job.wait_for_signal("go", timedelta(hours=1))
            return [job.signal_payload("go"), job.signal_payload("another")]

        with psycopg.connect() as connection:
            queue_jobs.enqueue(connection, self.name)
            self.assertEqual([(one.event, one.result) for one in run_due(connection, worker)], [("waiting", None)])
            self.assertEqual([job["state"] for job in enqueued(connection, self.name)], ["waiting"])
            self.assertEqual(run_due(connection, worker), [])
            for payload in ({"by": "ö"}, None):
                queue_jobs.signal(connection, queue_jobs.enqueue(connection, self.name), "go", payload)
                self.assertEqual([(one.event, one.result) for one in run_due(connection, worker)], [("completed", [payload, None])])
            connection.rollback()

    def test_run_due_in_a_session(self):
        worker = Worker()
        worker.handler(self.name)(lambda job: queue_jobs.enqueue(job.connection, self.name, {"n": 1}) if not job.args else None)
        with sqlalchemy.orm.Session(ENGINE) as session:
            queue_jobs.enqueue(session, self.name)
            self.assertEqual([one.job.args for one in run_due(session, worker)], [{}, {"n": 1}])
            session.rollback()

    def test_assert_enqueued(self):
        with psycopg.connect() as connection:
            queue_jobs.enqueue(connection, self.name, {"n": 1, "m": 2})
            assert_enqueued(connection, self.name, {"n": 1}, count=1)
            self.assertEqual(enqueued(connection, self.name)[0]["args"], {"n": 1, "m": 2})
            with self.assertRaisesRegex(AssertionError, "'m': 2"):
                assert_enqueued(connection, self.name, {"n": 2})
            connection.rollback()


class Types(unittest.TestCase):
    def test_types(self):
        options = ["--python-version", "3.9", "--cache-dir", os.devnull, "--disallow-untyped-defs", "--ignore-missing-imports", "--warn-unused-ignores", "--exclude", "django/"]
        checked = subprocess.run(["mypy", *options, "queue_jobs", "test/types_of_use.py"], cwd=os.path.join(HERE, ".."), capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


class Documents(Case):
    def blocks(self, path, language):
        """The examples of a document. Its database is the one that the test has."""
        text = pathlib.Path(HERE, "..", "..", "..", path).read_text(encoding="utf-8")
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
        return [block.replace('"dbname=shop"', '""').replace(":///shop", "://") for block in blocks]

    def execute(self, path):
        for block in self.blocks(path, "sql"):
            for statement in filter(str.strip, block.split(";\n")):
                sql(statement)

    def test_readme(self):
        jobs, application = self.blocks("clients/python/README.md", "python")
        self.execute("clients/python/README.md")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "jobs.py"), "w", encoding="utf-8") as file:
                file.write(jobs)
            exec(application, {})
            with command(folder, "jobs", "--concurrency", "4"):
                until(lambda: sql("SELECT mail_id FROM delivery") == [(13,)])
        self.assertEqual(sql("SELECT result FROM queue_jobs.job WHERE worker = 'deliver'"), [({"status": 250},)])

    def test_how_to(self):
        self.execute("docs/how-to/python.md")
        if not sql("SELECT 1 FROM pg_proc WHERE proname = 'continue_at'"):
            self.skipTest("this version has no queue_jobs.continue_at()")
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            *blocks, tests = self.blocks("docs/how-to/python.md", "python")
            for block in blocks:
                exec(block, names)
            self.work(names["worker"], lambda: not sql("SELECT 1 FROM queue_jobs.job WHERE worker IN ('charge', 'import', 'report') AND state NOT IN ('completed', 'dead')"))
            exec(tests, names)
        self.assertEqual(sql("SELECT order_id, amount FROM charge ORDER BY 1"), [(1, 10), (2, 20)])
        self.assertEqual(sql("SELECT worker, count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'dead') FROM queue_jobs.job WHERE worker IN ('charge', 'import', 'report') GROUP BY 1 ORDER BY 1"),
                         [("charge", 2, 0), ("import", 1, 0), ("report", 2, 1)])


@contextlib.contextmanager
def command(folder, *arguments, **environment):
    """python -m queue_jobs, in that folder; yields the list that its lines go to in the end."""
    lines = []
    program = subprocess.Popen([sys.executable, "-B", "-m", "queue_jobs", *arguments], stderr=subprocess.PIPE, cwd=folder,
                               env={**os.environ, "PYTHONPATH": os.path.join(HERE, ".."), **environment})
    try:
        yield lines
    finally:
        program.send_signal(signal.SIGTERM)
        lines += [json.loads(line) for line in program.communicate(timeout=LIMIT)[1].splitlines()]
    if program.returncode != 0:
        raise AssertionError(f"ended with {program.returncode}: {lines}")


class Command(Case):
    def test_module(self):
        sql("SELECT queue_jobs.enqueue(%s)", self.name)
        with command(HERE, "command:worker", "--concurrency", "2", "--mode", "lease", WORKER=self.name) as lines:
            until(self.finished())
        self.assertEqual((lines[0]["mode"], lines[0]["concurrency"], lines[0]["queues"]), ("lease", 2, [f"worker={self.name}"]))

    def test_wrong_options(self):
        """The command line is wrong: status 2, and what is wrong. --help says what is right."""
        for arguments, status, says in (("command:worker --concurrency 0", 2, "--concurrency is at least 1"), ("command:worker --no-such", 2, "--no-such"), ("", 2, "module"),
                                        ("json", 1, "0 workers"), ("--help", 0, "seconds from SIGTERM|from SIGTERM until")):
            ended = subprocess.run([sys.executable, "-B", "-m", "queue_jobs", *arguments.split()], cwd=HERE, timeout=LIMIT, capture_output=True, text=True,
                                   env={**os.environ, "PYTHONPATH": os.path.join(HERE, ".."), "WORKER": self.name, "COLUMNS": "500"})
            self.assertEqual(ended.returncode, status, ended)
            self.assertRegex(ended.stdout + ended.stderr, says)

    def test_lists_of_queues(self):
        self.assertEqual(queue_list("mail,sms shop:* urgency=high&tags=mail,index"), ["mail", "sms", "shop:*", "urgency=high&tags=mail,index"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
