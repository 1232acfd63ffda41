"""What goes wrong in a handler, on a connection, or at the start: charged to its job, noticed, or told. Run by package.pl."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import psycopg
from package import HERE, LIMIT, Case, sql, until

import queue_jobs
from queue_jobs import Worker, session
from queue_jobs.guard import ends_transaction
from queue_jobs.log import logger
from queue_jobs.values import LONGEST_JSON, interval, to_json


class Proxy:
    """Leads from a port to the server. silent() has it swallow what comes on the connections of that moment, and on those made later if more is true."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.conninfo = f"host=127.0.0.1 port={self.listener.getsockname()[1]}"
        self.silenced, self.more, self.pairs = set(), False, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{os.environ['PGHOST']}/.s.PGSQL.{os.environ['PGPORT']}")
            pair = client, server
            self.pairs.append(pair)
            if self.more:
                self.silenced.add(pair)
            for source, target in (pair, pair[::-1]):
                threading.Thread(target=self.pass_on, args=(pair, source, target), daemon=True).start()

    def pass_on(self, pair, source, target):
        try:
            while data := source.recv(65536):
                if pair not in self.silenced:
                    target.sendall(data)
        except OSError:
            pass
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def silent(self, more=False):
        self.more = more
        self.silenced.update(self.pairs)


class Lines(io.StringIO):
    """What is logged meanwhile."""

    def __enter__(self):
        self.handler = session.logging.StreamHandler(self)
        self.handler.setFormatter(queue_jobs.log.JsonFormatter())
        logger.addHandler(self.handler)
        logger.setLevel("DEBUG")
        return self

    def __exit__(self, *_):
        logger.removeHandler(self.handler)

    def events(self, event):
        return [line for line in map(json.loads, self.getvalue().splitlines()) if line["event"] == event]


