// The enqueuer of the protocol suite (test/clients/README.md).
import readline from 'node:readline';
import pg from 'pg';
import { enqueue } from '../lib/index.js';
import { parse } from '../lib/json.js';

const client = new pg.Client();
await client.connect();

const optionOf = (parameter) => parameter.replace(/_(.)/g, (_, letter) => letter.toUpperCase());

await client.query('BEGIN');
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (line.trim() === '') continue;
  const { worker, args, ...parameters } = parse(line);
  const options = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [optionOf(name), value]));
  console.log(await enqueue(client, worker, args, options));
}
await client.query('COMMIT');
await client.end();
