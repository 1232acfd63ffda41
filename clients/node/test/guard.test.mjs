import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endsTransaction } from '../lib/guard.js';

const ENDING = ['BEGIN', ' begin', 'START  TRANSACTION', 'start/* */transaction', 'COMMIT', 'End', 'abort', 'ROLLBACK', 'rollback work', 'ROLLBACK AND CHAIN', "prepare transaction 'a'",
  "commit prepared 'a'", '/* x */ COMMIT', '/* /* x */ */ -- y\n commit', ';;commit', 'SELECT 1; COMMIT', "SELECT ';', $$;$$, $a$ $$ $a$, E'\\';', \";\"; ROLLBACK", "SELECT 'it''s'; END",
  "SELECT 'a\\'; COMMIT", 'SELECT 1;\u00a0COMMIT;', 'SELECT $1; COMMIT', 'SELECT a$1$; COMMIT; SELECT b$1$'];
const OTHERS = ['SELECT 1', 'SAVEPOINT commit', 'ROLLBACK TO a', 'rollback work to savepoint a', 'ROLLBACK /* */ TRANSACTION TO a', 'RELEASE a', "SELECT 'x; COMMIT'", '-- ; COMMIT', '/* ; */ SELECT 1 /* ; COMMIT',
  'DO $$ BEGIN NULL; COMMIT; END $$', "SELECT E'\\'; COMMIT'", "SELECT E'a''\\'; COMMIT'", 'SELECT ";COMMIT"', 'CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END', 'SELECT 1; committed', 'PREPARE a AS SELECT 1',
  'SELECT 1 AS end', 'SELECT $a$; COMMIT; $b$ $a$', '', undefined];

test('statements that begin or end a transaction are told from others', () => {
  for (const text of ENDING) assert.equal(endsTransaction(text), true, text);
  for (const text of OTHERS) assert.equal(endsTransaction(text), false, text);
});

test('patterns over text that others have written take as long as the text', () => {
  for (const text of ['-- \n'.repeat(1_000_000), '/*'.repeat(1_000_000), "'".repeat(1_000_001), '$a'.repeat(1_000_000), `E'${'\\'.repeat(1_000_001)}`, ' '.repeat(3_000_000), 'begin '.repeat(500_000)]) {
    const begin = performance.now();
    endsTransaction(`SELECT commit; ${text}`);
    assert.ok(performance.now() - begin < 20_000);
  }
});
