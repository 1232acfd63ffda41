import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { enqueue, enqueueMany, Worker } from '../lib/index.js';
import { connect, gate, job, newDatabase, recordedLog, until, untilJob } from './help.mjs';

const { name, client } = await newDatabase();
await client.query('CREATE TABLE done (key text NOT NULL)');
await client.query('CREATE TABLE parent (id int PRIMARY KEY)');
await client.query('CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)');

const define = (worker, options = 'max_retries => 1') => client.query(`SELECT queue_jobs.define_worker('${worker}', ${options})`);

// Handlers of a test are called mode.name, so that no test sees another's jobs.
function start(t, mode, handlers, options = {}) {
  const { log, lines, events } = recordedLog();
  const worker = new Worker({ connection: { database: name }, mode, log, stopWithin: 60_000, ...options }).handle(handlers);
  t.after(() => worker.stop());
  worker.start();
  return { worker, lines, events };
}

const aborted = (signal) => new Promise((resolve) => { signal.addEventListener('abort', () => resolve(signal.reason)); });

// Sessions of a worker that wait, or work.
const terminate = (worker) => client.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = left($1, 63)', [worker.name]);

for (const mode of ['lease', 'transaction']) {
  test(`${mode}: what becomes of a job`, async (t) => {
    const names = ['returns', 'throws', 'retries', 'snoozes', 'discards', 'throwsText'].map((one) => `${mode}.${one}`);
    for (const one of names) await define(one);
    const [returns, throws, retries, snoozes, discards, throwsText] = names;
    const { lines } = start(t, mode, {
      [returns]: (args) => args,
      [throws]: () => { throw new TypeError('no \u0000 thing', { cause: new Error('the reason') }); },
      [retries]: (args, ctx) => {
        ctx.retryIn('1 h');
        throw new Error('later');
      },
      [snoozes]: (args, ctx) => ctx.snooze('1 h'),
      [discards]: (args, ctx) => ctx.discard('never'),
      [throwsText]: () => { throw 'text'; }, // eslint-disable-line no-throw-literal
    });
    const ids = {};
    for (const one of names) ids[one] = await enqueue(client, one, { id: 12345678901234567890n });

    await untilJob(client, ids[returns], 'completed');
    const { rows: [{ result }] } = await client.query('SELECT result::text FROM queue_jobs.job WHERE id = $1', [ids[returns]]);
    assert.equal(result, '{"id": 12345678901234567890}');

    const failure = await untilJob(client, ids[throws], 'retryable');
    assert.equal(failure.last_error, 'TypeError: no \uFFFD thing');
    assert.match(failure.errors[0].detail, /^TypeError: no .*\n +at .*worker\.test\.mjs[^]*Caused by: Error: the reason\n +at/);

    const later = await untilJob(client, ids[retries], 'retryable');
    assert.ok(later.run_at - Date.now() > 3_000_000);

    const snoozed = await untilJob(client, ids[snoozes], 'scheduled');
    assert.equal(snoozed.errors, null);

    const discarded = await untilJob(client, ids[discards], 'dead');
    assert.equal(discarded.last_error, 'never');

    assert.equal((await untilJob(client, ids[throwsText], 'retryable')).last_error, 'text');
    await until(() => lines.some((line) => line.event === 'failed' && line.job === ids[throws] && line.attempt === 1)); // it is logged once it is written
  });

  test(`${mode}: steps run once, and a long job goes on from its cursor`, async (t) => {
    const steps = `${mode}.steps`;
    const slices = `${mode}.slices`;
    await define(steps);
    await define(slices);
    const seen = [];
    start(t, mode, {
      [steps]: async (args, ctx) => {
        // In transaction mode a step of an attempt that fails is rolled back with it, so this one is put
        // back.
        const first = await ctx.step('first', () => { seen.push('first'); return { n: 1 }; });
        assert.deepEqual(await ctx.step('first', () => { seen.push('again'); }), first);
        if (ctx.attempt === 1) return ctx.snooze(0);
        await ctx.step('nothing', () => {});
        return [first, await ctx.step('nothing', () => 'again')];
      },
      [slices]: (args, ctx) => {
        const n = (ctx.cursor?.n ?? 0) + 1;
        if (n < 3) ctx.continueAt({ n }, { progress: n / 3, delay: 1 });
        return { n, progress: ctx.progress, attempt: ctx.attempt };
      },
    });
    const ids = [await enqueue(client, steps), await enqueue(client, slices)];
    assert.deepEqual((await untilJob(client, ids[0], 'completed')).result, [{ n: 1 }, null]);
    assert.deepEqual(seen, ['first']);
    const { result } = await untilJob(client, ids[1], 'completed');
    assert.equal(result.n, 3);
    assert.equal(result.progress, 2 / 3);
  });

  test(`${mode}: middleware is around the handler, the first one outermost`, async (t) => {
    const around = `${mode}.around`;
    await define(around);
    const order = [];
    const worker = new Worker({ connection: { database: name }, mode, log: recordedLog().log })
      .use(async (ctx, next) => {
        order.push(`before ${ctx.worker}`);
        const result = await next();
        order.push('after');
        return { ...result, seen: true };
      })
      .use((ctx, next) => { order.push('inner'); return next(); })
      .handle(around, () => { order.push('handler'); return { own: 1 }; });
    t.after(() => worker.stop());
    worker.start();
    const row = await untilJob(client, await enqueue(client, around), 'completed');
    assert.deepEqual(row.result, { own: 1, seen: true });
    assert.deepEqual(order, [`before ${around}`, 'inner', 'handler', 'after']);
  });

  test(`${mode}: at most so many at once, and all at last`, async (t) => {
    const many = `${mode}.many`;
    await define(many);
    await enqueueMany(client, many, Array.from({ length: 100 }, () => ({})));
    let now = 0;
    let most = 0;
    const four = gate();
    start(t, mode, {
      [many]: async () => {
        now++;
        most = Math.max(most, now);
        if (now === 4) four.open();
        await four.opened;
        await new Promise((resolve) => { setImmediate(resolve); });
        now--;
      },
    }, { concurrency: 4, prefetch: mode === 'lease' ? 10 : 0 });
    await until(async () => (await client.query("SELECT count(*) = 100 AS all FROM queue_jobs.job WHERE worker = $1 AND state = 'completed'", [many])).rows[0].all);
    assert.equal(most, 4);
  });

  test(`${mode}: a result that jsonb cannot hold is a failure, of that job alone`, async (t) => {
    const half = `${mode}.half`;
    await define(half);
    const ids = await enqueueMany(client, half, [{ text: 'a' }, { text: 'half' }, { text: 'b' }]);
    start(t, mode, { [half]: ({ text }) => (text === 'half' ? '\ud800' : text) });
    assert.match((await untilJob(client, ids[1], 'retryable')).last_error, /invalid input syntax for type json/);
    for (const id of [ids[0], ids[2]]) await untilJob(client, id, 'completed');
  });

  test(`${mode}: a job without a handler is put back`, async (t) => {
    const known = `${mode}.known`;
    const unknown = `${mode}.unknown`;
    await define(known);
    await define(unknown);
    const id = await enqueue(client, unknown);
    const { events } = start(t, mode, { [known]: () => {} }, { queues: [known, unknown] });
    const row = await untilJob(client, id, 'scheduled');
    assert.equal(row.errors, null);
    assert.equal(events('no_handler')[0].worker, unknown);
  });

  test(`${mode}: sessions that were terminated are made again`, async (t) => {
    const after = `${mode}.after`;
    await define(after);
    const { worker, events } = start(t, mode, { [after]: () => 'done' });
    await untilJob(client, await enqueue(client, after), 'completed');
    for (let n = 1; n <= 3; n++) {
      await terminate(worker);
      await until(() => events('disconnected').length >= n);
      await untilJob(client, await enqueue(client, after), 'completed');
    }
  });

  test(`${mode}: what runs at stop() may finish`, async (t) => {
    const finishes = `${mode}.finishes`;
    await define(finishes);
    const begun = gate();
    const end = gate();
    const { worker } = start(t, mode, {
      [finishes]: async (args, ctx) => {
        begun.open();
        await end.opened;
        return { stopping: ctx.stopping, aborted: ctx.signal.aborted };
      },
    });
    const id = await enqueue(client, finishes);
    await begun.opened;
    const stopped = worker.stop();
    const next = await enqueue(client, finishes);
    end.open();
    await stopped;
    assert.deepEqual((await job(client, id)).result, { stopping: true, aborted: false });
    assert.equal((await job(client, next)).state, 'available');
  });

  test(`${mode}: what does not finish in time is told, and given back`, async (t) => {
    const hears = `${mode}.hears`;
    const deaf = `${mode}.deaf`;
    await define(hears);
    await define(deaf);
    const begun = [gate(), gate()];
    const { worker, events } = start(t, mode, {
      [hears]: async (args, ctx) => {
        begun[0].open();
        throw await aborted(ctx.signal);
      },
      [deaf]: () => {
        begun[1].open();
        return new Promise(() => {});
      },
    }, { concurrency: 2, stopWithin: 3000 });
    const ids = [await enqueue(client, hears), await enqueue(client, deaf)];
    await Promise.all(begun.map((one) => one.opened));
    await worker.stop();
    for (const id of ids) {
      const row = await job(client, id);
      assert.equal(row.state, 'available');
      assert.equal(row.errors, null);
    }
    assert.ok(events('given_back').some((line) => line.job === ids[1]));
  });

  test(`${mode}: what can never succeed ends it`, async () => {
    const worker = new Worker({ connection: { database: name }, mode, queues: ['nothing=1'], log: recordedLog().log }).handle('any', () => {});
    await assert.rejects(worker.run(), { code: '22023' });
  });

  test(`${mode}: stop() without a server does not take long`, async () => {
    const { log, events } = recordedLog();
    const worker = new Worker({ connection: { host: '/nowhere' }, mode, stopWithin: 120_000, log }).handle('any', () => {});
    worker.start();
    await until(() => events('disconnected').length > 0);
    const begin = Date.now();
    await worker.stop();
    assert.ok(Date.now() - begin < 60_000);
  });
}

