import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as queueJobs from '../lib/index.js';
import * as testing from '../lib/testing.js';
import { readFileSync } from 'node:fs';

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));

test('the types compile, allow what they should, and refuse what they should', () => {
  const { status, stdout } = spawnSync(process.execPath, [path('../node_modules/typescript/bin/tsc'), '-p', path('types')], { encoding: 'utf8' });
  assert.equal(status, 0, stdout);
});

for (const [file, module] of [['index', queueJobs], ['testing', testing]]) {
  test(`${file}.d.ts declares what ${file}.js exports`, () => {
    const text = readFileSync(path(`../types/${file}.d.ts`), 'utf8');
    const declared = [...text.matchAll(/^export (?:function|class) (\w+)/gm)].map((match) => match[1]);
    assert.deepEqual([...new Set(declared)].sort(), Object.keys(module).sort());
  });
}
