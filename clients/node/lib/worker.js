// A process's worker loop: handlers by the name of their worker, middleware, start and stop. What claims
// for it is an engine: lease.js or transaction.js.
import { randomBytes } from 'node:crypto';
import os from 'node:os';
import { queuesFor } from './claim.js';
import { SILENCE, sleep } from './connection.js';
import { LeaseEngine } from './lease.js';
import { child, jsonLog, ofError } from './log.js';
import { servers } from './servers.js';
import { interval } from './sql.js';
import { TransactionEngine } from './transaction.js';

const DEFAULTS = {
  connection: undefined,
  queues: undefined,
  mode: 'lease',
  concurrency: 10,
  prefetch: 0,
  lease: '5 min',
  stopWithin: 25_000,
  silence: SILENCE,
  name: undefined,
  log: undefined,
};

// Handlers that look at their signal have this part of the time to stop left when it is aborted.
const LAST_PART = 0.2;

// setTimeout() takes no more.
const LONGEST_TIMER = 2 ** 31 - 1;

function checked(given) {
  for (const option of Object.keys(given))
    if (!Object.hasOwn(DEFAULTS, option)) throw new TypeError(`A worker has no option ${option}: ${Object.keys(DEFAULTS).join(', ')}`);
  const options = { ...DEFAULTS };
  for (const [option, value] of Object.entries(given)) if (value !== undefined && value !== null) options[option] = value;
  if (!['lease', 'transaction'].includes(options.mode)) throw new TypeError(`mode is "lease" or "transaction", not ${options.mode}`);
  if (!Number.isInteger(options.concurrency) || options.concurrency < 1) throw new TypeError('concurrency is a number from 1 on');
  if (!Number.isInteger(options.prefetch) || options.prefetch < 0) throw new TypeError('prefetch is a number from 0 on');
  if (options.concurrency + options.prefetch > 10_000) throw new TypeError('concurrency and prefetch are 10,000 together at most');
  if (!(options.stopWithin >= 0)) throw new TypeError('stopWithin is a number of milliseconds');
  if (!(options.silence >= 1) || options.silence > LONGEST_TIMER) throw new TypeError('silence is a number of milliseconds');
  options.lease = interval(options.lease);
  return options;
}

export class Worker {
  handlers = new Map();
  middleware = [];
  #options;
  #engine = null;
  #running = null;
  #stopped = null;

  constructor(options = {}) {
    this.#options = checked(options);
    const { name } = this.#options;
    // A name of its own for each start: under one that is used again the jobs of a dead process would be
    // kept alive.
    this.name = `${name ?? os.hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`;
    this.log = child(this.#options.log ?? jsonLog(), { claimant: this.name });
  }

  // handle(name, handler), or handle({ name: handler, … }); handler(args, ctx) returns the job's result.
  handle(name, handler) {
    const entries = typeof name === 'string' ? [[name, handler]] : Object.entries(name);
    for (const [one, own] of entries) {
      if (typeof own !== 'function') throw new TypeError(`The handler of ${one} is no function`);
      this.handlers.set(one, own);
    }
    return this;
  }

  // middleware(ctx, next), around each handler; the first one is the outermost.
  use(middleware) {
    this.middleware.push(middleware);
    return this;
  }

  // Begins to work. Returns a promise that settles when it has ended, by stop() or by an error that would
  // never go away.
  start() {
    if (this.#running) return this.#running;
    if (this.handlers.size === 0) throw new Error('There is no handler: worker.handle(name, handler)');
    const { mode, connection, queues, lease, concurrency, prefetch, silence } = this.#options;
    const from = queuesFor(queues, this.handlers.keys());
    const Engine = mode === 'transaction' ? TransactionEngine : LeaseEngine;
    this.#engine = new Engine({
      worker: this,
      servers: servers(connection),
      log: this.log,
      claimant: this.name,
      queues: from,
      lease,
      concurrency,
      prefetch,
      silence,
    });
    this.log.info({ event: 'started', mode, concurrency, queues: from }, 'started');
    this.#running = this.#engine.run();
    this.#running.catch((error) => this.log.error({ event: 'refused', ...ofError(error), detail: error.detail, hint: error.hint }, 'ended: to try again would not help'));
    return this.#running;
  }

  // Claims nothing more, and gives back at once what it has not begun. A handler that runs has `stopWithin`
  // milliseconds to finish: near their end its signal is aborted, and after them its job is given back.
  stop() {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop() {
    if (!this.#running) return;
    const { stopWithin } = this.#options;
    this.log.info({ event: 'stopping', grace: stopWithin / 1000 }, 'stopping');
    const limits = new AbortController();
    const soft = sleep(stopWithin * (1 - LAST_PART), limits.signal);
    const hard = sleep(stopWithin, limits.signal);
    try {
      await this.#engine.stop(soft, hard);
      await this.#running;
    } finally {
      limits.abort();
      this.log.info({ event: 'stopped' }, 'stopped');
    }
  }

  // start(), until SIGTERM or SIGINT stop it.
  async run() {
    const stop = () => { this.stop().catch(() => {}); };
    const signals = ['SIGTERM', 'SIGINT'];
    signals.forEach((signal) => process.on(signal, stop));
    try {
      await this.start();
      await this.#stopped;
    } finally {
      signals.forEach((signal) => process.off(signal, stop));
    }
  }
}
