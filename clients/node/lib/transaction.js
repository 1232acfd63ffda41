// Transaction mode: exactly once. Claim, handler and completion are one transaction; each task has a
// connection of its own, which its handler is given.
import { beginAndClaimStatement, isUnreadable, jobsOfRows, KEYS, readJob } from './claim.js';
import { backoff, Closed, Connection, isHopeless, sleep } from './connection.js';
import { guarded } from './guard.js';
import { Abort, logOutcome, Lost, runJob, Stopping } from './job.js';
import { ofError } from './log.js';
import { failed, isStale, writeOutcome } from './outcome.js';
import { setRole } from './sql.js';
import { Waiter } from './waiter.js';

// A handler's statement may be under way: it is cancelled, and a request that came too early is sent again.
const CANCEL_EVERY = 100;
const CANCELS = 50;
// SQLSTATE of a statement that such a request has ended.
const CANCELLED = '57014';

// By SQLSTATE, the settings that end a session whose handler keeps the transaction idle, or open.
const TIMEOUTS = { '25P03': 'idle_in_transaction_session_timeout', '25P04': 'transaction_timeout' };
// There is no transaction, or no such savepoint.
const ENDED = /^(25P01|3B001)$/;
// As long as setTimeout() takes.
const LONGEST = 2 ** 31 - 1;

const keyOf = (job) => `${job.id} ${job.attempt}`;

// The client for what follows the handler. Once the job is being rolled back nothing more is sent, for the
// ROLLBACK may come first, and each statement would be a transaction of its own: the caller waits for ever.
const ourClient = (task) => ({
  query: (...args) => (task.abandoned ? new Promise(() => {}) : task.connection.ask(task.client, ...args)),
});

// The transaction has the job, unless the handler has ended it by some other way than ctx.client.query().
function notWritten(error) {
  const ended = isStale(error) || ENDED.test(error.code ?? '');
  return new Error(`${ended ? 'The handler has ended the transaction or the savepoint of its job' : 'The end of the job could not be written'}: ${error.message}`, { cause: error });
}

export class TransactionEngine {
  #worker;
  #log;
  #servers;
  #claimant;
  #beginAndClaim;
  #beginAndClaimKeys;
  #silence;
  #unwritten = new Map(); // by job and attempt, why its end could not be written in its transaction
  #idle = [];             // those that wait until they are called
  #tasks = new Set();     // those that run a handler
  #connections = [];
  #waitConnection;
  #waiter;
  #stopping = new AbortController();
  #claimed = false;
  #finished = null;
  #hopeless = null;
  #concurrency;
  #settled = () => {};

  constructor({ worker, servers, log, claimant, queues, concurrency, silence }) {
    this.#worker = worker;
    this.#log = log;
    this.#servers = servers;
    this.#claimant = claimant;
    this.#beginAndClaim = beginAndClaimStatement({ claimant, queues });
    this.#beginAndClaimKeys = beginAndClaimStatement({ claimant, queues }, KEYS);
    this.#silence = silence;
    this.#concurrency = concurrency;
    this.#waitConnection = new Connection({ servers, log, name: claimant, silence });
    this.#waiter = new Waiter({ connection: this.#waitConnection, queues, log, silence, wake: () => this.#callOne() });
  }

  async run() {
    this.#finished = this.#run();
    await this.#finished;
  }

