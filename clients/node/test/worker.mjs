// The worker of the protocol suite (test/clients/README.md).
import pg from 'pg';
import { Worker } from '../lib/index.js';

const options = JSON.parse(process.env.SCENARIO ?? '{}');
// Each statement has a connection of its own: one that waited in the pool may have gone silent.
const pool = new pg.Pool({ max: options.concurrency ?? 10, maxUses: 1 });
pool.on('error', () => {}); // a connection that waited is lost: the next query makes another

const concurrency = options.concurrency ?? 10;
const worker = new Worker({
  queues: options.queues,
  mode: options.mode,
  concurrency,
  prefetch: Math.max((options.batch ?? 0) - concurrency, 0),
  lease: options.lease === undefined ? undefined : options.lease * 1000,
  stopWithin: options.grace === undefined ? undefined : options.grace * 1000,
  silence: options.silence === undefined ? undefined : options.silence * 1000,
  name: options.name,
});

const sleep = (seconds) => new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });

async function ledger(key, ctx) {
  await (ctx.client ?? pool).query('INSERT INTO ledger (key, client) VALUES ($1, $2)', [key, options.name]);
}

function fail(message) {
  throw new Error(message);
}

// Seconds, as the suite has them; a text; or the number that is none.
const delayOf = (delay) => (typeof delay === 'number' ? delay * 1000 : delay === 'NaN' ? NaN : delay);

const none = { get() { throw new Error('none'); } };
const withoutText = Object.create(Error.prototype, { message: none, stack: none, toString: none });

const cycle = [];
cycle.push(cycle);

const RAISED = {
  'an error without a text': withoutText,
  'an error with NUL': new Error('a\0b'),
  'an error with half a character': new Error('a\ud83d'),
  'an error of 20 MB': new Error('long '.repeat(4_000_000)),
  'an error with an elephant': new Error('the big one \u{1f418}'),
  'no error': Object.create(null),
  exit: undefined,
};
const RESULTS = { NUL: '\0', 'half a character': '\ud83d', NaN, cycle, 'no JSON': () => {}, elephant: '\u{1f418}' };

worker.handle({
  ledger: ({ key }, ctx) => ledger(key, ctx),
  fails: ({ message }) => fail(message),
  slow: async ({ key, seconds }, ctx) => {
    await sleep(seconds);
    await ledger(key, ctx);
  },
  crashes: async () => {
    process.kill(process.pid, 'SIGKILL');
    await sleep(60);
  },
  echo: (args) => args,
  snoozes: async ({ key }, ctx) => {
    if (ctx.attempt === 1) ctx.snooze(0);
    else await ledger(key, ctx);
  },
  waits: async ({ key, timeout }, ctx) => {
    const payload = await ctx.signalPayload('go');
    if (payload === null && ctx.attempt === 1) {
      await ledger(`${key} asked`, ctx);
      ctx.waitForSignal('go', { timeout });
    } else await ledger(`${key} ${payload === null ? 'in vain' : payload.by}`, ctx);
  },
  steps: async ({ key }, ctx) => {
    await ctx.step('first', () => ledger(`${key} 1`, ctx));
    if (ctx.attempt === 1) fail('between the steps');
    await ctx.step('second', () => ledger(`${key} 2`, ctx));
  },
  continues: async ({ key, upto }, ctx) => {
    const n = (ctx.cursor ?? 0) + 1;
    await ledger(`${key} ${n}`, ctx);
    if (n < upto) ctx.continueAt(n);
  },
  reports: async ({ key }, ctx) => {
    await ctx.report(0.25, key);
    await ledger(key, ctx);
    await ctx.report(0.75);
  },
  asks: async ({ key, by, delay }, ctx) => {
    if (ctx.attempt > 1 || ctx.cursor !== null) return ledger(key, ctx);
    if (by === 'retry_in') {
      ctx.retryIn(delayOf(delay));
      fail('asked');
    }
    if (by === 'snooze') ctx.snooze(delayOf(delay));
    else if (by === 'wait_for_signal') ctx.waitForSignal('go', { timeout: delayOf(delay) });
    else ctx.continueAt(1, { delay: delayOf(delay) });
    return undefined;
  },
  odd: ({ how }, ctx) => {
    if (how === 'cursor with NUL') return ctx.continueAt('\0');
    if (how in RAISED) throw RAISED[how];
    return RESULTS[how];
  },
  executes: async ({ key, sql, quietly }, ctx) => {
    await ctx.client.query(sql).catch((error) => { if (!quietly) throw error; });
    await ledger(key, ctx);
  },
  enqueues: (args, ctx) => ctx.enqueue(args.worker, args.args),
});

await worker.run();
process.exit(0);