test('transaction: the handler has the connection; a failure undoes what it wrote', async (t) => {
  await define('writes');
  start(t, 'transaction', {
    writes: async ({ key, fail }, ctx) => {
      await ctx.client.query('INSERT INTO done VALUES ($1)', [key]);
      await ctx.enqueue('writes.next', { key });
      if (fail) throw new Error('after the write');
    },
  });
  await define('writes.next');
  const ids = await enqueueMany(client, 'writes', [{ key: 'kept' }, { key: 'undone', fail: true }]);
  await untilJob(client, ids[0], 'completed');
  await untilJob(client, ids[1], 'retryable');
  assert.deepEqual((await client.query('SELECT key FROM done')).rows, [{ key: 'kept' }]);
  assert.deepEqual((await client.query("SELECT args FROM queue_jobs.job WHERE worker = 'writes.next'")).rows, [{ args: { key: 'kept' } }]);
});

test('transaction: an error that COMMIT would raise is a failure', async (t) => {
  await define('defers');
  start(t, 'transaction', { defers: (args, ctx) => ctx.client.query('INSERT INTO child VALUES (1)') });
  const row = await untilJob(client, await enqueue(client, 'defers'), 'retryable');
  assert.match(row.last_error, /violates foreign key constraint/);
});

test('transaction: a handler cannot end the transaction, nor use it afterwards', async (t) => {
  await define('commits');
  await define('lingers');
  let lingering;
  start(t, 'transaction', {
    commits: (args, ctx) => ctx.client.query(args.statement),
    lingers: (args, ctx) => { lingering = ctx.client; },
  });
  for (const statement of ['COMMIT', ' begin', 'ROLLBACK', 'START TRANSACTION', 'rollback work']) {
    const row = await untilJob(client, await enqueue(client, 'commits', { statement }), 'retryable');
    assert.match(row.last_error, /does not begin or end the transaction/, statement);
  }
  await untilJob(client, await enqueue(client, 'lingers'), 'completed');
  await assert.rejects(lingering.query('SELECT 1'), /The job has ended/);
});

