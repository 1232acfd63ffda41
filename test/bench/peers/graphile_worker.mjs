// graphile-worker at the settings of its documentation's page on performance (https://worker.graphile.org/docs/performance):
// 24 jobs at a time, a local queue of 500, completions in batches; one or more processes.
//
//   node graphile_worker.mjs CONNINFO setup | drain TASK "N processes" JOBS | work TASK
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { run, makeWorkerUtils } from "graphile-worker";

const [, , conninfo, action, task, setting, jobs] = process.argv;
const pool = new pg.Pool({ host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE, max: 25 });

const taskList = {
  noop: async () => {},
  update: async (payload, helpers) => {
    await helpers.query("UPDATE raw.counter SET n = n + 1 WHERE id = $1", [payload.id]);
  },
};

async function setup() {
  const utils = await makeWorkerUtils({ pgPool: pool });
  await utils.migrate();
  await utils.release();
}

// One process: works until it is told to stop; prints every 20 ms how many jobs it has begun.
async function work() {
  let begun = 0;
  const count = (handler) => (payload, helpers) => {
    begun++;
    return handler(payload, helpers);
  };
  setInterval(() => console.log(begun), 20);
  const runner = await run({
    preset: {
      worker: {
        pgPool: pool,
        concurrentJobs: 24,
        maxPoolSize: 25,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: { [task]: count(taskList[task]) },
    noHandleSignals: true,
  });
  process.stdin.on("end", async () => {
    await runner.stop();
    process.exit(0);
  });
  process.stdin.resume();
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Starts the processes; the clock runs from the first job to an empty table, which is not looked at before all jobs have begun.
async function drain() {
  const begun = new Map();
  let begin = null;
  const workers = Array.from({ length: parseInt(setting) }, () => {
    const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), conninfo, "work", task], { stdio: ["pipe", "pipe", "ignore"] });
    worker.stdout.on("data", (text) => {
      const number = Number(String(text).trim().split("\n").pop()) || 0;
      begun.set(worker, number);
      if (begin === null && number > 0) begin = performance.now() - 10; // half of the 20 ms
    });
    return worker;
  });
  while ([...begun.values()].reduce((a, b) => a + b, 0) < Number(jobs)) await sleep(5);
  while ((await pool.query("SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS any")).rows[0].any) await sleep(5);
  const seconds = (performance.now() - begin) / 1000;
  await Promise.all(workers.map((worker) => new Promise((resolve) => { worker.on("exit", resolve); worker.stdin.end(); })));
  console.log(JSON.stringify({ jobs, seconds }));
}

await { setup, work, drain }[action]();
if (action !== "work") await pool.end();
