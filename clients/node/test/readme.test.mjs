// The examples of README.md and docs/how-to/node.md, in their order: sql is executed, a js block is the
// file that its first line names. Files called worker are run by `npx queue_jobs`, with the options that
// the text gives; those called …test.mjs by node --test; others by node.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { newDatabase, until } from './help.mjs';

const here = (relative) => fileURLToPath(new URL(relative, import.meta.url));

function blocks(text) {
  return [...text.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, body]) => ({ language, body, file: /^\/\/ (\S+\.mjs)\n/.exec(body)?.[1] }));
}

// A folder in which `npm install …/clients/node pg` has been run, as far as a program can tell.
async function project() {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'queue_jobs-'));
  after(() => rm(folder, { recursive: true }));
  await mkdir(path.join(folder, 'node_modules'));
  await symlink(here('..'), path.join(folder, 'node_modules/queue_jobs'));
  await symlink(here('../node_modules/pg'), path.join(folder, 'node_modules/pg'));
  return folder;
}

function start(database, folder, args) {
  // Or node --test would take itself for a part of this test.
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  const child = spawn(process.execPath, args, { cwd: folder, env: { ...env, PGDATABASE: database, QUEUE_JOBS_LOG: 'info' }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (data) => { output += data; });
  child.stderr.on('data', (data) => { output += data; });
  return { child, ended: new Promise((resolve) => { child.on('close', (code) => resolve({ code, output })); }) };
}

async function runToEnd(database, folder, args) {
  const { code, output } = await start(database, folder, args).ended;
  assert.equal(code, 0, output);
}

// Runs the worker until nothing is left to be done.
async function work({ name, client }, folder, options) {
  const { child, ended } = start(name, folder, [here('../bin/queue_jobs.js'), 'worker.mjs', ...options]);
  const counted = "SELECT count(*) FILTER (WHERE state NOT IN ('completed')) AS rest, count(*) AS all FROM queue_jobs.job";
  await until(async () => {
    const { rows: [row] } = await client.query(counted);
    return row.all !== '0' && row.rest === '0';
  });
  child.kill('SIGTERM');
  const { code, output } = await ended;
  assert.equal(code, 0, output);
}

async function runExamples(document) {
  const database = await newDatabase();
  const folder = await project();
  const text = await readFile(here(document), 'utf8');
  const all = blocks(text);
  for (const { language, body, file } of all) {
    if (language === 'sql') await database.client.query(body);
    if (language === 'js') await writeFile(path.join(folder, file), body);
  }
  for (const { file } of all.filter((block) => block.file && block.file !== 'worker.mjs'))
    await runToEnd(database.name, folder, file.endsWith('.test.mjs') ? ['--test', file] : [file]);
  const [, options] = /^npx queue_jobs worker\.mjs(.*?)(?:#.*)?$/m.exec(text);
  await work(database, folder, options.trim().split(/\s+/).filter(Boolean));
  return database.client;
}

test('README.md', async () => {
  const client = await runExamples('../README.md');
  const { rows } = await client.query('SELECT worker, result FROM queue_jobs.job');
  assert.deepEqual(rows, [{ worker: 'send_mail', result: { status: 250 } }]);
});

test('docs/how-to/node.md', async () => {
  const client = await runExamples('../../../docs/how-to/node.md');
  const { rows: [{ paid }] } = await client.query('SELECT paid FROM orders WHERE id = 1');
  assert.equal(paid, true);
  const { rows: [{ result }] } = await client.query("SELECT result FROM queue_jobs.job WHERE worker = 'report'");
  assert.equal(result, 2);
});
