import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cancel, discard, enqueue, enqueueMany, retry, tryEnqueue } from '../lib/index.js';
import { running } from '../lib/trace.js';
import { job, newDatabase } from './help.mjs';

const { client } = await newDatabase();
await client.query("SELECT queue_jobs.define_worker('mail', max_retries => 2)");

test('a job belongs to the transaction', async () => {
  await client.query('BEGIN');
  const id = await enqueue(client, 'mail', { to: 'a' });
  assert.match(id, /^\d+$/);
  await client.query('ROLLBACK');
  assert.equal(await job(client, id), undefined);
});

test('each option', async () => {
  const runAt = new Date(Date.now() + 3_600_000);
  const row = await job(client, await enqueue(client, 'mail', { to: 'b' }, { runAt, priority: 3, queue: 'slow', dedupKey: 'key', expiresIn: '2 h', context: { tenant: 'ö' } }));
  assert.deepEqual(row.run_at, runAt);
  assert.equal(row.priority, 3);
  assert.equal(row.queue, 'slow');
  assert.equal(row.dedup_key, 'key');
  assert.deepEqual(row.context, { tenant: 'ö' });
  assert.equal(row.expires_at - row.run_at, 2 * 3_600_000);

  const own = await enqueue(client, 'mail', {}, { maxRetries: 0, timeout: 1000, keepCompleted: '2 days', tags: ['x'] });
  assert.deepEqual([(await job(client, own)).max_attempts, (await job(client, own)).tags], [1, ['x']]);

  for (const delay of [60_000, '1 min']) {
    const delayed = await job(client, await enqueue(client, 'mail', {}, { delay }));
    assert.equal(delayed.state, 'scheduled');
    assert.equal(delayed.run_at - delayed.created_at, 60_000);
  }
  const spread = await job(client, await enqueue(client, 'mail', {}, { jitter: 1000 }));
  assert.ok(spread.run_at - spread.created_at <= 1000);
});

test('the latest call counts', async () => {
  const id = await enqueue(client, 'mail', { n: 1 }, { dedupKey: 'latest', ifWaiting: 'debounce', delay: '2 hours', maxDelay: 3_600_000 });
  assert.equal(await enqueue(client, 'mail', { n: 2 }, { dedupKey: 'latest', ifWaiting: 'replace_args' }), id);
  const row = await job(client, id);
  assert.equal(row.args.n, 2);
  assert.equal(row.run_at - row.created_at, 3_600_000);
});

test('what is wrong is refused', async () => {
  await assert.rejects(enqueue(client, 'mail', {}, { dedupKey: 'a', ifWaiting: 'last' }), { code: '22023', message: /if_waiting must be/ });
  await assert.rejects(enqueue(client, 'mail', {}, { dedupKey: 'a', ifWaiting: 'debounce' }), { code: '22023', message: /needs a delay/ });
  await assert.rejects(enqueue(client, 'mail', {}, { maxDelay: 1 }), { code: '22023', message: /max_delay needs/ });
  await assert.rejects(enqueue(client, 'mail', {}, { delayed: 1 }), /no option delayed: .*delay/);
  await assert.rejects(enqueue(client, 'mail', {}, { delay: NaN }), /no interval/);
  await assert.rejects(enqueue(client, 'mail', {}, { after: [2 ** 53] }), /no id/);
  await assert.rejects(enqueue(client, 'nobody'), { code: '42704' });
});

test('null stands for no job', async () => {
  const options = { dedupKey: 'once' };
  const id = await enqueue(client, 'mail', {}, options);
  assert.equal(await enqueue(client, 'mail', {}, options), id);
  assert.equal(await tryEnqueue(client, 'mail', {}, options), null);
  await client.query('BEGIN');
  await client.query("SELECT queue_jobs.disable_worker('mail')");
  assert.equal(await enqueue(client, 'mail'), null);
  await client.query('ROLLBACK');
});

test('args come as they are', async () => {
  const args = { id: 12345678901234567890n, text: 'quoted "\\" \' ☹ {}', list: [[], [null], {}], 'key "': 1.5 };
  const { rows: [row] } = await client.query('SELECT args::text FROM queue_jobs.job WHERE id = $1', [await enqueue(client, 'mail', args)]);
  assert.match(row.args, /"id": 12345678901234567890\b/);
  assert.deepEqual(JSON.parse(row.args).list, args.list);
  assert.equal(JSON.parse(row.args).text, args.text);
});

test('many jobs, in their order', async () => {
  const list = Array.from({ length: 1000 }, (_, n) => ({ n, text: '"\\{}' }));
  const ids = await enqueueMany(client, 'mail', list, { batchSize: 500, batchInterval: '1 min' });
  assert.equal(ids.length, 1000);
  assert.deepEqual((await job(client, ids[999])).args, list[999]);
  assert.equal((await job(client, ids[999])).state, 'scheduled');
  assert.deepEqual((await job(client, ids[0])).args, list[0]);
  assert.deepEqual(await enqueueMany(client, 'mail', []), []);

  const [own, plain] = await enqueueMany(client, 'mail', [{}, {}], { runAts: [new Date('2099-01-01'), null], priorities: [3, null], dedupKeys: ['one, of "many"', null], tags: ['a', 'b "c"'], maxRetries: 2 });
  const row = await job(client, own);
  assert.deepEqual([row.run_at, row.priority, row.dedup_key, row.tags, row.max_attempts], [new Date('2099-01-01'), 3, 'one, of "many"', ['a', 'b "c"'], 3]);
  assert.deepEqual([(await job(client, plain)).priority, (await job(client, plain)).dedup_key], [0, null]);

  const [first, second] = await enqueueMany(client, 'mail', [{}, {}], { context: { all: 1 }, contexts: [{ own: 1 }, {}] });
  assert.deepEqual((await job(client, first)).context, { all: 1, own: 1 });
  assert.deepEqual((await job(client, second)).context, { all: 1 });
  await assert.rejects(enqueueMany(client, 'mail', [{}, {}], { contexts: [{}] }), /2 jobs, and 1 contexts/);
});

test('a job inherits the context of the session, of the job that enqueues it, and its trace', async (t) => {
  const key = Symbol.for('opentelemetry.js.api.1');
  t.after(() => { delete globalThis[key]; });
  globalThis[key] = {
    context: { active: () => 'active' },
    propagation: { inject: (context, carrier, setter) => setter.set(carrier, 'traceparent', `00-${context}`) },
  };
  await client.query('BEGIN');
  await client.query(`SET LOCAL queue_jobs.context = '{"user": 1}'`);
  const ids = await running.run({ context: { tenant: 2 } }, async () => [
    await enqueue(client, 'mail'),
    ...(await enqueueMany(client, 'mail', [{}])),
    await enqueue(client, 'mail', {}, { context: { own: 3 } }),
  ]);
  const contexts = [];
  for (const id of ids) contexts.push((await job(client, id)).context);
  await client.query('ROLLBACK');
  const inherited = { tenant: 2, traceparent: '00-active' };
  assert.deepEqual(contexts, [{ user: 1, ...inherited }, { user: 1, ...inherited }, { own: 3, ...inherited }]);
});

test('cancel, retry, discard', async () => {
  const id = await enqueue(client, 'mail');
  assert.equal(await cancel(client, id), true);
  assert.equal(await cancel(client, BigInt(id)), false);
  assert.equal(await retry(client, id), true);
  assert.equal(await discard(client, Number(id)), true);
  assert.equal((await job(client, id)).state, 'dead');
});
