// Transaction mode: exactly once. Claim, handler and completion are one transaction; each task has a
// connection of its own, which its handler is given.
import { beginAndClaimStatement, jobsOfRows } from './claim.js';
import { backoff, Closed, Connection, sleep } from './connection.js';
import { Abort, Lost, runJob, Stopping } from './job.js';
import { failed, isStale, logStale, writeOutcome } from './outcome.js';
import { Waiter } from './waiter.js';

// A handler's statement may be under way: it is cancelled, and a request that came too early is sent again.
const CANCEL_EVERY = 100;
const CANCELS = 50;
// SQLSTATE of a statement that such a request has ended.
const CANCELLED = '57014';

// The handler's transaction is the claim's: if it ended it, the job would be claimed again at once, or run
// as if by lease.
const ENDS_TRANSACTION = /^\s*(begin|start\s+transaction|commit|end|abort|rollback(?!\s+(work\s+|transaction\s+)?to\b)|prepare\s+transaction)\b/i;

// pg's client as a handler is given it.
function guarded(client, task) {
  return new Proxy(client, {
    get(target, name) {
      const value = target[name];
      if (name !== 'query') return typeof value === 'function' ? value.bind(target) : value;
      return (query, ...rest) => {
        if (task.over) return Promise.reject(new Error('The job has ended, and its transaction with it'));
        if (ENDS_TRANSACTION.test(query?.text ?? query))
          return Promise.reject(new Error('A handler does not begin or end the transaction: it is the one of its job. Use SAVEPOINT, or lease mode'));
        task.last = target.query(query, ...rest);
        return task.last;
      };
    },
  });
}

// The client for what follows the handler. Once the job is being rolled back nothing more is sent, for the
// ROLLBACK may come first, and each statement would be a transaction of its own: the caller waits for ever.
const unlessAbandoned = (task) => ({
  query: (...args) => (task.abandoned ? new Promise(() => {}) : task.client.query(...args)),
});

export class TransactionEngine {
  #worker;
  #log;
  #servers;
  #claimant;
  #beginAndClaim;
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

  constructor({ worker, servers, log, claimant, queues, concurrency }) {
    this.#worker = worker;
    this.#log = log;
    this.#servers = servers;
    this.#claimant = claimant;
    this.#beginAndClaim = beginAndClaimStatement({ claimant, queues });
    this.#concurrency = concurrency;
    this.#waitConnection = new Connection({ servers, log, name: claimant });
    this.#waiter = new Waiter({ connection: this.#waitConnection, queues, log, wake: () => this.#callOne() });
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
        if (!this.#claimed && this.#worker.isHopeless(error)) return this.#giveUp(error);
        if (!error.lost) this.#log.error({ event: 'error', error: error.message, code: error.code }, 'cannot run jobs');
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
      slot.connection = new Connection({ servers: this.#servers, log: this.#log, name: this.#claimant });
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
    const stopWatching = connection.onceLost(() => task.abort.abort(new Lost('The connection was lost: what the job has done is rolled back')));
    this.#tasks.add(task);
    try {
      await Promise.race([this.#transaction(task), rolledBack]);
      return task.job !== null;
    } catch (error) {
      if (task.abandoned) return false;
      connection.judge(client, error);
      error.lost = connection.lost(client);
      if (!error.lost) await client.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      if (task.abandoned) await rolledBack; // or its session would be ended first
      stopWatching();
      this.#tasks.delete(task);
      this.#settled();
    }
  }

  async #transaction(task) {
    const [, claim] = await task.client.query(this.#beginAndClaim);
    [task.job = null] = jobsOfRows(claim.rows);
    this.#claimed = true;
    if (task.job === null) {
      await task.client.query('COMMIT'); // a claim also does what has fallen due
    } else if (this.#stopping.signal.aborted) {
      await task.client.query('ROLLBACK');
    } else {
      this.#waiter.found();
      this.#callOne(); // where there is one, there may be more
      await this.#runJob(task);
    }
  }

  async #runJob(task) {
    const { client, job } = task;
    const own = guarded(client, task);
    const ours = unlessAbandoned(task);
    let outcome = await runJob(this.#worker, job, {
      db: own,
      client: own,
      signal: task.abort.signal,
      wasStopped: () => task.abort.stopped,
      isStopping: () => this.#stopping.signal.aborted,
    });
    if (task.abandoned) return; // the time to stop had passed
    task.over = true;
    if (!outcome.rollback) outcome = await this.#checkConstraints(ours, outcome);
    await this.#write(ours, job, outcome);
  }

  // Or else their errors would come at COMMIT, and nothing would be left of the attempt.
  async #checkConstraints(client, outcome) {
    try {
      await client.query('SET CONSTRAINTS ALL IMMEDIATE');
      return outcome;
    } catch (error) {
      return failed(error);
    }
  }

  async #write(client, job, outcome) {
    if (outcome.rollback) await client.query('ROLLBACK TO SAVEPOINT queue_jobs_work');
    try {
      await writeOutcome(client, job, outcome);
      await client.query('COMMIT');
    } catch (error) {
      if (isStale(error)) {
        logStale(this.#log, job, error);
        await client.query('ROLLBACK');
      } else if (!outcome.rollback && error.code) {
        await this.#write(client, job, failed(error));
      } else {
        throw error;
      }
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
    this.#log.warn({ event: 'given_back', job: task.job?.id, worker: task.job?.worker }, 'not finished in time: the job is rolled back');
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
