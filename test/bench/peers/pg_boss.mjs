// pg-boss: fetch() and complete() of batches, without its polling interval of half a second and more.
//
//   node pg_boss.mjs CONNINFO setup | enqueue_many TASK JOBS | drain TASK SETTING JOBS
import pg from "pg";
import { PgBoss } from "pg-boss";

const [, , , action, task, ...rest] = process.argv;
const LOOPS = 8, BATCH = 500;
const connection = { host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE };
const boss = new PgBoss({ ...connection, max: LOOPS + 2, supervise: false, schedule: false });
boss.on("error", (error) => { console.error(error); process.exit(1); });
await boss.start();

const pool = new pg.Pool({ ...connection, max: LOOPS });
const handlers = {
  noop: async () => {},
  update: async (data) => { await pool.query("UPDATE raw.counter SET n = n + 1 WHERE id = $1", [data.id]); },
};

async function setup() {
  for (const name of Object.keys(handlers)) await boss.createQueue(name);
}

async function enqueue_many() {
  const jobs = Number(rest[0]);
  for (let start = 0; start < jobs; start += 10000)
    await boss.insert(task, Array.from({ length: Math.min(10000, jobs - start) }, (_, i) => ({ data: { id: ((start + i) % 100000) + 1 } })));
}

async function drain() {
  const jobs = Number(rest[1]);
  const begin = performance.now();
  let done = 0;
  await Promise.all(Array.from({ length: LOOPS }, async () => {
    for (;;) {
      const batch = await boss.fetch(task, { batchSize: BATCH });
      if (batch.length === 0) return;
      await Promise.all(batch.map((job) => handlers[task](job.data)));
      await boss.complete(task, batch.map((job) => job.id));
      done += batch.length;
    }
  }));
  if (done !== jobs) throw new Error(`${done} of ${jobs} jobs`);
  console.log(JSON.stringify({ jobs, seconds: (performance.now() - begin) / 1000 }));
}

await { setup, enqueue_many, drain }[action]();
await boss.stop({ graceful: false });
await pool.end();
process.exit(0);