test('transaction: a statement under way is cancelled when the time to stop is over, and the job is not charged', async (t) => {
  await define('locked');
  await client.query('BEGIN');
  await client.query('LOCK TABLE done');
  const { worker } = start(t, 'transaction', { locked: (args, ctx) => ctx.client.query("INSERT INTO done VALUES ('locked')") }, { stopWithin: 100 });
  const other = await connect(name);
  const id = await enqueue(other, 'locked');
  await until(async () => (await other.query("SELECT count(*) = 1 AS is FROM pg_stat_activity WHERE application_name = left($1, 63) AND wait_event_type = 'Lock'", [worker.name])).rows[0].is);
  await worker.stop();
  const row = await job(other, id);
  await other.end();
  await client.query('ROLLBACK');
  assert.equal(row.state, 'available');
  assert.equal(row.errors, null);
});

test('transaction: a request to cancel that hits the ROLLBACK does not charge the job', async (t) => {
  await define('cancels');
  const begun = gate();
  const { worker } = start(t, 'transaction', {
    cancels: () => {
      // In the place of the ROLLBACK is a statement that ends only if it is cancelled.
      const { query } = pg.Client.prototype;
      const mocked = t.mock.method(pg.Client.prototype, 'query', function late(text, ...rest) {
        if (text !== 'ROLLBACK') return query.call(this, text, ...rest);
        mocked.mock.restore();
        return query.call(this, 'SELECT pg_sleep(600)');
      });
      begun.open();
      return new Promise(() => {});
    },
  }, { concurrency: 1, stopWithin: 100 });
  const id = await enqueue(client, 'cancels');
  await begun.opened;
  await worker.stop();
  const row = await job(client, id);
  assert.equal(row.state, 'available');
  assert.equal(row.errors, null);
});

