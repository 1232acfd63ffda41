import assert from 'node:assert/strict';
import { test } from 'node:test';
import { servers } from '../lib/servers.js';

test('a URL of libpq names several hosts', () => {
  assert.deepEqual(servers('postgresql://app:x@one:1,two:2/shop?target_session_attrs=read-write'), [
    { connectionString: 'postgresql://app:x@one:1/shop' },
    { connectionString: 'postgresql://app:x@two:2/shop' },
  ]);
  assert.deepEqual(servers('postgres:///shop?host=/tmp/a,/tmp/b&port=1,2&user=u'), [
    { connectionString: 'postgres:///shop?host=%2Ftmp%2Fa&port=1&user=u' },
    { connectionString: 'postgres:///shop?host=%2Ftmp%2Fb&port=2&user=u' },
  ]);
  assert.deepEqual(servers('postgres://app@one/shop'), [{ connectionString: 'postgres://app@one/shop' }]);
});

test('so do a configuration, an array and PGHOST', (t) => {
  assert.deepEqual(servers({ host: 'one,two', port: '1,2', user: 'u' }), [
    { host: 'one', port: 1, user: 'u' },
    { host: 'two', port: 2, user: 'u' },
  ]);
  assert.deepEqual(servers([{ host: 'one' }, 'postgres://two/shop']), [{ host: 'one' }, { connectionString: 'postgres://two/shop' }]);
  const { PGHOST, PGPORT, DATABASE_URL } = process.env;
  t.after(() => {
    for (const [name, value] of Object.entries({ PGHOST, PGPORT, DATABASE_URL }))
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
  });
  delete process.env.DATABASE_URL;
  Object.assign(process.env, { PGHOST: 'one,two', PGPORT: '1' });
  assert.deepEqual(servers(), [{ host: 'one', port: 1 }, { host: 'two', port: 1 }]);
});
