// What the tests share: a database of their own, on the server that PGHOST and so on name, and waiting for
// something to become true.
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import pg from 'pg';
import { child, jsonLog } from '../lib/log.js';

const LIMIT = 180_000;

export async function connect(database) {
  const client = new pg.Client({ database });
  client.on('error', () => {});
  await client.connect();
  return client;
}

// A database with the extension, which is dropped after the tests of this file; { name, client }.
export async function newDatabase() {
  const name = `node_${randomBytes(6).toString('hex')}`;
  const admin = await connect('postgres');
  await admin.query(`CREATE DATABASE ${name}`);
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
