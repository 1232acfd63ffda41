import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse, stringify } from '../lib/json.js';

test('integers that a number cannot hold are BigInt, and nothing else is', () => {
  const text = '{"a": 12345678901234567890, "b": [-9007199254740993, 9007199254740991], "c": "12345678901234567890 \\" -12345678901234567890", "d": 1.23456789012345678, "e": 1e2, "12345678901234567890": null}';
  assert.deepEqual(parse(text), {
    a: 12345678901234567890n,
    b: [-9007199254740993n, 9007199254740991],
    c: '12345678901234567890 " -12345678901234567890',
    d: 1.23456789012345678,
    e: 100,
    '12345678901234567890': null,
  });
  assert.equal(parse('12345678901234567890'), 12345678901234567890n);
  assert.equal(parse('0.1234567890123456789'), 0.12345678901234568);
  assert.equal(parse('12345678901234567890.5'), 12345678901234567890.5);
  assert.equal(parse(null), null);
});

test('a BigInt is written as a number', () => {
  assert.equal(stringify({ id: 12345678901234567890n, list: [-1n], text: '1n' }), '{"id":12345678901234567890,"list":[-1],"text":"1n"}');
  assert.equal(stringify(undefined), 'null');
  assert.throws(() => stringify(() => {}), /function cannot be written/);
});