test('transaction: what is being rolled back is not completed after the ROLLBACK', async (t) => {
  await define('abandoned');
  const checked = gate();
  const rolledBack = gate();
  const after = [];
  const { worker } = start(t, 'transaction', { abandoned: () => 'done' }, { concurrency: 1, stopWithin: 100 });
  // The answer to what comes before complete() is there when the ROLLBACK has been sent.
  const { query } = pg.Client.prototype;
  let task = null;
  t.mock.method(pg.Client.prototype, 'query', function late(text, ...rest) {
    if (String(text).startsWith('SET CONSTRAINTS ALL IMMEDIATE')) {
      task = this;
      checked.open();
      return rolledBack.opened;
    }
    if (this === task && text === 'ROLLBACK') rolledBack.open();
    else if (this === task) after.push(text);
    return query.call(this, text, ...rest);
  });
  const id = await enqueue(client, 'abandoned');
  await checked.opened;
  await worker.stop();
  assert.deepEqual(after, []);
  const row = await job(client, id);
  assert.equal(row.state, 'available');
  assert.equal(row.errors, null);
});

test('transaction: a handler whose session is terminated is told, and its job runs again', async (t) => {
  await define('loses');
  const reasons = [];
  const begun = gate();
  const { worker } = start(t, 'transaction', {
    loses: async (args, ctx) => {
      if (reasons.length > 0) return 'again';
      begun.open();
      reasons.push(await aborted(ctx.signal));
    },
  }, { concurrency: 1 });
  const id = await enqueue(client, 'loses');
  await begun.opened;
  await terminate(worker);
  assert.equal((await untilJob(client, id, 'completed')).result, 'again');
  assert.match(reasons[0].message, /connection was lost/);
});

