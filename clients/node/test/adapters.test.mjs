import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '@prisma/client';
import { drizzle } from 'drizzle-orm/node-postgres';
import { sql } from 'drizzle-orm';
import Knex from 'knex';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { enqueue, enqueueMany, fromDrizzle, fromKnex, fromKysely, fromPrisma } from '../lib/index.js';
import { assertEnqueued, runDue } from '../lib/testing.js';
import { job, newDatabase } from './help.mjs';

const { name, client } = await newDatabase();
await client.query("SELECT queue_jobs.define_worker('mail')");

const ROLLBACK = new Error('rolled back');

// What holds for each: begin(run) calls run(adapter) within a transaction.
async function check(begin) {
  const args = { text: 'what? $1 :name', list: [1, null] };
  let ids;
  const enqueueSome = async (db) => {
    ids = [await enqueue(db, 'mail', args, { delay: '0', priority: 1 }), ...(await enqueueMany(db, 'mail', [args, args]))];
    assert.deepEqual(await assertEnqueued(db, 'mail', args, { count: 3 }), ids);
    assert.deepEqual((await runDue(db, { mail: (given) => given })).map((ran) => ran.result), [args, args, args]);
  };
  await assert.rejects(begin(async (db) => {
    await enqueueSome(db);
    throw ROLLBACK;
  }), ROLLBACK);
  assert.equal(await job(client, ids[0]), undefined);
  await begin(enqueueSome);
  for (const id of ids) assert.deepEqual((await job(client, id)).result, args);
}

test('pg', async () => {
  await check(async (run) => {
    await client.query('BEGIN');
    try {
      await run(client);
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    }
  });
});

test('Knex', async (t) => {
  const knex = Knex({ client: 'pg', connection: { database: name, host: process.env.PGHOST, port: process.env.PGPORT, user: process.env.PGUSER } });
  t.after(() => knex.destroy());
  await check((run) => knex.transaction((transaction) => run(fromKnex(transaction))));
});

test('Kysely', async (t) => {
  const kysely = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ database: name }) }) });
  t.after(() => kysely.destroy());
  await check((run) => kysely.transaction().execute((transaction) => run(fromKysely(transaction))));
});

test('Drizzle', async (t) => {
  const pool = new pg.Pool({ database: name });
  t.after(() => pool.end());
  await check((run) => drizzle(pool).transaction((transaction) => run(fromDrizzle(transaction, sql))));
});

test('Prisma', async (t) => {
  const prisma = new PrismaClient({ adapter: new PrismaPg({ database: name, host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER }) });
  t.after(() => prisma.$disconnect());
  await check((run) => prisma.$transaction((transaction) => run(fromPrisma(transaction)), { timeout: 120_000, maxWait: 120_000 }));
});
