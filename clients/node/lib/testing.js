// For tests: run what is due in the test's own transaction, which it rolls back; and look at what was
// enqueued.
import { AssertionError } from 'node:assert';
import { claimStatement, jobsOfRows, queuesFor } from './claim.js';
import { Abort, runJob } from './job.js';
import { parse } from './json.js';
import { failed, writeOutcome } from './outcome.js';
import { ask, ROLE, setRole, Values } from './sql.js';
import { Worker } from './worker.js';

const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

function asWorker(worker) {
  return worker instanceof Worker ? worker : new Worker({ log: SILENT }).handle(worker);
}

async function runOne(db, worker, job, session) {
  await ask(db, 'SAVEPOINT queue_jobs_run');
  let outcome = await runJob(worker, job, { db, client: db, signal: new Abort().signal, wasStopped: () => false, isStopping: () => false });
  if (!outcome.rollback) {
    try {
      await ask(db, 'SET CONSTRAINTS ALL IMMEDIATE');
      await ask(db, setRole(session));
    } catch (error) {
      outcome = failed(error);
    }
  }
  outcome = await writeOutcome(db, job, outcome, { log: worker.log, undo: () => ask(db, 'ROLLBACK TO SAVEPOINT queue_jobs_run') });
  await ask(db, 'RELEASE SAVEPOINT queue_jobs_run');
  return { id: job.id, worker: job.worker, args: job.args, outcome: outcome.kind, result: parse(outcome.result ?? null), error: outcome.error ?? null };
}

// Runs jobs that are due, one after another, with those that they enqueue, until none is left. worker: a
// Worker, or an object of handlers; db: the test's transaction, which the handlers get as ctx.client.
// Returns what ran, in that order.
export async function runDue(db, worker, { queues, maxJobs = 1000 } = {}) {
  const own = asWorker(worker);
  const source = { claimant: own.name, queues: queuesFor(queues, own.handlers.keys()) };
  const [session] = await ask(db, `SELECT ${ROLE}`);
  const ran = [];
  while (ran.length < maxJobs) {
    const [job] = jobsOfRows(await ask(db, ...claimStatement(source, 1)));
    if (!job) break;
    ran.push(await runOne(db, own, job, session));
  }
  return ran;
}

async function unfinished(db, worker) {
  const values = new Values();
  const rows = await ask(db, `SELECT id::text AS id, args::text AS args, state, queue, priority, run_at, dedup_key FROM queue_jobs.job WHERE worker = ${values.add('text', worker)} AND state NOT IN ('completed', 'cancelled', 'dead') ORDER BY job.id`, values.values);
  return rows.map((row) => ({ ...row, args: parse(row.args) }));
}

async function matching(db, worker, args) {
  const values = new Values();
  const rows = await ask(db, `SELECT id::text AS id FROM queue_jobs.job WHERE worker = ${values.add('text', worker)} AND args @> ${values.add('jsonb', args)} AND state NOT IN ('completed', 'cancelled', 'dead') ORDER BY job.id`, values.values);
  return rows.map((row) => row.id);
}

// The ids of the jobs of that worker that are not finished and whose args contain these. Error: there is
// none, or not `count`.
export async function assertEnqueued(db, worker, args = {}, { count } = {}) {
  const ids = await matching(db, worker, args);
  if (count === undefined ? ids.length > 0 : ids.length === count) return ids;
  const there = (await unfinished(db, worker)).map((job) => job.args);
  throw new AssertionError({
    message: `${count ?? 'A'} job${count === undefined || count === 1 ? '' : 's'} of ${worker} with such args ${count === undefined ? 'is' : 'are'} expected, ${ids.length} of ${there.length} that wait have them`,
    expected: args,
    actual: there,
    operator: 'assertEnqueued',
  });
}

export const assertNotEnqueued = (db, worker, args = {}) => assertEnqueued(db, worker, args, { count: 0 });
