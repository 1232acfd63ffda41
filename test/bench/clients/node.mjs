// The Node client beside graphile-worker and pg-boss, each at its best documented settings; see run.sh.
//
// A drain: the backlog is there when the workers start; the clock runs from the first handler's begin until
// nothing is left in the table.
import { enqueue, enqueueMany, jsonLog, Worker } from '../../../clients/node/lib/index.js';
import pg from '../../../clients/node/node_modules/pg/lib/index.js';

const JOBS = Number(process.env.JOBS ?? 20_000);
const ROUNDS = Number(process.env.ROUNDS ?? 3);
const LATENCIES = Number(process.env.LATENCIES ?? 200);

const client = new pg.Client();
await client.connect();
await client.query('CREATE EXTENSION queue_jobs');

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const silent = jsonLog('warn');
const numbers = Array.from({ length: JOBS }, (_, id) => ({ id }));

// What a queue has: setup(), enqueue(job), fill(), start(handler), which returns what stops it, and the
// query that says whether jobs are left.
function queueJobs(mode, options) {
  const own = `noop_${mode}`;
  return {
    settings: `${mode} mode, ${JSON.stringify(options)}`,
    left: `SELECT EXISTS (SELECT FROM queue_jobs.live_job) AS left`,
    setup: () => client.query("SELECT queue_jobs.define_worker($1, keep_completed => '0')", [own]),
    enqueue: () => enqueue(client, own, { id: 0 }),
    fill: () => enqueueMany(client, own, numbers),
    start: async (handler) => {
      const worker = new Worker({ mode, log: silent, ...options }).handle(own, handler);
      worker.start();
      return () => worker.stop();
    },
  };
}

async function graphileWorker() {
  const { makeWorkerUtils, run, Logger } = await import('graphile-worker');
  const logger = new Logger(() => () => {});
  const pgPool = new pg.Pool({ max: 26 });
  const utils = await makeWorkerUtils({ pgPool, logger });
  return {
    settings: '24 jobs at a time, local queue of 500, completions in batches (its page on performance)',
    left: 'SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS left',
    setup: () => utils.migrate(),
    enqueue: () => utils.addJob('noop', { id: 0 }),
    fill: () => utils.addJobs(numbers.map((payload) => ({ identifier: 'noop', payload }))),
    start: async (handler) => {
      const worker = { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
      const runner = await run({ pgPool, logger, noHandleSignals: true, preset: { worker }, taskList: { noop: handler } });
      return () => runner.stop();
    },
    end: async () => { await utils.release(); await pgPool.end(); },
  };
}

async function pgBoss() {
  const { PgBoss } = await import('pg-boss');
  const boss = new PgBoss({ host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE, max: 10, supervise: false, schedule: false });
  boss.on('error', console.error);
  return {
    settings: 'work() of 8 with batches of 500, polling twice a second, its shortest interval',
    left: "SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed') AS left",
    setup: async () => { await boss.start(); await boss.createQueue('noop'); },
    enqueue: () => boss.send('noop', { id: 0 }),
    fill: async () => { for (let n = 0; n < JOBS; n += 5000) await boss.insert('noop', numbers.slice(n, n + 5000).map((data) => ({ data }))); },
    start: async (handler) => {
      const workers = Array.from({ length: 8 }, () => boss.work('noop', { batchSize: 500, pollingIntervalSeconds: 0.5 }, (jobs) => Promise.all(jobs.map(handler))));
      await Promise.all(workers);
      return () => boss.offWork('noop', { wait: true });
    },
    end: () => boss.stop({ graceful: false }),
  };
}

async function drain(queue) {
  let begin = null;
  await queue.fill();
  await client.query('CHECKPOINT');
  const stop = await queue.start(async () => { begin ??= performance.now(); });
  while (begin === null || (await client.query(queue.left)).rows[0].left) await sleep(5);
  const seconds = (performance.now() - begin) / 1000;
  await stop();
  return JOBS / seconds;
}

async function latencies(queue) {
  let begun = () => {};
  const stop = await queue.start(async () => begun());
  const measured = [];
  for (let n = 0; n < LATENCIES; n++) {
    const handled = new Promise((resolve) => { begun = () => resolve(performance.now()); });
    const begin = performance.now();
    await queue.enqueue();
    measured.push((await handled) - begin);
    while ((await client.query(queue.left)).rows[0].left) await sleep(1);
  }
  await stop();
  return measured;
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

const queues = {
  queue_jobs: async () => queueJobs('lease', { concurrency: 24, prefetch: 476 }),
  queue_jobs_transaction: async () => queueJobs('transaction', { concurrency: 8 }),
  graphile_worker: graphileWorker,
  pg_boss: pgBoss,
};

for (const name of process.env.QUEUES?.split(',') ?? Object.keys(queues)) {
  const queue = await queues[name]();
  await queue.setup();
  const rates = [];
  for (let round = 0; round < ROUNDS; round++) rates.push(await drain(queue));
  const p50 = median(await latencies(queue));
  console.log(JSON.stringify({ language: 'node', queue: name, settings: queue.settings, 'jobs/s': Math.round(median(rates)), 'pick-up ms, p50': Number(p50.toFixed(2)) }));
  await queue.end?.();
}
await client.end();
process.exit(0);