class Charged(Case):
    def enqueue(self, *args):
        sql("SELECT queue_jobs.define_worker(%s, max_retries => 0)", self.name)
        with psycopg.connect() as connection:
            return queue_jobs.enqueue_many(connection, self.name, [{"n": n} for n in args])

    def outcomes(self, worker, *calls):
        """Each is called by a job's handler; the states of the jobs and their errors, once they have ended, and another job behind them, too."""
        worker.handler(self.name)(lambda job: calls[job.args["n"]](job) if job.args["n"] < len(calls) else None)
        self.enqueue(*range(len(calls) + 1))
        self.work(worker, self.finished(len(calls) + 1))
        *found, behind = sql("SELECT state::text, jsonb_array_length(errors), last_error FROM queue_jobs.job WHERE worker = %s ORDER BY id", self.name)
        self.assertEqual(behind, ("completed", None, None))
        return found

    def test_transaction_ended_by_the_handler(self):
        def swallow(job):
            try:
                with job.connection.transaction():
                    raise LookupError
            except LookupError:
                pass

        refused = [
            lambda job: job.connection.commit(), lambda job: job.connection.rollback(), lambda job: job.connection.execute(b"COMMIT"),
            lambda job: job.connection.execute(psycopg.sql.SQL("{} WORK").format(psycopg.sql.SQL("ROLLBACK"))),
            lambda job: job.connection.cursor().executemany("COMMIT", [()]), lambda job: list(job.connection.cursor().stream("COMMIT"))]
        around = [lambda job: psycopg.Cursor(job.connection).execute("ROLLBACK") and None,
                  *(lambda job, sql=sql: job.connection.pgconn.exec_(sql) and None for sql in (b"COMMIT", b"COMMIT; BEGIN", b"ROLLBACK; BEGIN")),
                  lambda job: job.connection.execute("SELECT queue_jobs.complete(%s, %s)", [job.id, job.attempt]) and None]
        found = self.outcomes(Worker(queues=[self.name]), *refused, *around, swallow)
        for n, (state, errors, error) in enumerate(found[:-1]):
            self.assertEqual((n, state, errors), (n, "dead", 1))
            self.assertRegex(error, "ransaction" if n < len(refused) else "has ended|without its outcome|not claimed by attempt")
        self.assertEqual(found[-1], ("completed", None, None))

    def test_connection_closed_by_the_handler(self):
        """As the end of any session in the middle of its transaction: three times over, and the job is dead."""
        found = self.outcomes(Worker(queues=[self.name]), lambda job: job.connection.close(), lambda job: job.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())"),
                              lambda job: job.connection.close() or sys.exit())
        self.assertEqual([one[:2] for one in found], [("dead", 3)] * 3)

    def test_settings_that_a_handler_leaves(self):
        """They are none of the next job's."""
        worker = Worker(queues=[self.name])

        @worker.handler(self.name)
        def handler(job):
            if job.args["n"] > 0:
                return job.args
            job.connection.execute("SET client_encoding = 'LATIN1'")
            job.connection.execute("SET DateStyle = 'German'")

        with psycopg.connect() as connection:
            queue_jobs.enqueue_many(connection, self.name, [{"n": n, "text": "ö 🐘"} for n in range(3)])
        with Lines() as lines:
            self.work(worker, self.finished(3))
        self.assertEqual(lines.events("disconnected"), [])
        self.assertEqual(self.jobs("state::text, last_error, result = args"), [("completed", None, None), ("completed", None, True), ("completed", None, True)])

    def test_after_commit(self):
        """What a function raises that is called then is logged, and the thread goes on."""
        with Lines() as lines:
            found = self.outcomes(Worker(queues=[self.name]), lambda job: job.after_commit(sys.exit), lambda job: job.after_commit(lambda: 1 / 0))
        self.assertEqual(found, [("completed", None, None)] * 2)
        self.assertEqual([line["error"].partition(":")[0] for line in lines.events("after_commit")], ["SystemExit", "ZeroDivisionError"])

    def test_transaction_that_the_server_gives_up(self):
        """A serialization failure: nothing can be written in it any more. The job is charged when it is claimed again."""
        sql("CREATE TABLE skew (a int, b int)")
        sql("INSERT INTO skew VALUES (1, 1)")

        def handler(job):
            job.connection.execute("SELECT sum(a) FROM skew")
            job.connection.execute("INSERT INTO skew VALUES (2, 2)")
            with psycopg.connect(options="-c default_transaction_isolation=serializable") as other:
                other.execute("SELECT sum(b) FROM skew")
                other.execute("INSERT INTO skew VALUES (3, 3)")

        found = self.outcomes(Worker("options='-c default_transaction_isolation=serializable'", queues=[self.name]), handler)
        self.assertEqual(found[0][:2], ("dead", 1))
        self.assertRegex(found[0][2], "could not serialize")
        self.assertEqual(sql("SELECT a FROM skew ORDER BY a"), [(1,), (3,)])

    def test_outcomes_of_the_oddest_kind(self):
        class Odd(Exception):
            def __init__(self):
                super().__init__()
                self.__notes__ = 5

            def __str__(self):
                raise SystemExit(self)

        class Meta(type):
            @property
            def __name__(cls):
                raise KeyboardInterrupt

        class NoName(Exception, metaclass=Meta):
            pass

        class Text(str):
            def __getitem__(self, _):
                raise MemoryError

        class Chatty(Exception):
            def __str__(self):
                return Text("x")

        class Nap(queue_jobs.Snooze):
            def __init__(self):
                pass

        def fail(error):
            def call(job):
                raise error

            return call

        def deep(job):
            value = []
            for _ in range(100_000):
                value = [value]
            return value

        calls = [fail(Nap()), fail(Odd()), fail(NoName()), fail(Chatty()), fail(KeyboardInterrupt()), fail(GeneratorExit()), deep, lambda job: "9" * (LONGEST_JSON + 1),
                 lambda job: job.discard(Odd()), lambda job: job.discard(None), lambda job: job.wait_for_signal(object()), lambda job: job.wait_for_signal("a\ud800"),
                 lambda job: job.wait_for_signal("a\0"), lambda job: job.snooze("\0"), lambda job: job.snooze("\ud800"), lambda job: job.continue_at(1, progress="x"),
                 lambda job: job.continue_at(1, progress=object()), lambda job: job.retry_in(10**400), lambda job: job.continue_at(1, delay={}),
                 lambda job: job.step("\0", lambda: 1), lambda job: job.step("a", lambda: {1}), lambda job: job.enqueue(self.name, {"n": "\0"})]
        for mode in ("transaction", "lease"):
            found = self.outcomes(Worker(mode=mode, queues=[self.name], concurrency=2, batch=4), *calls)
            self.assertEqual([(n, state, errors, bool(error)) for n, (state, errors, error) in enumerate(found)], [(n, "dead", 1, True) for n in range(len(calls))])
            sql("SELECT queue_jobs.forget_jobs(worker => %s)", self.name)
            self.setUp()

    def test_fail_itself_is_refused(self):
        """Then the job is put back for a while, and the next is done."""
        for mode in ("transaction", "lease"):
            sql("ALTER FUNCTION queue_jobs.fail RENAME TO fail_elsewhere")
            try:
                with Lines() as lines:
                    worker = Worker(mode=mode, queues=[mode])
                    worker.handler(self.name)(lambda job: 1 // job.args["n"])
                    with psycopg.connect() as connection:
                        ids = [queue_jobs.enqueue(connection, self.name, {"n": n}, queue=mode) for n in (0, 1, 0, 1)]
                    find = "SELECT state::text, errors IS NULL, run_at > created_at + '50 s' FROM queue_jobs.job WHERE id = ANY (%s) ORDER BY id"
                    self.work(worker, lambda: [row[0] for row in sql(find, ids)] == ["scheduled", "completed"] * 2)
            finally:
                sql("ALTER FUNCTION queue_jobs.fail_elsewhere RENAME TO fail")
            self.assertEqual([row[1:] for row in sql(find, ids)], [(True, True), (True, False)] * 2)
            self.assertIn("ZeroDivisionError", lines.events("snoozed")[0]["error"])


class Reading(unittest.TestCase):
    def test_values(self):
        for value in (float("nan"), float("inf"), 1e300, 10**400, object(), []):
            with self.assertRaisesRegex(ValueError, "no interval: "):
                interval(value)
        self.assertRaises(ValueError, to_json, "\ud800")

    def test_guard(self):
        ends = ["COMMIT", "commit;", "/* x */ commit", "-- x\nROLLBACK", "BEGIN", ";COMMIT", "SELECT 1; COMMIT", "SELECT ';' AS \"a;\", $x$;$x$; /* /* */ ; */ End", "ABORT AND CHAIN",
                "Start\n\tTransaction", "PREPARE TRANSACTION 'x'", "SELECT 'it''s', E'\\''; ROLLBACK WORK", "rollback and chain", "select $1$; commit", "commit prepared 'x'",
                "select 'a\\'; commit", "select a$x$; commit; select $x$"]
        ends_not = ["", ";", "SELECT '; COMMIT'", "SELECT $x$; COMMIT$x$ -- ; COMMIT", "ROLLBACK WORK TO SAVEPOINT a", "rollback to a", "ROLLBACK TRANSACTION TO a", "PREPARE x AS SELECT 1",
                    "SELECT 1 AS commit, 'a\\' -- ; COMMIT", "create function f() returns int begin atomic select 1; end", "select e'\\'; commit'", "select '; commit", "/* ; commit", "commit_all",
                    "select case when true then 1 end"]
        self.assertEqual([text for text in ends if not ends_transaction(text)], [])
        self.assertEqual([text for text in ends_not if ends_transaction(text)], [])
        self.assertFalse(ends_transaction("select 'a\\'; commit'", "off"))

    def test_guard_of_long_texts(self):
        """A text of some megabytes is looked at once, whatever it is made of."""
        signal.alarm(LIMIT)
        for piece in ("'", "\\'", "/*", "*/", "$a$", "$", "-- commit\n", "e'\\", '"', "commit_ ", " - / "):
            for setting in ("on", "off"):
                ends_transaction("select 1 commit" + piece * 200_000, setting)
        signal.alarm(0)


class Silence(Case):
    def setUp(self):
        super().setUp()
        self.proxy = Proxy()

    def worker(self, **options):
        worker = Worker(self.proxy.conninfo, queues=[self.name], silence=2, **options)
        worker.handler(self.name)(lambda job: self.proxy.silent() if job.args.get("silent") and len(self.proxy.silenced) == 0 else None)
        return worker

    def enqueue(self, **args):
        with psycopg.connect() as connection:
            return queue_jobs.enqueue(connection, self.name, args, queue=self.name)

    def test_with_a_job_in_hand(self):
        """What the handler's end is told by is not answered; the job is completed all the same."""
        for options in ({"mode": "lease"}, {"mode": "lease", "concurrency": 2, "batch": 4}, {"mode": "transaction"}):
            self.proxy = Proxy()
            id = self.enqueue(silent=True)
            with Lines() as lines:
                self.work(self.worker(**options), lambda: sql("SELECT state::text FROM queue_jobs.job WHERE id = %s", id) == [("completed",)])
            self.assertIn("no answer for 2 s", [line["error"] for line in lines.events("disconnected")])

    def test_heartbeats(self):
        """Those that are not answered leave their thread alive: the lease is kept by others."""
        worker, go, seen = Worker(self.proxy.conninfo, mode="lease", lease=6, queues=[self.name], silence=1), threading.Event(), []

        @worker.handler(self.name)
        def handler(job):
            seen.append(job.attempt)
            go.wait(LIMIT)

        id = self.enqueue()
        pair = "SELECT lease_until > started_at + '20 s' FROM queue_jobs.job WHERE id = %s"

        def done():
            if seen and not self.proxy.silenced:
                self.proxy.silent()
            if sql(pair, id) == [(True,)]:
                go.set()
            return sql("SELECT state::text FROM queue_jobs.job WHERE id = %s", id) == [("completed",)]

        self.work(worker, done)
        self.assertEqual(seen, [1])

    def test_the_end_of_a_worker(self):
        """A request to cancel is not answered, either; run() returns."""
        for mode in ("transaction", "lease"):
            self.proxy = Proxy()
            worker = self.worker(mode=mode, grace=1)
            with Lines() as lines, unittest.mock.patch.object(session, "CANCEL_WITHIN", 0.1):
                self.work(worker, lambda: sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.wait%%' AND state = 'active' AND datname = current_database()") == [(1,)]
                          and self.proxy.silent(more=True) is None)
            self.assertEqual(len(lines.events("stopped")), 1)

    def test_no_answer_to_the_first_message(self):
        self.proxy.silent(more=True)
        with unittest.mock.patch.object(session, "CONNECT_WITHIN", 1), self.assertRaises(psycopg.OperationalError):
            session.connect(self.proxy.conninfo)

    def test_keepalive(self):
        def options(conninfo):
            with session.connect(conninfo) as connection:
                session.prepare(connection)
                with session._socket_of(connection) as own:
                    return [own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *(own.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) for _, option, _ in session._KEEPALIVE)]

        self.assertEqual(options(self.proxy.conninfo), [1, 30, 10, 3, 60_000])
        self.assertEqual(options(f"{self.proxy.conninfo} keepalives_idle=7 tcp_user_timeout=9000"), [1, 7, 10, 3, 9000])
        self.assertEqual(options(f"{self.proxy.conninfo} keepalives=0")[0], 0)


