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

// One process: works until it is told to stop; tells when it began its first job.
async function work() {
  let started = false;
  const first = (handler) => async (payload, helpers) => {
    if (!started) {
      started = true;
      console.log("started");
    }
    return handler(payload, helpers);
  };
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
    taskList: { [task]: first(taskList[task]) },
    noHandleSignals: true,
    logger: undefined,
  });
  process.stdin.on("end", async () => {
    await runner.stop();
    process.exit(0);
  });
  process.stdin.resume();
}

// Starts the processes; the clock runs from the first job to an empty table.
async function drain() {
  let begin = null;
  const workers = Array.from({ length: parseInt(setting) }, () => {
    const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), conninfo, "work", task], { stdio: ["pipe", "pipe", "ignore"] });
    worker.stdout.on("data", (text) => {
      if (begin === null && String(text).includes("started")) begin = performance.now();
    });
    return worker;
  });
  const left = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS any";
  while ((await pool.query(left)).rows[0].any) await new Promise((resolve) => setTimeout(resolve, 20));
  const seconds = (performance.now() - begin) / 1000;
  await Promise.all(workers.map((worker) => new Promise((resolve) => { worker.on("exit", resolve); worker.stdin.end(); })));
  console.log(JSON.stringify({ jobs, seconds }));
}

await { setup, work, drain }[action]();
if (action !== "work") await pool.end();
