// The worker of the protocol suite (test/clients/README.md).
import pg from 'pg';
import { Worker } from '../lib/index.js';

const options = JSON.parse(process.env.SCENARIO ?? '{}');
const pool = new pg.Pool({ max: options.concurrency ?? 10 });
pool.on('error', () => {}); // a connection that waited is lost: the next query makes another

const concurrency = options.concurrency ?? 10;
const worker = new Worker({
  queues: options.queues,
  mode: options.mode,
  concurrency,
  prefetch: Math.max((options.batch ?? 0) - concurrency, 0),
  lease: options.lease === undefined ? undefined : options.lease * 1000,
  stopWithin: options.grace === undefined ? undefined : options.grace * 1000,
  name: options.name,
});

const sleep = (seconds) => new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });

async function ledger(key, ctx) {
  await (ctx.client ?? pool).query('INSERT INTO ledger (key, client) VALUES ($1, $2)', [key, options.name]);
}

function fail(message) {
  throw new Error(message);
}

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
  enqueues: (args, ctx) => ctx.enqueue(args.worker, args.args),
});

await worker.run();
process.exit(0);