class Beginning(Case):
    def test_refused(self):
        for mode in ("transaction", "lease"):
            for conninfo, queues, error in (("", ["urgencyy=high"], "urgencyy"), ("dbname=none", None, '"none" does not exist'), ("user=none", None, '"none" does not exist'),
                                            ("dbname=template1", None, "queue_jobs"), ("port=x", None, 'integer value "x"|invalid'), ("x", None, '"="')):
                worker = Worker(conninfo, queues=queues or [self.name], mode=mode, concurrency=2, batch=2)
                with self.assertRaisesRegex(queue_jobs.Refused, error):
                    worker.run()

    def test_what_comes_back_is_no_end(self):
        for error in (psycopg.OperationalError("connection refused"), psycopg.errors.CannotConnectNow(), psycopg.errors.TooManyConnections(), psycopg.errors.ReadOnlySqlTransaction(),
                      psycopg.errors.DeadlockDetected(), OSError("no route")):
            self.assertFalse(session.is_hopeless(error))

    def test_notices(self):
        worker = Worker(queues=[self.name])
        worker.handler(self.name)(lambda job: job.connection.execute("DO $$ BEGIN RAISE NOTICE 'ö' USING HINT = 'h'; RAISE WARNING 'w'; END $$") and None)
        with psycopg.connect() as connection:
            queue_jobs.enqueue(connection, self.name)
        with Lines() as lines:
            self.work(worker, self.finished())
        self.assertEqual([(line["level"], line["message"], line.get("hint")) for line in lines.events("notice")], [("info", "ö", "h"), ("warn", "w", None)])

    def test_command(self):
        ended = subprocess.run([sys.executable, "-B", "-m", "queue_jobs", "command:worker", "--queues", "urgencyy=high"], cwd=HERE, capture_output=True, text=True, timeout=LIMIT,
                               env={**os.environ, "PYTHONPATH": os.path.join(HERE, ".."), "WORKER": self.name})
        self.assertEqual(ended.returncode, 1)
        self.assertIn("\npython -m queue_jobs: invalid term", ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
