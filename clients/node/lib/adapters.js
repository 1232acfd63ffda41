// Enqueue in the transaction of what you have, if it is not pg. An adapter is one method, query(text,
// values), which returns the rows, or an object that has them as `rows`; pg's clients, pools and
// transactions are adapters themselves.

// Calls for each piece of text between $1, $2 and so on, and for each of these.
function split(text, onText, onParameter) {
  text.split(/\$(\d+)/).forEach((piece, i) => (i % 2 === 0 ? onText(piece) : onParameter(Number(piece) - 1)));
}

// A knex, or a transaction of it.
export function fromKnex(knex) {
  return {
    async query(text, values = []) {
      let sql = '';
      const bindings = [];
      split(text, (piece) => { sql += piece.replaceAll('?', '\\?'); }, (n) => { sql += '?'; bindings.push(values[n]); });
      return (await knex.raw(sql, bindings)).rows;
    },
  };
}

// A Kysely, or a transaction of it.
export function fromKysely(kysely) {
  return {
    async query(text, values = []) {
      const query = { kind: 'RawNode', sqlFragments: [text], parameters: [] };
      return (await kysely.executeQuery({ sql: text, parameters: values, query, queryId: { queryId: '' } })).rows;
    },
  };
}

// A database of Drizzle's, or a transaction of it; and `sql`, which drizzle-orm exports.
export function fromDrizzle(database, sql) {
  return {
    async query(text, values = []) {
      const chunks = [];
      split(text, (piece) => chunks.push(sql.raw(piece)), (n) => chunks.push(sql`${values[n]}`));
      const answer = await database.execute(sql.join(chunks));
      return Array.isArray(answer) ? answer : answer.rows;
    },
  };
}

// A PrismaClient, or the client of an interactive transaction.
export function fromPrisma(prisma) {
  return {
    query: (text, values = []) => prisma.$queryRawUnsafe(text, ...values),
  };
}
