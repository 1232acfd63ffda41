// One run of a handler: the context that it is given, and what comes of it.
import { completed, continued, discarded, failed, givenBack, snoozed } from './outcome.js';
import { enqueue, enqueueMany } from './enqueue.js';
import { batchResults, resultsBefore } from './batches.js';
import { parse, stringify } from './json.js';
import { ask, interval, Values } from './sql.js';
import { runWithContext } from './trace.js';

// How long a job for which there is no handler is left to processes of another version.
const NO_HANDLER_DELAY = '1 min';

// Why a job's signal is aborted.
export class Stopping extends Error {
  constructor() {
    super('The worker stops');
    this.name = 'AbortError';
  }
}

export class Lost extends Error {
  constructor(why) {
    super(why);
    this.name = 'AbortError';
  }
}

// What a handler gets beside the args.
export class JobContext {
  #decisions;
  #db;
  #steps = null;

  constructor(job, { db, client, signal, log, isStopping, decisions }) {
    this.#decisions = decisions;
    this.#db = db;
    Object.assign(this, { job, id: job.id, worker: job.worker, queue: job.queue, args: job.args, attempt: job.attempt, context: job.context ?? {}, cursor: job.cursor, progress: job.progress, batch: job.batch, client, signal, log });
    Object.defineProperty(this, 'stopping', { get: isStopping });
  }

  // When the handler has returned, the job is put back, to run again after the delay. No attempt is charged.
  snooze(delay) {
    this.#decisions.end = snoozed(interval(delay));
  }

  // If the handler throws, the next attempt is due after this delay.
  retryIn(delay) {
    this.#decisions.retryIn = interval(delay);
  }

  // When the handler has returned or thrown, the job is dead.
  discard(reason = 'discarded by its handler') {
    this.#decisions.end = discarded(reason);
    this.#decisions.final = true;
  }

  // When the handler has returned, the job runs again from this cursor, at once or after the delay. No attempt is charged.
  continueAt(cursor, { delay = null, progress = null } = {}) {
    this.#decisions.end = continued(cursor, delay, progress);
  }

  // Runs once per job and name: later runs of the job get what it returned then.
  async step(name, run) {
    const values = new Values();
    this.#steps ??= ask(this.#db, `SELECT queue_jobs.steps(${values.add('bigint', this.id)})::text AS steps`, values.values)
      .then(([row]) => new Map(Object.entries(parse(row.steps) ?? {})));
    const steps = await this.#steps;
    if (steps.has(name)) return steps.get(name);
    const value = (await run()) ?? null;
    const saved = new Values();
    await ask(this.#db, `SELECT queue_jobs.save_step(${saved.add('bigint', this.id)}, ${saved.add('int', this.attempt)}, ${saved.add('text', name)}, ${saved.addJsonText('jsonb', stringify(value))})::text AS done`, saved.values);
    steps.set(name, value);
    return value;
  }

  // In transaction mode in the job's transaction, in lease mode at once.
  enqueue(worker, args, options) {
    return enqueue(this.#db, worker, args, options);
  }

  enqueueMany(worker, argsList, options) {
    return enqueueMany(this.#db, worker, argsList, options);
  }

  // What the jobs of a batch have returned; by default of that whose callback it is, or else of its own.
  batchResults(batch = this.args.batch ?? this.batch) {
    return batchResults(this.#db, batch);
  }

  // In a workflow's step: what the steps before it have returned, by their names.
  async results() {
    return this.batch === null ? {} : resultsBefore(this.#db, this.batch, this.id);
  }
}

// middleware(ctx, next), the first one outermost.
function callHandler(handler, middleware, ctx) {
  const call = (n) => (n < middleware.length ? middleware[n](ctx, () => call(n + 1)) : handler(ctx.args, ctx));
  return call(0);
}

function outcomeOfError(thrown, signal, decisions) {
  if (signal.aborted && signal.reason instanceof Stopping) return givenBack();
  return failed(thrown, { retryIn: decisions.retryIn, final: decisions.final });
}

// Runs a job's handler. db: for what the context does; client: what the handler gets as ctx.client, if anything.
export async function runJob({ handlers, middleware, log }, job, { db, client, signal, isStopping }) {
  const handler = handlers.get(job.worker);
  if (!handler) {
    log.error({ event: 'no_handler', job: job.id, worker: job.worker }, `there is no handler for ${job.worker}: the job is put back for ${NO_HANDLER_DELAY}`);
    return snoozed(NO_HANDLER_DELAY);
  }
  const decisions = {};
  const ctx = new JobContext(job, { db, client, signal, log, isStopping, decisions });
  const begin = performance.now();
  let outcome;
  try {
    const value = await runWithContext(job, async () => callHandler(handler, middleware, ctx));
    outcome = decisions.end ?? completed(value);
  } catch (thrown) {
    outcome = outcomeOfError(thrown, signal, decisions);
  }
  const fields = { event: outcome.kind, job: job.id, worker: job.worker, queue: job.queue, attempt: job.attempt, milliseconds: Math.round(performance.now() - begin) };
  if (outcome.kind === 'fail') log.warn({ ...fields, error: outcome.error }, 'failed');
  else log.debug(fields, 'ran');
  return outcome;
}
