// pg-boss: fetch() and complete() of batches, without its polling interval of half a second and more.
//
//   node pg_boss.mjs CONNINFO setup | enqueue_many TASK JOBS | drain TASK SETTING JOBS | flow TASK SHAPE STEPS RESOLVER | calls TASK HOW KEYS SECONDS
import pg from "pg";
import { PgBoss } from "pg-boss";

const [, , , action, task, ...rest] = process.argv;
const LOOPS = 8, BATCH = 500;
const connection = { host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE };
const ITS_OWN = "its own";      // resolver of flows: looks once a second, which is as often as it can be set to
const boss = new PgBoss({ ...connection, max: LOOPS + 2, supervise: rest[2] === ITS_OWN, flowIntervalSeconds: 1, schedule: false });
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

const shapes = {
  chain: (i) => (i > 0 ? [String(i - 1)] : []),
  fan_in: (i, steps) => (i === steps - 1 ? Array.from({ length: i }, (_, j) => String(j)) : []),
};

// Until all steps are completed. pg-boss's own resolver releases the steps that wait, or the program does by resolveFlow(), as soon as it has completed
// a batch: then none waits for the next look.
async function flow() {
  const [shape, number, resolver] = [rest[0], Number(rest[1]), rest[2]];
  await boss.flow(Array.from({ length: number }, (_, i) => ({ ref: String(i), name: task, data: { id: i }, dependsOn: shapes[shape](i, number) })));
  let done = 0;
  await Promise.all(Array.from({ length: shape === "chain" ? 1 : LOOPS }, async () => {
    while (done < number) {
      const batch = await boss.fetch(task, { batchSize: BATCH });
      if (batch.length === 0) { await new Promise((resolve) => setTimeout(resolve, 2)); continue; }
      await Promise.all(batch.map((job) => handlers[task](job.data)));
      await boss.complete(task, batch.map((job) => job.id));
      done += batch.length;
      if (resolver !== ITS_OWN) await boss.resolveFlow();
    }
  }));
}

// The job of a key that waits is changed, by as many loops.
async function calls() {
  const [how, keys, seconds] = [rest[0], Number(rest[1]), Number(rest[2])];
  const call = {
    replace: (key, data) => boss.upsert(task, data, { singletonKey: key }),
    debounce: (key, data) => boss.sendDebounced(task, data, {}, 3600, key),
  }[how];
  const begin = performance.now();
  let done = 0;
  await Promise.all(Array.from({ length: LOOPS }, async () => {
    while (performance.now() - begin < seconds * 1000) {
      const k = Math.floor(Math.random() * keys) + 1;
      await call(`key ${k}`, { k });
      done++;
    }
  }));
  console.log(JSON.stringify({ rate: done / (performance.now() - begin) * 1000 }));
}

await { setup, enqueue_many, drain, flow, calls }[action]();
await boss.stop({ graceful: false });
await pool.end();
process.exit(0);
