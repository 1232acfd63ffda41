// How statements are sent. Every parameter is text, cast in SQL: so they mean the same through each driver
// and pooler, whether it sends types or not. And ids come back as text, exact whatever the driver makes of
// a bigint.
import pg from 'pg';
import { stringify } from './json.js';

// The rows of a statement, by a pg client, pool or transaction, or by an adapter (adapters.js).
export async function ask(db, text, values = []) {
  const answer = await db.query(text, values);
  return Array.isArray(answer) ? answer : answer.rows;
}

// A value as text, whatever it does when it is asked for that.
export function textOf(value) {
  for (const say of [String, (one) => Object.prototype.toString.call(one)]) {
    try {
      return say(value);
    } catch {
      // the next one
    }
  }
  return `(${typeof value} that has no text)`;
}

export function idText(id) {
  const text = String(id);
  if (typeof id === 'number' ? !Number.isSafeInteger(id) || id < 0 : !/^\d{1,19}$/.test(text))
    throw new TypeError(`${text} is no id: give the string or BigInt that you got`);
  return text;
}

// A number is milliseconds, as everywhere in JavaScript; a string is PostgreSQL's interval.
export function interval(value) {
  if (typeof value === 'string') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return `${value} milliseconds`;
  throw new TypeError(`${textOf(value)} is no interval: give milliseconds, or a string such as '5 min'`);
}

const timestamp = (value) => {
  if (!(value instanceof Date)) return String(value);
  return value.toISOString();
};

// As an array literal; null is NULL.
const array = (write) => (items) =>
  `{${[...items].map((item) => (item === null ? 'NULL' : `"${write(item).replace(/["\\]/g, '\\$&')}"`)).join(',')}}`;

// How a value of each SQL type is written as text.
const WRITE = {
  text: String,
  int: String,
  boolean: String,
  float8: String,
  bigint: idText,
  jsonb: stringify,
  interval,
  timestamptz: timestamp,
  'bigint[]': (ids) => `{${[...ids].map(idText).join(',')}}`,
  'int[]': array(String),
  'timestamptz[]': array(timestamp),
  'text[]': array(String),
  'jsonb[]': array(stringify),
};

// The parameters of one statement.
export class Values {
  values = [];

  add(type, value) {
    this.values.push(value === null || value === undefined ? null : WRITE[type](value));
    return `$${this.values.length}::text::${type}`;
  }

  // What stands as JSON text already: one, or for jsonb[] several.
  addJsonText(type, text) {
    this.values.push(type === 'jsonb[]' ? array(String)(text) : text);
    return `$${this.values.length}::text::${type}`;
  }
}

// The options that are given, as named arguments: "delay => $3::text::interval". known: { option: [SQL
// name, type] }.
export function namedArguments(values, known, options = {}) {
  const text = [];
  for (const [option, value] of Object.entries(options)) {
    if (!Object.hasOwn(known, option)) throw new TypeError(`There is no option ${option}: ${Object.keys(known).join(', ')}`);
    if (value === undefined || value === null) continue;
    const [name, type] = known[option];
    text.push(`, ${name} => ${values.add(type, value)}`);
  }
  return text.join('');
}

// The user and the role that a session has.
export const ROLE = "session_user::text AS user, pg_catalog.current_setting('role') AS role";

// Gives them back to it. Set for this transaction alone, they would give way to the handler's after it.
export const setRole = ({ user, role }) =>
  `SELECT pg_catalog.set_config('session_authorization', ${pg.escapeLiteral(user)}, false), pg_catalog.set_config('role', ${pg.escapeLiteral(role)}, false)`;
