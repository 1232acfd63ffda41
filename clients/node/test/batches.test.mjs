import assert from 'node:assert/strict';
import { test } from 'node:test';
import { batchResults, cancelBatch, closeBatch, enqueue, enqueueMany, enqueueWorkflow, newBatch, retryBatch, signal, Worker } from '../lib/index.js';
import { running } from '../lib/trace.js';
import { job, newDatabase, recordedLog, until, untilJob } from './help.mjs';

const { name, client } = await newDatabase();
await client.query("SELECT queue_jobs.define_worker(name, max_retries => 0) FROM unnest('{part,sum,tell,load,merge}'::text[]) AS name");

for (const mode of ['lease', 'transaction']) {
  test(`${mode}: a batch, its callback and its results`, async (t) => {
    const sums = [];
    const worker = new Worker({ connection: { database: name }, mode, log: recordedLog().log }).handle({
      part: ({ n }) => n,
      sum: async (args, ctx) => {
        const results = await ctx.batchResults();
        sums.push({ ...args, sum: results.reduce((sum, one) => sum + one.result, 0) });
        return null;
      },
    });
    t.after(() => worker.stop());
    await client.query('BEGIN');
    const batch = await newBatch(client, 'parts', { onSuccess: 'sum', args: { of: mode }, keep: '1 h', open: true });
    const [id] = await enqueueMany(client, 'part', [{ n: 1 }, { n: 2 }], { batch });
    await enqueue(client, 'part', { n: 3 }, { batch });
    assert.equal(await closeBatch(client, batch), true);
    assert.equal(await closeBatch(client, batch), false);
    await client.query('COMMIT');
    assert.equal((await job(client, id)).batch, batch);
    worker.start();
    const callback = await until(async () => (await client.query("SELECT id FROM queue_jobs.job WHERE worker = 'sum' AND args ->> 'batch' = $1", [batch])).rows[0]);
    await untilJob(client, callback.id, 'completed');
    assert.deepEqual(sums, [{ of: mode, batch: Number(batch), sum: 6 }]);
    assert.deepEqual((await batchResults(client, batch)).map((one) => [one.job === id, one.worker, one.args, one.state, one.result]),
      [[true, 'part', { n: 1 }, 'completed', 1], [false, 'part', { n: 2 }, 'completed', 2], [false, 'part', { n: 3 }, 'completed', 3]]);
  });

  test(`${mode}: a workflow, in order, with the results of the steps before`, async (t) => {
    const merged = [];
    const worker = new Worker({ connection: { database: name }, mode, log: recordedLog().log }).handle({
      load: ({ file }) => ({ file, lines: file.length }),
      merge: async (args, ctx) => { merged.push([await ctx.results(), ctx.context]); },
    });
    t.after(() => worker.stop());
    const jobs = await running.run({ context: { traceparent: '00-trace' } }, () => enqueueWorkflow(client, 'nightly', [
      { step: 'a', worker: 'load', args: { file: 'a' } },
      { step: 'bb', worker: 'load', args: { file: 'bb' }, delay: 1 },
      { step: 'merge', worker: 'merge', after: ['a', 'bb'], ifDead: 'run' },
    ]));
    assert.equal((await job(client, jobs.merge)).state, 'waiting');
    worker.start();
    await untilJob(client, jobs.merge, 'completed');
    assert.deepEqual(merged, [[{ a: { file: 'a', lines: 1 }, bb: { file: 'bb', lines: 2 } }, { traceparent: '00-trace' }]]);
  });
}

for (const mode of ['lease', 'transaction']) {
  test(`${mode}: a handler sends a signal`, async (t) => {
    await client.query("SELECT queue_jobs.define_worker('sends')");
    const worker = new Worker({ connection: { database: name }, mode, log: recordedLog().log }).handle({
      sends: async ({ to }, ctx) => [await ctx.sendSignal(to, 'go', { by: ctx.id }), await ctx.sendSignal(to, 'go')],
    });
    t.after(() => worker.stop());
    worker.start();
    const to = await enqueue(client, 'tell', {}, { delay: '1 h' });
    const row = await untilJob(client, await enqueue(client, 'sends', { to }), 'completed');
    assert.deepEqual(row.result, [true, false]);
    const { rows } = await client.query('SELECT payload FROM queue_jobs.job_signal WHERE job = $1', [to]);
    assert.deepEqual(rows, [{ payload: { by: row.id } }]);
  });
}

test('the setting of the session stays what it was, and its keys are inherited', async () => {
  await client.query('BEGIN');
  await client.query(`SET LOCAL queue_jobs.context = '{"user": 1}'`);
  const jobs = await running.run({ context: { tenant: 2 } }, () => enqueueWorkflow(client, 'w', [{ step: 'one', worker: 'load' }]));
  assert.deepEqual((await job(client, jobs.one)).context, { user: 1, tenant: 2 });
  const { rows: [{ setting }] } = await client.query("SELECT current_setting('queue_jobs.context') AS setting");
  await client.query('ROLLBACK');
  assert.equal(setting, '{"user": 1}');
});

test('after, cancel and retry of a batch, signals', async () => {
  await client.query('BEGIN');
  const batch = await newBatch(client);
  const first = await enqueue(client, 'tell', {}, { batch });
  const second = await enqueue(client, 'tell', {}, { after: [first], ifDead: 'hold' });
  assert.equal((await job(client, second)).state, 'waiting');
  assert.equal(await signal(client, second, 'go', { by: 'me' }), true);
  assert.equal(await signal(client, second, 'go'), false);
  await client.query('COMMIT');
  assert.equal(await cancelBatch(client, batch), 1);
  assert.equal(await retryBatch(client, batch), 1);
  await assert.rejects(enqueueWorkflow(client, 'w', [{ step: 'a', worker: 'tell', needs: [] }]), /no needs: step, worker/);
  await assert.rejects(newBatch(client, 'b', { onFailure: 'x' }), /no option onFailure/);
});
