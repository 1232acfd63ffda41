import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { enqueue } from '../lib/index.js';
import { newDatabase, untilJob } from './help.mjs';

const COMMAND = fileURLToPath(new URL('../bin/queue_jobs.js', import.meta.url));
const { name, client } = await newDatabase();
await client.query("SELECT queue_jobs.define_worker('hello')");
const folder = await mkdtemp(path.join(os.tmpdir(), 'queue_jobs-'));
after(() => rm(folder, { recursive: true }));

async function module(text) {
  const file = path.join(folder, 'worker.mjs');
  await writeFile(file, text);
  return file;
}

// Its process, its output, and a promise of its exit status.
function run(...args) {
  const child = spawn(process.execPath, [COMMAND, ...args], { env: { ...process.env, PGDATABASE: name }, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = { out: '', err: '' };
  child.stdout.on('data', (data) => { output.out += data; });
  child.stderr.on('data', (data) => { output.err += data; });
  return { child, output, status: new Promise((resolve) => { child.on('close', (code, signal) => resolve(code ?? signal)); }) };
}

for (const [title, text, ...options] of [
  ['handlers', 'export default { hello: (args) => `hello ${args.name}` };'],
  ['a function, and options', 'export default (worker) => worker.handle("hello", (args) => `hello ${args.name}`);',
    '--transaction', '--queues', 'hello, other', '--concurrency', '2', '--stop-within', '60', '--name', 'one'],
  ['the options of all clients', 'export default { hello: (args) => `hello ${args.name}` };',
    '--mode', 'lease', '--queues', 'hello,other worker=hello,other', '--concurrency', '2', '--batch', '6', '--lease', '60', '--grace', '60', '--name', 'one'],
]) {
  test(`works with ${title} until SIGTERM`, async () => {
    const { child, output, status } = run(await module(text), ...options);
    const row = await untilJob(client, await enqueue(client, 'hello', { name: 'world' }), 'completed');
    assert.equal(row.result, 'hello world');
    child.kill('SIGTERM');
    assert.equal(await status, 0);
    const lines = output.err.trim().split('\n').map((line) => JSON.parse(line));
    if (options.includes('--batch')) {
      assert.deepEqual([lines[0].mode, lines[0].concurrency, lines[0].queues], ['lease', 2, ['hello', 'other', 'worker=hello,other']]);
      assert.equal(lines.find((line) => line.event === 'stopping').grace, 60);
    }
    const events = lines.map((line) => line.event);
    assert.deepEqual(events.filter((event) => ['started', 'stopping', 'stopped'].includes(event)), ['started', 'stopping', 'stopped']);
  });
}

test('says what is wrong', async () => {
  for (const args of [[], ['a', 'b'], ['a', '--no-such'], ['a', '--concurrency', '0'], ['a', '--mode', 'leese'], ['a', '--batch', 'x']]) {
    const { output, status } = run(...args);
    assert.equal(await status, 2);
    assert.match(output.err, /Usage: queue_jobs MODULE/);
  }
  const none = run(await module('export const hello = 1;'));
  assert.equal(await none.status, 1);
  assert.match(none.output.err, /no default export/);
  const handlers = await module('export default { hello: () => {} };');
  for (const [args, message] of [[['--queues', 'urgancy=high'], /There is no attribute "urgancy".\nHINT: /], [['--transaction', '--database', 'postgres:///no_such_database'], /database "no_such_database" does not exist/]]) {
    const wrong = run(handlers, ...args);
    assert.equal(await wrong.status, 1);
    assert.match(wrong.output.err, message);
  }
  const help = run('--help');
  assert.equal(await help.status, 0);
  assert.match(help.output.out, /--grace SECONDS/);
});
