// Lease mode: at least once. One connection claims for all, and what has ended is completed by the
// statement that claims the next jobs; a second one waits when there is nothing to claim.
import { setImmediate as afterAllThatIsReady } from 'node:timers/promises';
import { claimStatement, completeAndClaimStatement, isUnreadable, jobsOfRows, KEYS, readJob } from './claim.js';
import { backoff, Closed, Connection, isHopeless, sleep } from './connection.js';
import { Abort, logOutcome, Lost, runJob, Stopping } from './job.js';
import { ofError } from './log.js';
import { givenBack, isStale, logStale, mayPass, writeOutcome } from './outcome.js';
import { Waiter } from './waiter.js';

// What is left to be written when the time to stop has passed has so long.
const LAST_WRITES = 5000;

export class LeaseEngine {
  #worker;
  #log;
  #connection;
  #waitConnection;
  #waiter;
  #source;
  #concurrency;
  #most;
  #inHand = new Map();    // by id, all that is claimed, until what has become of it is written
  #notBegun = [];
  #ended = [];
  #setAside = new Set();  // ids of jobs of which nothing can be written
  #running = 0;
  #mayHaveJobs = true;
  #stopping = new AbortController();
  #finished = null;
  #claimed = false;
  #uncertain = false;     // a claim is under way, or its answer was lost
  #wake = () => {};
  #woken = false;
  #settled = () => {};

  constructor({ worker, servers, log, claimant, queues, lease, concurrency, prefetch, silence }) {
    this.#worker = worker;
    this.#log = log;
    this.#source = { claimant, queues, lease };
    this.#concurrency = concurrency;
    this.#most = concurrency + prefetch;
    this.#connection = new Connection({ servers, log, name: claimant, silence });
    this.#waitConnection = new Connection({ servers, log, name: claimant, silence });
    this.#waiter = new Waiter({ connection: this.#waitConnection, queues, log, silence, wake: () => this.#mayClaim() });
  }

