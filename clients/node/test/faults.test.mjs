// What handlers, jobs, servers and networks do wrong: the job is charged, or the connection made again, and the next job runs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { enqueue, Worker } from '../lib/index.js';
import { connect, gate, job, newDatabase, newProxy, recordedLog, until, untilJob } from './help.mjs';

const prepare = (on) => on.query("CREATE FUNCTION at_once(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$");
const { name, client } = await newDatabase();
await prepare(client);

const define = (worker, retries = 0, on = client) => on.query(`SELECT queue_jobs.define_worker('${worker}', max_retries => ${retries}, retry_backoff => 'public.at_once')`);

function start(t, mode, handlers, { connection, ...options } = {}) {
  const { log, lines, events } = recordedLog();
  const worker = new Worker({ connection: { database: name, ...connection }, mode, log, concurrency: 1, stopWithin: 60_000, ...options }).handle(handlers);
  t.after(() => worker.stop());
  const running = worker.start();
  return { worker, running, lines, events };
}

function thrower(property) {
  const error = new Error('its message');
  Object.defineProperty(error, property, { get() { throw new Error(`no ${property}`); } });
  return error;
}

function revoked() {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function cycle() {
  const list = [];
  list.push(list);
  return list;
}

const fail = (value) => { throw value; };

// By what they are called: [handler, the job's error].
const BAD = {
  'no prototype': [() => fail(Object.create(null)), /^\[object Object\]$/],
  'toString throws': [() => fail({ toString() { throw new Error('no text'); } }), /^\[object Object\]$/],
  'message throws': [() => fail(thrower('message')), /Error/],
  'stack throws': [() => fail(thrower('stack')), /^Error: its message$/],
  'cause throws': [() => fail(thrower('cause')), /^Error: its message$/],
  'cause without text': [() => fail(new Error('its message', { cause: Object.setPrototypeOf(new Error('a'), null) })), /^Error: its message$/],
  'revoked proxy': [() => fail(revoked()), /object/],
  symbol: [() => fail(Symbol('one')), /^Symbol\(one\)$/],
  'nothing at all': [() => fail(undefined), /^undefined$/],
  'half a character': [() => fail(new Error('half \ud83d')), /^Error: half \ufffd$/],
  'long message': [() => fail(new Error('long '.repeat(1_000_000))), /^Error: (long ){300}/],
  'retryIn misspelt': [(args, ctx) => { ctx.retryIn('soon'); fail(new Error('first')); }, /first.*"soon"/s],
  'retryIn too far': [(args, ctx) => { ctx.retryIn('366 days'); fail(new Error('first')); }, /first.*366 days/s],
  'retryIn NaN': [(args, ctx) => ctx.retryIn(NaN), /NaN is no interval/],
  'retryIn, and too many milliseconds': [(args, ctx) => { ctx.retryIn(1e300); fail(new Error('first')); }, /first.*1e\+300/s],
  'retryIn and discard': [(args, ctx) => { ctx.retryIn(5); ctx.discard('no use'); fail(new Error('after it')); }, /after it/],
  'snooze misspelt': [(args, ctx) => ctx.snooze('soon'), /"soon"/],
  'snooze too far': [(args, ctx) => ctx.snooze('366 days'), /366 days/],
  'snooze NaN': [(args, ctx) => ctx.snooze(NaN), /NaN is no interval/],
  'signal without a name': [(args, ctx) => ctx.waitForSignal(Object.create(null)), /name|text|convert/i],
  'timeout misspelt': [(args, ctx) => ctx.waitForSignal('go', { timeout: 'soon' }), /"soon"/],
  'delay misspelt': [(args, ctx) => ctx.continueAt(1, { delay: 'soon' }), /"soon"/],
  'delay of another type': [(args, ctx) => ctx.continueAt(1, { delay: {} }), /is no interval/],
  'progress misspelt': [(args, ctx) => ctx.continueAt(1, { progress: 'far' }), /"far"/],
  'cursor with a cycle': [(args, ctx) => ctx.continueAt(cycle()), /circular/],
  'reason without text': [(args, ctx) => ctx.discard(Object.create(null)), /object/],
  'half a character as result': [() => '\ud800', /json/],
  'NUL as result': [() => 'a\u0000', /Unicode/],
  'NUL before digits, beside a BigInt': [() => [1n, '\u00005'], /u0000|Unicode/],
  'cycle as result': [() => cycle(), /circular/],
  'toJSON throws': [() => ({ toJSON() { throw new Error('no JSON'); } }), /no JSON/],
  'a thenable that throws': [() => ({ then() { throw new Error('no promise'); } }), /no promise/],
};

// In transaction mode the connection is the handler's, too.
const statement = (text) => [(args, ctx) => ctx.client.query(text), /does not begin or end the transaction/];
const BAD_TRANSACTIONS = {
  'a comment before COMMIT': statement('/* x */ COMMIT'),
  'nested comments before it': statement('/* /* x */ */ -- y\n commit'),
  'a second statement': statement("SELECT ';', $$;$$, E'\\';' ; ROLLBACK"),
  'a prepared one': statement({ name: 'ends', text: 'COMMIT' }),
  'ROLLBACK AND CHAIN': statement('ROLLBACK AND CHAIN'),
  'END after a string': statement("SELECT 'it''s'; END"),
  'START with a comment': statement('START/**/TRANSACTION'),
  'its savepoint is gone': [async (args, ctx) => { await ctx.client.query('RELEASE SAVEPOINT queue_jobs_work'); fail(new Error('released')); }, /transaction/],
  // As a class of the application's that pg takes for a query.
  'a ROLLBACK that passes by': [(args, ctx) => new Promise((resolve) => {
    ctx.client.query({ submit: (connection) => { connection.query('ROLLBACK'); }, callback() {}, handleCommandComplete() {}, handleReadyForQuery: () => resolve() });
  }), /has ended the transaction/],
};

for (const mode of ['lease', 'transaction']) {
  test(`${mode}: whatever a handler throws, returns or asks for is charged to its job`, async (t) => {
    const bad = `${mode}.bad`;
    await define(bad);
    const kinds = mode === 'lease' ? BAD : { ...BAD, ...BAD_TRANSACTIONS };
    const ids = {};
    for (const kind of Object.keys(kinds)) ids[kind] = await enqueue(client, bad, { kind });
    const last = await enqueue(client, bad, {});
    let runs = 0;
    start(t, mode, { [bad]: (args, ctx) => { runs++; return kinds[args.kind]?.[0](args, ctx) ?? 'good'; } });
    await untilJob(client, last, 'completed');
    for (const kind of Object.keys(kinds)) {
      const row = await untilJob(client, ids[kind], 'dead', 'retryable', 'scheduled', 'waiting', 'completed');
      assert.equal(row.state, 'dead', kind);
      assert.match(row.last_error, kinds[kind][1], kind);
    }
    assert.equal(runs, Object.keys(kinds).length + 1);
  });

  test(`${mode}: results that JSON has`, async (t) => {
    const good = `${mode}.good`;
    await define(good);
    const results = { NaN, BigInt: { id: 12345678901234567890n }, list: [undefined, () => {}], date: new Date(0) };
    start(t, mode, { [good]: ({ kind }) => results[kind] });
    const expected = { NaN: "null", BigInt: '{"id": 12345678901234567890}', list: '[null, null]', date: '"1970-01-01T00:00:00.000Z"' };
    for (const [kind, text] of Object.entries(expected)) {
      const id = await enqueue(client, good, { kind });
      await untilJob(client, id, 'completed');
      assert.equal((await client.query('SELECT result::text FROM queue_jobs.job WHERE id = $1', [id])).rows[0].result, text, kind);
    }
  });

  test(`${mode}: a delay below zero is none`, async (t) => {
    const past = `${mode}.past`;
    await define(past, 5);
    const ends = {
      retryIn: (ctx, delay) => { ctx.retryIn(delay); throw new Error('again'); },
      snooze: (ctx, delay) => ctx.snooze(delay),
      continueAt: (ctx, delay) => ctx.continueAt(1, { delay }),
      waitForSignal: (ctx, timeout) => ctx.waitForSignal('never', { timeout }),
    };
    const seen = new Set();
    start(t, mode, {
      [past]: ({ end, delay }, ctx) => {
        if (seen.has(ctx.id)) return 'ran again';
        seen.add(ctx.id);
        return ends[end](ctx, delay);
      },
    });
    for (const end of Object.keys(ends))
      for (const delay of [-5000, '-1 hour']) {
        const id = await enqueue(client, past, { end, delay });
        assert.equal((await untilJob(client, id, 'completed', 'dead')).result, 'ran again', `${end} ${delay}`);
      }
  });

  test(`${mode}: a job whose end cannot be written at all is put back, and the next one runs`, async (t) => {
    const role = `node_${mode}_${process.pid}`;
    const stuck = `${mode}.stuck`;
    const other = await newDatabase();
    await prepare(other.client);
    await define(stuck, 0, other.client);
    await other.client.query(`CREATE ROLE ${role} LOGIN IN ROLE queue_jobs_claim, queue_jobs_enqueue; REVOKE EXECUTE ON FUNCTION queue_jobs.fail FROM queue_jobs_claim`);
    const enqueuer = await connect(other.name, { user: role });
    const ids = [await enqueue(enqueuer, stuck, { fails: true }), await enqueue(enqueuer, stuck)];
    await enqueuer.end();
    const { events, worker } = start(t, mode, { [stuck]: (args) => { if (args.fails) throw new Error('first'); } }, { connection: { database: other.name, user: role } });
    await untilJob(other.client, ids[1], 'completed');
    const row = await untilJob(other.client, ids[0], 'scheduled');
    assert.equal(row.errors, null);
    assert.ok(events('error').some((line) => line.job === ids[0] && /permission denied/.test(line.error)));
    await worker.stop();
    await other.client.query(`DROP ROLE ${role}`);
  });

  test(`${mode}: what a job has that JavaScript's patterns and types do not take at once`, async (t) => {
    const odd = `${mode}.odd`;
    await define(odd);
    const { rows } = await client.query(`SELECT queue_jobs.enqueue('${odd}', args) AS id FROM unnest(ARRAY[
      jsonb_build_object('text', repeat('a"\\', 2800000), 'number', 1234567890123456789),
      (repeat('[', 5000) || repeat(']', 5000))::jsonb,
      (repeat('[', 3000) || '1234567890123456789' || repeat(']', 3000))::jsonb,
      jsonb_build_object('number', trunc(10::numeric ^ 5000)),
      '{"__proto__": {"a": 1}, "constructor": null, "\\"": "\\\\\\"1234567890123456789"}']) WITH ORDINALITY AS a (args, n)`);
    const depth = (list) => { let n = 0; for (let one = list; Array.isArray(one); one = one[0]) n++; return n; };
    start(t, mode, { [odd]: (args) => (Array.isArray(args) ? { depth: depth(args) } : args) });
    for (const { id } of rows) {
      await untilJob(client, id, 'completed', 'dead');
      assert.deepEqual((await client.query("SELECT state, last_error, coalesce((result ->> 'depth')::int = length(regexp_replace(args::text, '[^[]', '', 'g')), args = result) AS same FROM queue_jobs.job WHERE id = $1", [id])).rows, [{ state: 'completed', last_error: null, same: true }]);
    }
  });

  test(`${mode}: a job that cannot be read fails alone`, async (t) => {
    const other = await newDatabase("ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'");
    await prepare(other.client);
    const bytes = `${mode}.bytes`;
    await define(bytes, 0, other.client);
    for (const text of ["'b'", "convert_from('\\xe9', 'SQL_ASCII')", "'😀'", "convert_from('\\xf09f98', 'SQL_ASCII')"]) {
      await other.client.query(`SELECT queue_jobs.enqueue('${bytes}', jsonb_build_object('text', ${text}))`);
    }
    start(t, mode, { [bytes]: ({ text }) => text }, { connection: { database: other.name }, prefetch: mode === 'lease' ? 3 : 0 });
    const outcomes = "SELECT state, coalesce(result #>> '{}', last_error) AS end FROM queue_jobs.job ORDER BY id";
    const ended = await until(async () => {
      const jobs = (await other.client.query(outcomes)).rows;
      return jobs.every((one) => ['completed', 'dead'].includes(one.state)) && jobs;
    });
    assert.deepEqual(ended.map((one) => one.state), ['completed', 'dead', 'completed', 'dead']);
    assert.deepEqual([ended[0].end, ended[2].end], ['b', '😀']);
    for (const n of [1, 3]) assert.match(ended[n].end, /cannot be read: invalid byte sequence/);
  });

  test(`${mode}: settings of the role do not matter`, async (t) => {
    const role = `node_settings_${mode}_${process.pid}`;
    const settings = `${mode}.settings`;
    await define(settings);
    await client.query(`CREATE ROLE ${role} LOGIN IN ROLE queue_jobs_claim, queue_jobs_enqueue`);
    for (const one of ["client_encoding = 'LATIN1'", "DateStyle = 'German'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'", 'extra_float_digits = -15', "default_transaction_isolation = 'serializable'"])
      await client.query(`ALTER ROLE ${role} SET ${one}`);
    const enqueuer = await connect(name, { user: role });
    const { rows: [{ id }] } = await enqueuer.query(`SELECT queue_jobs.enqueue('${settings}', jsonb_build_object('text', chr(128512))) AS id`);
    await enqueuer.end();
    const { worker } = start(t, mode, { [settings]: (args) => args }, { connection: { database: name, user: role } });
    assert.deepEqual((await untilJob(client, id, 'completed', 'dead')).result, { text: '😀' });
    await worker.stop();
    await client.query(`DROP ROLE ${role}`);
  });

  test(`${mode}: a connection that goes silent is made again`, async (t) => {
    const silent = `${mode}.silent`;
    await define(silent, 3);
    const proxy = await newProxy(t);
    const { events, worker } = start(t, mode, { [silent]: () => 'done' }, { connection: { host: proxy.folder, port: 5432, database: name }, silence: 2000 });
    await untilJob(client, await enqueue(client, silent), 'completed');
    // A wait that lasts as long as it may is none.
    await until(async () => (await client.query("SELECT count(*) > 0 AS is FROM pg_stat_activity WHERE application_name = left($1, 63) AND state = 'active' AND query LIKE 'CALL%'", [worker.name])).rows[0].is);
    const before = events('disconnected').length;
    proxy.swallow();
    await until(() => events('disconnected').length > before);
    assert.ok(events('disconnected').some((line) => /no answer for 2000 ms|timeout/.test(line.error)));
    const id = await enqueue(client, silent);
    proxy.pass();
    assert.equal((await untilJob(client, id, 'completed')).result, 'done');
    proxy.swallow();
    await worker.stop();
  });

  test(`${mode}: what the server has to say is logged`, async (t) => {
    const told = `${mode}.told`;
    await define(told);
    const { events } = start(t, mode, { [told]: () => {} }, { queues: [told, `no.such.queue.${mode}`] });
    await until(() => events('notice').some((line) => line.message.includes(`no.such.queue.${mode}`) && line.level === 'info'));
  });

  test(`${mode}: what cannot be mended by waiting ends the worker at its start`, async (t) => {
    const role = `node_none_${mode}_${process.pid}`;
    await client.query(`CREATE ROLE ${role} LOGIN`);
    await client.query(`CREATE DATABASE ${role}`);
    t.after(async () => {
      await client.query(`DROP DATABASE ${role}`);
      await client.query(`DROP ROLE ${role}`);
    });
    const ends = async (connection, code, queues) => {
      const { log, events } = recordedLog();
      await assert.rejects(new Worker({ connection, mode, queues, log }).handle('any', () => {}).run(), { code });
      assert.equal(events('refused')[0].sqlstate, code);
    };
    await ends({ database: 'no_such_database' }, '3D000');
    await ends({ database: role }, '3F000');
    await ends({ database: name, user: 'no_such_role' }, '28000');
    await ends({ database: name, user: role }, '42501');
    await ends({ database: name }, '22023', ['urgancy=high']);
  });

  test(`${mode}: what fails later is tried again, with longer and longer delays`, async (t) => {
    const role = `node_revoked_${mode}_${process.pid}`;
    const later = `${mode}.later`;
    await define(later);
    await client.query(`CREATE ROLE ${role} LOGIN IN ROLE queue_jobs_claim, queue_jobs_enqueue`);
    const enqueuer = await connect(name, { user: role });
    const { events, worker } = start(t, mode, { [later]: () => 'done' }, { connection: { database: name, user: role } });
    await untilJob(client, await enqueue(enqueuer, later), 'completed');
    await client.query(`REVOKE queue_jobs_claim FROM ${role}`);
    const id = await enqueue(enqueuer, later);
    const since = Date.now();
    await until(() => events('error').length > 6);
    // 0.05, 0.1, 0.2, 0.4, 0.8 and 1.6 s, or at least half of that, of each of two loops.
    assert.ok(Date.now() - since > 700, `${Date.now() - since} ms`);
    await client.query(`GRANT queue_jobs_claim TO ${role}`);
    await untilJob(client, id, 'completed');
    await enqueuer.end();
    await worker.stop();
    await client.query(`DROP ROLE ${role}`);
  });
}

test('transaction: a session that a timeout ends: the log and the job name it', async (t) => {
  await define('idles', 5);
  const idle = gate();
  const { events } = start(t, 'transaction', {
    idles: async (args, ctx) => {
      if (ctx.attempt > 1) return 'again';
      await ctx.client.query("SET idle_in_transaction_session_timeout = '100 ms'");
      await new Promise((resolve) => { ctx.signal.addEventListener('abort', resolve); });
      idle.open(ctx.signal.reason);
      throw ctx.signal.reason;
    },
  });
  const id = await enqueue(client, 'idles');
  assert.match((await idle.opened).message, /idle_in_transaction_session_timeout/);
  await untilJob(client, id, 'completed');
  const { errors } = await job(client, id);
  assert.ok(errors.some((error) => /idle_in_transaction_session_timeout/.test(error.message)), JSON.stringify(errors));
  assert.ok(events('disconnected').some((line) => /idle-in-transaction timeout/.test(line.error)));
});
