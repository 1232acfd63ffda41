// Waits for jobs by a connection of its own, so that nothing polls.
import { backoff, sleep } from './connection.js';
import { ofError } from './log.js';

const LONGEST_WAIT = 60_000;
// Where other processes are quicker, each of their jobs wakes this one for nothing. From so many times in a
// row on it takes a breath.
const MANY_FALSE = 20;
const BREATH = 20;
// A request to cancel that comes before the statement does nothing, so it is sent again.
const CANCEL_EVERY = 20;
const CANCELS = 50;

export class Waiter {
  #connection;
  #queues;
  #log;
  #wake;
  #timeout;
  #waiting = null;        // a promise
  #stopped = new AbortController();
  #false = 0;

  // wake: called when there may be something to claim. silence: as the connection has it; a wait is answered
  // in half of that.
  constructor({ connection, queues, log, wake, silence }) {
    this.#connection = connection;
    this.#timeout = `${Math.min(LONGEST_WAIT, silence / 2)} milliseconds`;
    this.#queues = queues;
    this.#log = log;
    this.#wake = wake;
  }

  // A claim has found something.
  found() {
    this.#false = 0;
  }

  // Begins to wait, unless it does already.
  wait() {
    if (this.#waiting || this.#stopped.signal.aborted) return;
    this.#waiting = this.#untilThereMayBeJobs().finally(() => {
      this.#waiting = null;
      if (!this.#stopped.signal.aborted) this.#wake();
    });
  }

  async #untilThereMayBeJobs() {
    if (this.#false++ >= MANY_FALSE) await sleep(BREATH, this.#stopped.signal);
    for (let failures = 0; !this.#stopped.signal.aborted; failures++) {
      try {
        await this.#connection.query('CALL queue_jobs.wait_for_jobs($1::text[], $2::interval)', [this.#queues, this.#timeout]);
        return;
      } catch (error) {
        if (this.#stopped.signal.aborted || this.#connection.closed) return;
        if (error.code === '57014') return; // a statement_timeout that is shorter than ours
        if (!error.lost) this.#log.error({ event: 'error', ...ofError(error) }, 'cannot wait for jobs');
        await sleep(backoff(failures), this.#stopped.signal);
      }
    }
  }

  async stop() {
    this.#stopped.abort();
    for (let n = 0; this.#waiting && n < CANCELS; n++) {
      if (!(await this.#connection.cancel())) break;
      await Promise.race([this.#waiting, sleep(CANCEL_EVERY)]);
    }
  }
}