  #mayClaim() {
    this.#mayHaveJobs = true;
    this.#notify();
  }

  #notify() {
    this.#woken = true;
    this.#wake();
  }

  async #notified() {
    if (!this.#woken) await new Promise((resolve) => { this.#wake = resolve; });
    this.#woken = false;
    // All that ends at this moment goes in one statement.
    await afterAllThatIsReady();
  }

  // How many jobs it may claim now. Of many that are claimed before their turn one half is worked while the
  // other is claimed.
  get #room() {
    if (this.#stopping.signal.aborted) return 0;
    return Math.min(this.#most - this.#running - this.#notBegun.length, Math.max(this.#concurrency, Math.ceil(this.#most / 2)));
  }

  get #mustExchange() {
    return this.#ended.length > 0 || (this.#mayHaveJobs && this.#room > 0);
  }

  get #done() {
    return this.#stopping.signal.aborted && this.#inHand.size === 0;
  }

  // Until stop(). Error: what the first claim raises if it can never succeed.
  async run() {
    this.#finished = this.#run();
    await this.#finished;
  }

  async #run() {
    let heartbeat = null;
    try {
      heartbeat = setInterval(() => this.#beatAgain(), (await this.#milliseconds()) / 3);
      this.#notify();
      while (!this.#done) {
        await this.#notified();
        await this.#exchangeAll();
      }
    } catch (error) {
      if (!(error instanceof Closed)) throw error;
    } finally {
      clearInterval(heartbeat);
      await this.#waiter.stop();
      await Promise.all([this.#connection.close(), this.#waitConnection.close()]);
    }
  }

  // Until there is nothing to write and nothing to claim.
  async #exchangeAll() {
    for (let failures = 0; this.#mustExchange;) {
      this.#uncertain = true;
      try {
        const exchange = this.#exchange();
        exchange.catch(() => {}); // it is looked at below
        // The server works while the handlers do.
        await afterAllThatIsReady();
        this.#callNext();
        await exchange;
        this.#uncertain = false;
        failures = 0;
      } catch (error) {
        if (error instanceof Closed) throw error;
        if (!this.#claimed && isHopeless(error)) throw error;
        if (!error.lost) this.#log.error({ event: 'error', ...ofError(error) }, 'cannot claim');
        await sleep(backoff(failures++), this.#stopping.signal);
        if (error.lost) await this.#recover();
      }
      if (!this.#mustExchange) this.#callNext();
      await afterAllThatIsReady();
    }
  }

  // A claim may have been committed though its answer is lost: a heartbeat finds out.
  async #recover() {
    for (let failures = 0; !(await this.#beatAgain()); failures++) await sleep(backoff(failures));
    this.#uncertain = false;
    this.#mayHaveJobs = true;
  }

  // ---- claims and outcomes ----

  async #exchange() {
    const ended = this.#ended.splice(0);
    try {
      for (const item of ended.filter((one) => one.outcome.kind !== 'completed')) await this.#write(item);
      const completed = ended.filter((one) => one.outcome.kind === 'completed');
      const most = this.#room;
      const jobs = await this.#completeAndClaim(completed, most);
      if (most > 0) this.#took(jobs, most);
    } catch (error) {
      this.#ended.push(...ended.filter((item) => !item.written));
      throw error;
    }
  }

  // It is not in hand any more. (And may be claimed again in the same statement.)
  #isWritten(item) {
    item.written = true;
    if (this.#inHand.get(item.job.id) === item) this.#inHand.delete(item.job.id);
  }

  #took(jobs, most) {
    this.#claimed = true;
    this.#mayHaveJobs = jobs.length === most;
    if (jobs.length > 0) this.#waiter.found();
    jobs.forEach((job) => this.#take(job));
    if (!this.#mayHaveJobs) this.#waiter.wait();
  }

  async #completeAndClaim(completed, most) {
    if (completed.length > 0) {
      try {
        const { rows } = await this.#connection.query(...completeAndClaimStatement(completed, this.#source, most));
        completed.forEach((item) => this.#isWritten(item));
        for (const { job, outcome, begin } of completed) logOutcome(this.#log, job, outcome, begin);
        return most > 0 ? jobsOfRows(rows) : [];
      } catch (error) {
        if (error.lost || error instanceof Closed) throw error;
      }
      // One of them is to blame: nothing was completed, nothing claimed.
      for (const item of completed) await this.#write(item);
    }
    return most === 0 ? [] : this.#claim(most);
  }

  async #claim(most) {
    try {
      return jobsOfRows((await this.#connection.query(...claimStatement(this.#source, most))).rows);
    } catch (error) {
      if (!isUnreadable(error)) throw error;
    }
    return this.#read((await this.#connection.query(...claimStatement(this.#source, most, KEYS))).rows);
  }

  // Each by itself.
  async #read(keys) {
    const jobs = [];
    for (const one of keys) jobs.push(await readJob(this.#connection, one));
    return jobs;
  }

  async #write(item) {
    try {
      const written = await writeOutcome(this.#connection, item.job, item.outcome, { log: this.#log, patient: true });
      logOutcome(this.#log, item.job, written, item.begin);
    } catch (error) {
      if (error.lost || error instanceof Closed || mayPass(error)) throw error;
      if (isStale(error)) {
        logStale(this.#log, item, error);
      } else {
        this.#setAside.add(item.job.id);
        const { job, outcome } = item;
        this.#log.error({ event: 'error', job: job.id, worker: job.worker, attempt: job.attempt, outcome: outcome.kind, ...ofError(error) }, 'cannot even put the job back: it is left alone until this worker ends, and its lease');
      }
    }
    this.#isWritten(item);
  }

  // ---- handlers ----

  #take(job) {
    const item = { job, abort: new Abort(), begin: performance.now(), outcome: null, written: false };
    this.#inHand.set(job.id, item);
    if (this.#stopping.signal.aborted) this.#end(item, givenBack());
    else this.#notBegun.push(item);
  }

  #callNext() {
    while (this.#notBegun.length > 0 && this.#running < this.#concurrency) this.#call(this.#notBegun.shift());
  }

  async #call(item) {
    this.#running++;
    item.begin = performance.now();
    const outcome = await runJob(this.#worker, item.job, {
      db: this.#connection,
      client: undefined,
      signal: item.abort.signal,
      wasStopped: () => item.abort.stopped,
      isStopping: () => this.#stopping.signal.aborted,
    });
    if (item.outcome) return; // the time to stop had passed, and it was given back
    this.#running--;
    this.#end(item, outcome);
    this.#callNext();
  }

  #end(item, outcome) {
    item.outcome = outcome;
    if (this.#inHand.get(item.job.id) === item) this.#ended.push(item);
    else logStale(this.#log, item);
    this.#settled();
    this.#notify();
  }

  // ---- heartbeat ----

  async #milliseconds() {
    for (let failures = 0; ; failures++) {
      try {
        const { rows: [row] } = await this.#connection.query('SELECT extract(epoch FROM $1::interval) * 1000 AS ms', [this.#source.lease]);
        return Number(row.ms);
      } catch (error) {
        if (error instanceof Closed || isHopeless(error)) throw error;
        if (!error.lost) this.#log.error({ event: 'error', ...ofError(error) }, 'cannot begin');
        await sleep(backoff(failures), this.#stopping.signal);
      }
    }
  }

  // Whether it succeeded, or need not any more.
  async #beatAgain() {
    try {
      await this.#beat();
      return true;
    } catch (error) {
      if (error instanceof Closed) return true;
      if (!error.lost) this.#log.warn({ event: 'error', ...ofError(error) }, 'no heartbeat');
      return false;
    }
  }

  async #beat() {
    const before = [...this.#inHand.values()];
    const { rows } = await this.#connection.query('SELECT id::text AS id FROM queue_jobs.heartbeat($1) AS id', [this.#source.claimant]);
    const held = new Set(rows.map((row) => row.id));
    for (const item of before)
      if (!item.outcome && !held.has(item.job.id)) this.#lose(item);
    const unknown = [...held].filter((id) => !this.#inHand.has(id) && !this.#setAside.has(id));
    if (unknown.length > 0) await this.#adopt(unknown);
  }

  // Jobs that are ours, and of which we do not know.
  async #adopt(ids) {
    const { rows } = await this.#connection.query(`SELECT ${KEYS} FROM queue_jobs.job AS j WHERE j.id = ANY ($1::bigint[]) AND j.claimant = $2 AND j.state = 'executing'`, [ids, this.#source.claimant]);
    this.#log.info({ event: 'recovered', jobs: rows.length }, 'claimed when the connection was lost');
    for (const job of await this.#read(rows)) if (!this.#inHand.has(job.id)) this.#take(job);
    this.#callNext();
  }

  #lose(item) {
    if (this.#inHand.get(item.job.id) !== item) return;
    this.#inHand.delete(item.job.id);
    this.#notBegun = this.#notBegun.filter((one) => one !== item);
    this.#log.warn({ event: 'lost', job: item.job.id, attempt: item.job.attempt, worker: item.job.worker }, 'the job was cancelled, or its lease ran out');
    item.abort.abort(new Lost('The job was cancelled, or its lease ran out'));
    this.#notify(); // it may have been the last that stop() waits for
  }

  // ---- stop ----

  // soft, hard: promises. At the first, the handlers that run have their signals aborted; at the second,
  // their jobs are given back.
  async stop(soft, hard) {
    this.#stopping.abort();
    for (const item of this.#notBegun.splice(0)) this.#end(item, givenBack());
    this.#notify();
    await this.#allEnded(soft);
    const running = [...this.#inHand.values()].filter((item) => !item.outcome);
    for (const item of running) item.abort.abort(new Stopping());
    await this.#allEnded(hard);
    for (const item of running.filter((one) => !one.outcome)) {
      this.#log.warn({ event: 'given_back', job: item.job.id, worker: item.job.worker, attempt: item.job.attempt }, 'not finished in time: the job is given back');
      this.#running--;
      this.#end(item, givenBack());
    }
    // If the server is away there is time to wait for it, but for what it does not need to know.
    if (this.#inHand.size > 0 || this.#uncertain) await Promise.race([this.#finished, hard.then(() => sleep(LAST_WRITES))]);
    await this.#connection.close();
    await this.#finished;
  }

  async #allEnded(limit) {
    let over = false;
    limit.then(() => { over = true; this.#settled(); });
    while (this.#running > 0 && !over) await new Promise((resolve) => { this.#settled = resolve; });
  }
}
