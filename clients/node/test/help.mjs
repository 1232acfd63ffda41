// What the tests share: a database of their own, on the server that PGHOST and so on name, and waiting for
// something to become true.
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import pg from 'pg';
import { child, jsonLog } from '../lib/log.js';

const LIMIT = 180_000;

export async function connect(database, options) {
  const client = new pg.Client({ database, ...options });
  client.on('error', () => {});
  await client.connect();
  return client;
}

// A database with the extension, which is dropped after the tests of this file; { name, client }.
export async function newDatabase(options = '') {
  const name = `node_${randomBytes(6).toString('hex')}`;
  const admin = await connect('postgres');
  await admin.query(`CREATE DATABASE ${name} ${options}`);
  const client = await connect(name);
  await client.query('CREATE EXTENSION queue_jobs');
  after(async () => {
    await client.end();
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.end();
  });
  return { name, client };
}

export async function until(condition, what = condition) {
  const end = Date.now() + LIMIT;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not true within ${LIMIT} ms: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

// A logger, and the lines that it was given.
export function recordedLog() {
  const lines = [];
  const log = child(jsonLog('debug', (line) => lines.push(JSON.parse(line))), {});
  return { log, lines, events: (event) => lines.filter((line) => line.event === event) };
}

export const job = async (client, id) => (await client.query('SELECT * FROM queue_jobs.job WHERE id = $1', [id])).rows[0];

export const untilJob = (client, id, ...states) =>
  until(async () => {
    const row = await job(client, id);
    return states.includes(row?.state) && row;
  }, `job ${id} is ${states}`);

// A promise, and what resolves it.
export function gate() {
  let open;
  const opened = new Promise((resolve) => { open = resolve; });
  return { open, opened };
}

// A socket in a folder, which leads to the server, until what is said there is swallowed: connections stay open, and nothing comes back.
export async function newProxy(t) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'proxy'));
  let silent = false;
  const sockets = [];
  const proxy = net.createServer((incoming) => {
    const outgoing = net.connect(`${process.env.PGHOST}/.s.PGSQL.${process.env.PGPORT}`);
    sockets.push(incoming, outgoing);
    const lead = (from, to) => {
      let lost = silent;
      from.on('data', (data) => {
        lost ||= silent;
        if (!lost) to.write(data);
      });
      from.on('end', () => { if (!lost && !silent) to.end(); });
      from.on('error', () => {});
    };
    lead(incoming, outgoing);
    lead(outgoing, incoming);
  }).listen(path.join(folder, '.s.PGSQL.5432'));
  t.after(async () => {
    proxy.close();
    sockets.forEach((socket) => socket.destroy());
    await rm(folder, { recursive: true });
  });
  return { folder, swallow: () => { silent = true; }, pass: () => { silent = false; } };
}
