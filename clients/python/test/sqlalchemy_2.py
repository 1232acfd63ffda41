"""SQLAlchemy 2 over psycopg 3: its connections and sessions, synchronous and asynchronous ones. Run by sqlalchemy.pl."""

import asyncio
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import psycopg
import sqlalchemy
import sqlalchemy.orm
from queue_jobs import Worker, aenqueue, aenqueue_many, enqueue, enqueue_many, enqueue_workflow
from queue_jobs.testing import assert_enqueued, run_due
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

URL = "postgresql+psycopg://"
ARGS = {"text": "ö %s :name"}


class Enqueue(unittest.TestCase):
    def setUp(self):
        self.assertEqual(sqlalchemy.__version__.partition(".")[0], "2")
        self.name = self.id().rpartition(".")[2]
        with psycopg.connect() as connection:
            connection.execute("SELECT queue_jobs.define_worker(%s)", [self.name])

    def jobs(self):
        with psycopg.connect() as connection:
            return connection.execute("SELECT id, args FROM queue_jobs.job WHERE worker = %s ORDER BY id", [self.name]).fetchall()

    def check(self, connection):
        enqueue(connection, self.name, {"n": 0})
        connection.rollback()
        ids = [enqueue(connection, self.name, ARGS, priority=1), *enqueue_many(connection, self.name, [ARGS])]
        step, after = enqueue_workflow(connection, "w", [{"step": "a", "worker": self.name}, {"step": "b", "worker": self.name, "after": ["a"]}], context={"n": 1})
        assert_enqueued(connection, self.name, ARGS, count=2)
        worker = Worker()
        worker.handler(self.name)(lambda job: enqueue(job.connection, self.name, {"of": job.id}, after=[job.id]) if job.args == ARGS else None)
        self.assertEqual([ran.event for ran in run_due(connection, worker)], ["completed"] * 3)
        connection.commit()
        self.assertEqual([id for id, _ in self.jobs()][:4], [*ids, step.job, after.job])

    def test_connection(self):
        with sqlalchemy.create_engine(URL).connect() as connection:
            self.check(connection)

    def test_session(self):
        with sqlalchemy.orm.Session(sqlalchemy.create_engine(URL)) as session:
            self.check(session)

    async def asynchronous(self, connection):
        await aenqueue(connection, self.name, {"n": 0})
        await connection.rollback()
        ids = [await aenqueue(connection, self.name, ARGS, delay="1 hour"), *await aenqueue_many(connection, self.name, [ARGS, ARGS])]
        ids.append(await aenqueue(connection, self.name, ARGS, after=ids))
        await connection.commit()
        self.assertEqual(self.jobs(), [(id, ARGS) for id in ids])

    def test_asynchronous_connection(self):
        async def main():
            async with create_async_engine(URL).connect() as connection:
                await self.asynchronous(connection)

        asyncio.run(main())

    def test_asynchronous_session(self):
        async def main():
            async with AsyncSession(create_async_engine(URL)) as session:
                await self.asynchronous(session)

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main(verbosity=2)
