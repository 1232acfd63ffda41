import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { enqueue, enqueueMany, signal, Worker } from '../lib/index.js';
import { assertEnqueued, assertNotEnqueued, runDue } from '../lib/testing.js';
import { job, newDatabase } from './help.mjs';

const { client } = await newDatabase();
await client.query("SELECT queue_jobs.define_worker(name, max_retries => 1) FROM unnest('{order,mail,slow}'::text[]) AS name");
await client.query('CREATE TABLE sent (to_whom text PRIMARY KEY)');

beforeEach(() => client.query('BEGIN'));
afterEach(() => client.query('ROLLBACK'));

const handlers = {
  order: ({ to }, ctx) => ctx.enqueueMany('mail', to.map((one) => ({ to: one }))),
  mail: async ({ to }, ctx) => {
    await ctx.client.query('INSERT INTO sent VALUES ($1)', [to]);
    return `sent to ${to}`;
  },
};

test('runDue() runs what is due, and what that enqueues', async () => {
  await enqueue(client, 'order', { to: ['a', 'b', 'a'] });
  await enqueue(client, 'mail', { to: 'later' }, { delay: '1 h' });
  await enqueue(client, 'slow');
  const ran = await runDue(client, handlers);
  assert.deepEqual(ran.map(({ worker, outcome, result }) => [worker, outcome, result]), [
    ['order', 'completed', [ran[1].id, ran[2].id, ran[3].id]],
    ['mail', 'completed', 'sent to a'],
    ['mail', 'completed', 'sent to b'],
    ['mail', 'failed', null],
  ]);
  assert.match(ran[3].error, /duplicate key/);
  assert.equal((await job(client, ran[3].id)).state, 'retryable');
  assert.deepEqual((await client.query('SELECT to_whom FROM sent')).rows.map((row) => row.to_whom), ['a', 'b']);
  assert.deepEqual(await runDue(client, handlers), []);
});

test('runDue() takes the role back that a handler has set', async () => {
  for (const role of ['SET LOCAL ROLE pg_monitor', 'SET ROLE pg_monitor', 'SELECT 1']) await enqueue(client, 'slow', { role });
  const work = async ({ role }, ctx) => {
    await ctx.client.query(role);
    return (await ctx.client.query("SELECT current_setting('role') AS role")).rows[0].role;
  };
  assert.deepEqual((await runDue(client, { slow: work })).map(({ outcome, result }) => [outcome, result]), [
    ['completed', 'pg_monitor'],
    ['completed', 'pg_monitor'],
    ['completed', 'none'],
  ]);
});

test('runDue() with a worker and its middleware, a limit, and other outcomes', async () => {
  const worker = new Worker().handle({ mail: (args, ctx) => ctx.snooze('1 h'), slow: (args, ctx) => ctx.discard('no') });
  const seen = [];
  worker.use((ctx, next) => { seen.push(ctx.worker); return next(); });
  await enqueue(client, 'mail');
  await enqueue(client, 'slow');
  assert.deepEqual((await runDue(client, worker, { maxJobs: 1 })).map((ran) => ran.outcome), ['snoozed']);
  assert.deepEqual((await runDue(client, worker)).map((ran) => [ran.outcome, ran.error]), [['failed', 'no']]);
  assert.deepEqual(seen, ['mail', 'slow']);
});

test('runDue() with a job that waits for a signal', async () => {
  const payloads = [];
  const waits = async (args, ctx) => {
    payloads.push([await ctx.signalPayload('go'), await ctx.signals()]);
    if (payloads.at(-1)[0] === null) ctx.waitForSignal('go', { timeout: '1 h' });
  };
  const id = await enqueue(client, 'slow');
  assert.deepEqual((await runDue(client, { slow: waits })).map((ran) => ran.outcome), ['waiting']);
  assert.deepEqual([(await job(client, id)).state, (await job(client, id)).errors], ['waiting', null]);
  assert.deepEqual(await runDue(client, { slow: waits }), []);
  const other = await enqueue(client, 'slow');
  await signal(client, other, 'go', { by: 'ann' });
  assert.deepEqual((await runDue(client, { slow: waits })).map((ran) => [ran.id, ran.outcome]), [[other, 'completed']]);
  assert.deepEqual(payloads, [[null, {}], [{ by: 'ann' }, { go: { by: 'ann' } }]]);
});

test('assertEnqueued() finds jobs by a part of their args', async () => {
  const ids = await enqueueMany(client, 'mail', [{ to: 'a', kind: 1 }, { to: 'b', kind: 1 }]);
  assert.deepEqual(await assertEnqueued(client, 'mail', { kind: 1 }), ids);
  assert.deepEqual(await assertEnqueued(client, 'mail', { to: 'b' }, { count: 1 }), [ids[1]]);
  await assertNotEnqueued(client, 'mail', { to: 'c' });
  await assert.rejects(assertEnqueued(client, 'mail', { to: 'c' }), { name: 'AssertionError', message: /A job of mail .* 0 of 2/, actual: [{ to: 'a', kind: 1 }, { to: 'b', kind: 1 }] });
  await assert.rejects(assertEnqueued(client, 'mail', {}, { count: 3 }), /3 jobs of mail .* 2 of 2/);
  await assert.rejects(assertNotEnqueued(client, 'mail', { to: 'a' }), /0 jobs of mail/);
});
