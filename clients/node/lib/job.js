// One run of a handler: the context that it is given, and what comes of it.
import { completed, continued, discarded, failed, givenBack, snoozed, waiting } from './outcome.js';
import { enqueue, enqueueMany, signal as sendSignal } from './enqueue.js';
import { batchResults, resultsBefore } from './batches.js';
import { parse, stringify } from './json.js';
import { off } from './log.js';
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

// Why a job is to end early, if it is: the signal is made when a handler first asks for it.
export class Abort {
  #controller = null;
  #reason = null;

  get stopped() {
    return this.#reason instanceof Stopping;
  }

  signal = () => {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#reason) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  };

  abort(reason) {
    this.#reason ??= reason;
    this.#controller?.abort(reason);
  }
}

// What a handler gets beside the args.
export class JobContext {
  #decisions;
  #run;
  #db;
  #steps = null;

  // run: { db, client, signal(), isStopping() }
  constructor(job, run, log, decisions) {
    this.#decisions = decisions;
    this.#run = run;
    this.#db = run.db;
    this.job = job;
    this.log = log;
  }

  get id() { return this.job.id; }
  get worker() { return this.job.worker; }
  get queue() { return this.job.queue; }
  get args() { return this.job.args; }
  get attempt() { return this.job.attempt; }
  get context() { return this.job.context ?? {}; }
  get batch() { return this.job.batch; }
  get cursor() { return this.job.cursor; }
  get progress() { return this.job.progress; }
  get client() { return this.#run.client; }
  get signal() { return this.#run.signal(); }
  get stopping() { return this.#run.isStopping(); }

  // When the handler has returned, the job is put back, to run again after the delay. No attempt is charged.
  snooze(delay) {
    this.#decisions.end = snoozed(interval(delay));
  }

  // When the handler has returned, the job is put back, to run again when the signal has come, or after the
  // timeout; at once if it has come before. No attempt is charged.
  waitForSignal(name, { timeout = null } = {}) {
    this.#decisions.end = waiting(name, timeout === null ? null : interval(timeout));
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

  // When the handler has returned, the job runs again from this cursor, at once or after the delay. No
  // attempt is charged.
  continueAt(cursor, { delay = null, progress = null } = {}) {
    this.#decisions.end = continued(cursor, delay === null ? null : interval(delay), progress);
  }

  // Says how far the job is: others see it at once in the view job. What is left out stays as this run has said
  // before.
  async report(progress = null, message = null) {
    const values = new Values();
    await this.#ask(`SELECT queue_jobs.report(${values.add('bigint', this.id)}, ${values.add('int', this.attempt)}, ${values.add('float8', progress)}, ${values.add('text', message)})::text AS done`, values);
  }

  // Asks again if the connection was lost: for what may be done twice.
  async #ask(text, { values }) {
    for (;;) {
      try {
        return await ask(this.#db, text, values);
      } catch (error) {
        if (!error.lost) throw error;
      }
    }
  }

  async #loadSteps() {
    const values = new Values();
    const [row] = await this.#ask(`SELECT queue_jobs.steps(${values.add('bigint', this.id)})::text AS steps`, values);
    return new Map(Object.entries(parse(row.steps) ?? {}));
  }

  // Runs once per job and name: later runs of the job get what it returned then.
  async step(name, run) {
    this.#steps ??= this.#loadSteps();
    const steps = await this.#steps;
    if (steps.has(name)) return steps.get(name);
    const value = (await run()) ?? null;
    const values = new Values();
    await this.#ask(`SELECT queue_jobs.save_step(${values.add('bigint', this.id)}, ${values.add('int', this.attempt)}, ${values.add('text', name)}, ${values.addJsonText('jsonb', stringify(value))})::text AS done`, values);
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

  // The payloads of the signals that were sent to this job so far, by their names.
  async signals() {
    const values = new Values();
    const [row] = await this.#ask(`SELECT queue_jobs.signals(${values.add('bigint', this.id)})::text AS signals`, values);
    return parse(row.signals);
  }

  // The payload of the signal of that name; null if it has not come. (Its payload may be null, too: then
  // signals() has the name.)
  async signalPayload(name) {
    const signals = await this.signals();
    return Object.hasOwn(signals, name) ? signals[name] : null;
  }

  // Sends a signal to another job. (ctx.signal is the AbortSignal of this one.)
  sendSignal(id, name, payload) {
    return sendSignal(this.#db, id, name, payload);
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

function outcomeOfError(thrown, run, decisions) {
  if (run.wasStopped()) return givenBack();
  return failed(thrown, { retryIn: decisions.retryIn, final: decisions.final });
}

// Logs what has become of a job, once that is written. begin: of its run, as performance.now() said.
export function logOutcome(log, job, outcome, begin) {
  const level = outcome.kind === 'failed' ? 'warn' : 'info';
  if (log[level] === off) return;
  const seconds = Math.round((performance.now() - begin) * 10) / 10_000;
  log[level]({ event: outcome.kind, job: job.id, worker: job.worker, attempt: job.attempt, seconds, error: outcome.error, traceparent: job.context?.traceparent }, outcome.kind);
}

// Runs a job's handler. run: the database for what the context does, as db; what the handler gets as
// ctx.client, if anything; signal(), isStopping(), and wasStopped(): whether the signal was aborted for
// that.
export async function runJob({ handlers, middleware, log }, job, run) {
  const handler = handlers.get(job.worker);
  if (!handler && job.worker !== null) {
    log.error({ event: 'no_handler', job: job.id, worker: job.worker }, `there is no handler for ${job.worker}: the job is put back for ${NO_HANDLER_DELAY}`);
    return snoozed(NO_HANDLER_DELAY);
  }
  const decisions = {};
  const ctx = new JobContext(job, run, log, decisions);
  try {
    if (job.unreadable) throw new Error(`The job cannot be read: ${job.unreadable.message}`, { cause: job.unreadable });
    const value = await runWithContext(job, () => callHandler(handler, middleware, ctx));
    return decisions.end ?? completed(value);
  } catch (thrown) {
    return outcomeOfError(thrown, run, decisions);
  }
}
