// One connection that is made again when it is lost: after a restart of the server, or with its new primary.
import net from 'node:net';
import pg from 'pg';
import { ofError } from './log.js';
import { ROLE } from './sql.js';

const FIRST_DELAY = 50;
const LONGEST_DELAY = 5000;
const CONNECT_WITHIN = 10_000;
const CANCEL_WITHIN = 10_000;
// Milliseconds without an answer. (A wait is answered after a minute at the latest.)
export const SILENCE = 120_000;
// When a connection has been idle for so long, TCP asks whether the other end is there yet.
const KEEPALIVE_AFTER = 30_000;

// Syntax, names, rights, values: it would be the same the next time.
const HOPELESS = /^(22|28|3D|3F|42|0A)...$/;
export const isHopeless = (error) => HOPELESS.test(error.code ?? '');

// The session is of no use any more: it was ended (57P01 to 57P05, and by a timeout 25P03 and 25P04), or it is
// one of a standby (25006).
const SESSION_IS_OVER = /^(08...|57P0[1-5]|25P0[34]|25006)$/;

export class Closed extends Error {
  constructor() {
    super('The connection was closed');
  }
}

export const sleep = (milliseconds, signal) => new Promise((resolve) => {
  if (signal?.aborted) return resolve();
  const timer = setTimeout(done, milliseconds);
  function done() {
    clearTimeout(timer);
    signal?.removeEventListener('abort', done);
    resolve();
  }
  signal?.addEventListener('abort', done);
});

// Longer and longer, and not all clients of a server at once.
export const backoff = (failures) => Math.min(FIRST_DELAY * 2 ** failures, LONGEST_DELAY) * (0.5 + Math.random() / 2);

export class Connection {
  #servers;
  #log;
  #name;
  #closing = new AbortController();
  #connected = null;      // a promise of a client of pg's
  #client = null;         // the one that has been connected last, until it is lost
  #session = null;        // its user and role, as they were when it was connected
  #turn = Promise.resolve();
  #nextServer = 0;
  #silence;
  #hadOne = false;        // a connection, at some time
  #onLost = () => {};

  // name: shown as application_name. silence: milliseconds after which a connection that does not answer
  // counts as lost.
  constructor({ servers, log, name, silence = SILENCE }) {
    this.#servers = servers;
    this.#log = log;
    this.#name = name;
    this.#silence = silence;
  }

  get closed() {
    return this.#closing.signal.aborted;
  }

  get session() {
    return this.#session;
  }

  // Whether what this client was asked last went wrong because the connection is lost.
  lost(client) {
    return client !== this.#client;
  }

  // Calls when the connection is lost next; returns what takes that back.
  onceLost(call) {
    this.#onLost = call;
    return () => { this.#onLost = () => {}; };
  }

  // The client, connected; waits until there is a server. Error: Closed; or what each server says that will
  // never take us, if none ever has.
  client() {
    if (!this.#connected) {
      const connected = this.#connect();
      this.#connected = connected;
      connected.catch(() => { if (this.#connected === connected) this.#connected = null; });
    }
    return this.#connected;
  }

  async #connect() {
    let hopeless = 0;       // servers in a row
    for (let failures = 0; !this.closed; failures++) {
      const server = this.#servers[this.#nextServer % this.#servers.length];
      try {
        const client = await this.#connectTo(server);
        if (!this.closed) return client;
        this.#drop(client);
      } catch (error) {
        this.#nextServer++;
        hopeless = isHopeless(error) ? hopeless + 1 : 0;
        if (!this.#hadOne && hopeless >= this.#servers.length) throw error;
        this.#log.warn({ event: 'disconnected', ...ofError(error) }, 'cannot connect');
        if (this.#nextServer % this.#servers.length === 0 || this.#servers.length === 1)
          await sleep(backoff(failures), this.#closing.signal);
      }
    }
    throw new Closed();
  }

  async #connectTo(server) {
    const client = new pg.Client({ application_name: this.#name, keepAlive: true, keepAliveInitialDelayMillis: KEEPALIVE_AFTER, connectionTimeoutMillis: CONNECT_WITHIN, ...server });
    const lose = (error) => this.#lose(client, error);
    client.on('error', lose);
    client.on('end', lose);
    client.on('notice', (notice) => this.#logNotice(notice));
    // pg's own limit is for the connection, and not for what is asked next.
    const timer = setTimeout(() => this.#drop(client), CONNECT_WITHIN);
    try {
      await client.connect();
      const { rows: [session] } = await client.query(`SELECT pg_is_in_recovery() AS standby, ${ROLE}`);
      if (session.standby) throw new Error('this server is a standby');
      this.#session = session;
    } catch (error) {
      this.#drop(client);
      throw error;
    } finally {
      clearTimeout(timer);
    }
    this.#hadOne = true;
    this.#client = client;
    return client;
  }

  #logNotice({ severity, code, message, detail, hint }) {
    const level = { WARNING: 'warn', DEBUG: 'debug' }[severity] ?? 'info';
    this.#log[level]({ event: 'notice', severity, sqlstate: code, detail, hint }, message);
  }

  #lose(client, error) {
    if (client !== this.#client) return;
    this.#client = null;
    this.#connected = null;
    this.#drop(client);
    this.#onLost(error);
    if (!this.closed) this.#log.warn({ event: 'disconnected', ...ofError(error) }, 'connection lost');
  }

  // Ends a session at once, whatever it does.
  #drop(client) {
    client.end().catch(() => {});
    client.connection?.stream?.destroy();
  }

  // Notes what an error of a statement of this client says about the connection.
  judge(client, error) {
    if (SESSION_IS_OVER.test(error?.code ?? '')) this.#lose(client, error);
  }

  // One statement, after those before it. If the connection is lost meanwhile, the error has `lost`: whether
  // the statement was executed is not known.
  query(text, values) {
    const result = this.#turn.then(async () => this.ask(await this.client(), text, values));
    this.#turn = result.catch(() => {});
    return result;
  }

  // One statement of this client, at once. The connection counts as lost if there is no answer in time, or
  // if the answer is that the session is over.
  async ask(client, text, values, { within = this.#silence } = {}) {
    const timer = setTimeout(() => this.#lose(client, new Error(`no answer for ${within} ms`)), within);
    try {
      return await client.query(text, values);
    } catch (error) {
      this.judge(client, error);
      if (this.lost(client)) error.lost = true;
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  // Has the server end the statement that is being executed, as libpq's PQcancel() does. Resolves when the
  // server has heeded the request, for then it closes that connection; to false if it does not answer.
  cancel() {
    const client = this.#client;
    if (!client?.processID) return Promise.resolve(true);
    const request = Buffer.alloc(16);
    [16, 80877102, client.processID, client.secretKey].forEach((number, i) => request.writeInt32BE(number, i * 4));
    const socket = client.host.startsWith('/') ? net.connect(`${client.host}/.s.PGSQL.${client.port}`) : net.connect(client.port, client.host);
    return new Promise((resolve) => {
      socket.setTimeout(CANCEL_WITHIN, () => {
        resolve(false);
        socket.destroy();
      });
      socket.on('error', () => {});
      socket.on('close', () => resolve(true));
      socket.resume();
      socket.write(request);
    });
  }

  async close() {
    const client = this.#client;
    this.#closing.abort();
    this.#client = null;
    this.#connected = null;
    if (client) await Promise.race([client.end().catch(() => {}), sleep(1000)]).then(() => this.#drop(client));
  }
}
