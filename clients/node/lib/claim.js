// Claims: which jobs, and what comes with each.
import pg from 'pg';
import { parse } from './json.js';
import { ask, Values } from './sql.js';

const COLUMNS = ['id::text AS id', 'attempt', 'worker', 'queue', 'args::text AS args', 'context::text AS context', 'version',
  'priority', 'max_attempts', 'batch::text AS batch', 'cursor::text AS cursor', 'progress'];

const columns = (table) => COLUMNS.map((column) => `${table}.${column}`).join(', ');
// What says which job it is, and can always be read.
export const KEYS = 'j.id::text AS id, j.attempt';

// A name in a selector has none of its characters.
const SELECTABLE = /^[^,&|=!*\s][^,&|]*[^,&|\s]$|^[^,&|=!*\s]$/;

// The queues to claim from: those given, or else wherever jobs of these workers wait.
export function queuesFor(given, workers) {
  if (given?.length > 0) return [...given];
  const names = [...workers];
  return names.length > 0 && names.every((name) => SELECTABLE.test(name)) ? [`worker=${names.join(',')}`] : ['*'];
}

export function claimCall(values, { claimant, queues, lease }, most) {
  const leased = lease === undefined ? '' : `, ${values.add('interval', lease)}`;
  return `queue_jobs.claim(${values.add('text', claimant)}, ${values.add('text[]', queues)}, ${values.add('int', most)}${leased})`;
}

export function claimStatement(source, most, wanted = columns('j')) {
  const values = new Values();
  const text = `SELECT ${wanted} FROM ${claimCall(values, source, most)} AS j`;
  return [text, values.values];
}

// A transaction's beginning, its claim and the savepoint before its work: one round trip, and so without
// parameters.
export function beginAndClaimStatement({ claimant, queues }, wanted = columns('j')) {
  const names = queues.map((queue) => pg.escapeLiteral(queue)).join(', ');
  return `BEGIN; SELECT ${wanted} FROM queue_jobs.claim(${pg.escapeLiteral(claimant)}, ARRAY[${names}]::text[]) AS j; SAVEPOINT queue_jobs_work`;
}

// complete_many() and claim() in one statement: the commit that completes jobs is the one that claims the
// next. By the outer join nothing is claimed before they are completed.
export function completeAndClaimStatement(ended, source, most) {
  const values = new Values();
  const call = `queue_jobs.complete_many(${values.add('bigint[]', ended.map((one) => one.job.id))}, ${values.add('int[]', ended.map((one) => one.job.attempt))}, ${values.addJsonText('jsonb[]', ended.map((one) => one.outcome.result))})`;
  if (most === 0) return [`SELECT ${call}`, values.values];
  const text = `SELECT ${columns('j')} FROM ${call} LEFT JOIN ${claimCall(values, source, most)} AS j ON true`;
  return [text, values.values];
}

// A job that cannot be read has the error as `unreadable`: it fails, and no other does.
function jobOfRow(row) {
  try {
    return { ...row, args: parse(row.args), context: parse(row.context), cursor: parse(row.cursor) };
  } catch (unreadable) {
    return { ...row, args: null, context: null, cursor: null, unreadable };
  }
}

export const jobsOfRows = (rows) => rows.filter((row) => row.id !== null).map(jobOfRow);

// The server could not send the text of one of the jobs: bytes that are no characters (in a database that
// is SQL_ASCII), or characters that UTF-8 has not.
export const isUnreadable = (error) => ['22021', '22P05'].includes(error.code);

// A claimed job, by statements of its own.
export async function readJob(db, { id, attempt }) {
  let unreadable = new Error('the view shows no such job');
  try {
    const [job] = jobsOfRows(await ask(db, `SELECT ${columns('j')} FROM queue_jobs.job AS j WHERE j.id = $1::text::bigint`, [id]));
    if (job) return job;
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    unreadable = error;
  }
  return { id, attempt, worker: null, queue: null, context: null, unreadable };
}