  async #run() {
    try {
      const slots = Array.from({ length: this.#concurrency }, () => this.#slot());
      this.#callOne();
      await Promise.all(slots);
    } finally {
      await this.#waiter.stop();
      await Promise.all([this.#waitConnection, ...this.#connections].map((one) => one.close()));
    }
    if (this.#hopeless) throw this.#hopeless;
  }

  #callOne() {
    this.#idle.shift()?.();
  }

  #callAll() {
    this.#idle.splice(0).forEach((call) => call());
  }

  async #slot() {
    const slot = { connection: null };
    let failures = 0;
    let any = false;
    while (!this.#stopping.signal.aborted) {
      if (!any) await new Promise((resolve) => { this.#idle.push(resolve); });
      if (this.#stopping.signal.aborted) break;
      try {
        any = await this.#runOne(slot);
        failures = 0;
      } catch (error) {
        if (error instanceof Closed) break;
        if (!this.#claimed && isHopeless(error)) return this.#giveUp(error);
        if (!error.lost) this.#log.error({ event: 'error', ...ofError(error) }, 'cannot run jobs');
        await sleep(backoff(failures++), this.#stopping.signal);
        any = true;
        continue;
      }
      if (!any) this.#waiter.wait();
    }
  }

  #giveUp(error) {
    this.#hopeless = error;
    this.#stopping.abort();
    this.#callAll();
  }

  #connectionOf(slot) {
    if (!slot.connection) {
      slot.connection = new Connection({ servers: this.#servers, log: this.#log, name: this.#claimant, silence: this.#silence });
      this.#connections.push(slot.connection);
    }
    return slot.connection;
  }

  // One transaction; whether there was a job.
  async #runOne(slot) {
    const connection = this.#connectionOf(slot);
    const client = await connection.client();
    if (this.#stopping.signal.aborted) return false;
    const task = { client, connection, job: null, abort: new Abort(), last: null, over: false, abandoned: false };
    const rolledBack = new Promise((resolve) => { task.rolledBack = resolve; });
    const stopWatching = connection.onceLost((error) => this.#lose(task, error));
    this.#tasks.add(task);
    try {
      await Promise.race([this.#transaction(task), rolledBack]);
      return task.job !== null;
    } catch (error) {
      if (task.abandoned) return false;
      error.lost = connection.lost(client);
      if (!error.lost) await connection.ask(client, 'ROLLBACK').catch(() => {});
      throw error;
    } finally {
      if (task.abandoned) await rolledBack; // or its session would be ended first
      stopWatching();
      this.#tasks.delete(task);
      this.#settled();
    }
  }

  #lose(task, error) {
    const timeout = TIMEOUTS[error?.code];
    const why = timeout ? `${timeout} has ended the session of the job: ${error.message}` : 'The connection was lost: what the job has done is rolled back';
    if (timeout && task.job !== null) this.#unwritten.set(keyOf(task.job), new Error(why, { cause: error }));
    task.abort.abort(new Lost(why));
  }

  async #transaction(task) {
    const ask = (text) => task.connection.ask(task.client, text);
    task.job = await this.#claim(task, ask);
    this.#claimed = true;
    if (task.job === null) {
      await ask('COMMIT'); // a claim also does what has fallen due
    } else if (this.#stopping.signal.aborted) {
      await ask('ROLLBACK');
    } else {
      this.#waiter.found();
      this.#callOne(); // where there is one, there may be more
      await this.#runJob(task);
    }
  }

  // Begins a transaction and claims a job; null if there is none.
  async #claim({ client, connection }, ask) {
    try {
      const [, { rows }] = await ask(this.#beginAndClaim);
      return jobsOfRows(rows)[0] ?? null;
    } catch (error) {
      if (!isUnreadable(error)) throw error;
    }
    await ask('ROLLBACK');
    const [, { rows: [keys] }] = await ask(this.#beginAndClaimKeys);
    return keys ? readJob({ query: (...args) => connection.ask(client, ...args) }, keys) : null;
  }

  async #runJob(task) {
    const { client, job } = task;
    const own = guarded(client, task);
    const ours = ourClient(task);
    // The attempt whose end could not be written fails, and its handler is not called again and again.
    const unwritten = this.#unwritten.get(keyOf(job));
    const begin = performance.now();
    let outcome = unwritten ? failed(unwritten) : await runJob(this.#worker, job, {
      db: own,
      client: own,
      signal: task.abort.signal,
      wasStopped: () => task.abort.stopped,
      isStopping: () => this.#stopping.signal.aborted,
    });
    if (task.abandoned) return; // the time to stop had passed
    task.over = true;
    if (!outcome.rollback) outcome = await this.#endWork(ours, task.connection.session, outcome);
    let written;
    try {
      written = await writeOutcome(ours, job, outcome, { log: this.#log, undo: () => ours.query('ROLLBACK TO SAVEPOINT queue_jobs_work') });
      await ours.query('COMMIT');
      this.#unwritten.delete(keyOf(job));
    } catch (error) {
      if (!error.lost) this.#unwritten.set(keyOf(job), notWritten(error));
      throw error;
    }
    logOutcome(this.#log, job, written, begin);
  }

  // Checks constraints, or else their errors would come at COMMIT, and nothing would be left of the attempt:
  // they may take as long as the handler. Then the session has its own role again, whichever the handler has set.
  async #endWork(client, session, outcome) {
    try {
      await client.query(`SET CONSTRAINTS ALL IMMEDIATE; ${setRole(session)}`, undefined, { within: LONGEST });
      return outcome;
    } catch (error) {
      if (error.lost) throw error;
      return failed(error);
    }
  }

  async stop(soft, hard) {
    this.#stopping.abort();
    this.#callAll();
    await this.#allEnded(soft);
    for (const task of this.#tasks) task.abort.abort(new Stopping());
    await this.#allEnded(hard);
    await Promise.all([...this.#tasks].map((task) => this.#abandon(task)));
    await Promise.all(this.#connections.map((connection) => connection.close()));
    await this.#finished;
  }

  // An explicit ROLLBACK frees the job at once; the end of a session in its middle would count against it.
  async #abandon(task) {
    task.over = true;
    task.abandoned = true;
    this.#log.warn({ event: 'given_back', job: task.job?.id, worker: task.job?.worker, attempt: task.job?.attempt }, 'not finished in time: the job is rolled back');
    let done = false;
    const rolledBack = this.#rollBack(task).then(() => { done = true; });
    for (let n = 0; !done && n < CANCELS; n++) {
      if (!(await task.connection.cancel())) break;
      await Promise.race([rolledBack, sleep(CANCEL_EVERY)]);
    }
    task.rolledBack();
    await task.connection.close();
  }

  // A request to cancel the handler's statement can come late, and hit the ROLLBACK.
  async #rollBack({ client, last }) {
    await Promise.resolve(last).catch(() => {});
    for (;;) {
      try {
        return await client.query('ROLLBACK');
      } catch (error) {
        if (error.code !== CANCELLED) return undefined; // its session is lost
      }
    }
  }

  async #allEnded(limit) {
    let over = false;
    limit.then(() => { over = true; this.#settled(); });
    while (this.#tasks.size > 0 && !over) await new Promise((resolve) => { this.#settled = resolve; });
  }
}
