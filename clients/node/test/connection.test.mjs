import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { Connection } from '../lib/connection.js';
import { newDatabase, recordedLog, until } from './help.mjs';

const { name, client } = await newDatabase();
const CANCEL_REQUEST = 80877102;

test('cancel() resolves when the server has heeded the request', async (t) => {
  // A proxy in which a request to cancel stays until `pass` is called.
  const folder = await mkdtemp(path.join(os.tmpdir(), 'proxy'));
  let pass = null;
  const proxy = net.createServer((incoming) => incoming.once('data', (first) => {
    const connect = () => {
      const outgoing = net.connect(`${process.env.PGHOST}/.s.PGSQL.${process.env.PGPORT}`);
      outgoing.on('error', () => {});
      outgoing.write(first);
      incoming.pipe(outgoing).pipe(incoming);
    };
    incoming.on('error', () => {});
    if (first.readInt32BE(4) === CANCEL_REQUEST) pass = connect;
    else connect();
  })).listen(path.join(folder, '.s.PGSQL.5432'));
  const connection = new Connection({ servers: [{ host: folder, port: 5432, database: name }], log: recordedLog().log, name: 'cancels' });
  t.after(async () => {
    await connection.close();
    proxy.close();
    await rm(folder, { recursive: true });
  });

  const refused = assert.rejects(connection.query('SELECT pg_sleep(600)'), { code: '57014' });
  await until(async () => (await client.query("SELECT count(*) = 1 AS is FROM pg_stat_activity WHERE application_name = 'cancels' AND query LIKE '%sleep%'")).rows[0].is);
  let heeded = false;
  const cancelled = connection.cancel().then((answered) => { heeded = answered; });
  await until(() => pass);
  assert.equal(heeded, false);
  pass();
  await cancelled;
  assert.equal(heeded, true);
  await refused;
});