test('lease: a cancelled job is noticed by the heartbeat, and its result dropped', async (t) => {
  await define('cancelled');
  const begun = gate();
  const reasons = [];
  const { events } = start(t, 'lease', {
    cancelled: async (args, ctx) => {
      begun.open();
      reasons.push(await aborted(ctx.signal));
      return 'too late';
    },
  }, { lease: '3 s' });
  const id = await enqueue(client, 'cancelled');
  await begun.opened;
  await client.query('SELECT queue_jobs.cancel($1)', [id]);
  await until(() => events('stale').length > 0);
  assert.equal(events('stale')[0].job, id);
  assert.match(reasons[0].message, /cancelled/);
  assert.equal((await job(client, id)).state, 'cancelled');
});

test('lease: stop() ends when the last job, of a deaf handler, is found cancelled meanwhile', async (t) => {
  await define('deaf');
  const begun = gate();
  const { worker } = start(t, 'lease', {
    deaf: () => {
      begun.open();
      return new Promise(() => {});
    },
  }, { concurrency: 1, lease: '3 s', stopWithin: 5000 });
  const id = await enqueue(client, 'deaf');
  await begun.opened;
  let stopped = false;
  worker.stop().then(() => { stopped = true; });
  await client.query('SELECT queue_jobs.cancel($1)', [id]);
  await until(() => stopped, 'stop() has ended');
  assert.equal((await job(client, id)).state, 'cancelled');
});

test('lease: one that finishes before it knows is refused, and others of its batch are completed', async (t) => {
  await define('late');
  const begun = [];
  const end = gate();
  const { events } = start(t, 'lease', {
    late: async ({ n }) => {
      begun.push(n);
      await end.opened;
      return n;
    },
  });
  const ids = await enqueueMany(client, 'late', [{ n: 0 }, { n: 1 }, { n: 2 }]);
  await until(() => begun.length === 3);
  await client.query('SELECT queue_jobs.cancel($1)', [ids[1]]);
  end.open();
  await untilJob(client, ids[0], 'completed');
  await untilJob(client, ids[2], 'completed');
  await until(() => events('stale').length === 1);
  assert.equal(events('stale')[0].job, ids[1]);
});

test('lease: what was claimed and not begun is given back at once', async (t) => {
  await define('waits');
  const begun = gate();
  const end = gate();
  const { worker } = start(t, 'lease', {
    waits: async () => {
      begun.open();
      await end.opened;
    },
  }, { concurrency: 1, prefetch: 2 });
  const ids = await enqueueMany(client, 'waits', [{}, {}, {}]);
  await begun.opened;
  await until(async () => (await client.query("SELECT count(*) = 3 AS all FROM queue_jobs.job WHERE worker = 'waits' AND state = 'executing'")).rows[0].all);
  const stopped = worker.stop();
  for (const id of ids.slice(1)) await untilJob(client, id, 'available');
  end.open();
  await stopped;
  assert.equal((await job(client, ids[0])).state, 'completed');
});

test('lease: a claim whose answer was lost is found by the heartbeat', async (t) => {
  await define('found');
  const ids = await enqueueMany(client, 'found', [{}, {}]);
  const { worker, events } = start(t, 'lease', { found: () => 'run' }, { queues: ['nowhere.yet', 'name=found.not'], lease: '3 s' });
  // As a claim that this process has sent and not heard of.
  await client.query("SELECT * FROM queue_jobs.claim($1, '{found}', 2, '1 min')", [worker.name]);
  for (const id of ids) assert.equal((await untilJob(client, id, 'completed')).result, 'run');
  assert.equal(events('recovered')[0].jobs, 2);
});

test('options and handlers are checked', () => {
  assert.throws(() => new Worker({ queue: 'a' }), /no option queue: connection, queues/);
  assert.throws(() => new Worker({ mode: 'once' }), /lease/);
  assert.throws(() => new Worker({ concurrency: 0 }), /concurrency/);
  assert.throws(() => new Worker({ concurrency: 1000, prefetch: 9001 }), /10,000/);
  assert.throws(() => new Worker().handle('a'), /The handler of a/);
  assert.throws(() => new Worker().start(), /no handler/);
  assert.notEqual(new Worker({ name: 'a' }).name, new Worker({ name: 'a' }).name);
});
