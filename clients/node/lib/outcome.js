// What becomes of a claimed job, and how that is written: complete(), fail(), snooze(), continue_at() or
// wait_for_signal(), fenced by the attempt.
import { ask, Values } from './sql.js';
import { stringify } from './json.js';

const LONGEST_ERROR = 2000;
const LONGEST_DETAIL = 20_000;

// SQLSTATE of a job that this attempt does not have any more.
const NOT_YOURS = '55000';

// PostgreSQL's text has no character 0.
const clean = (text, longest) => text.replaceAll('\u0000', '\uFFFD').slice(0, longest);

function stacks(error) {
  let text = String(error.stack ?? error);
  for (let cause = error.cause, depth = 0; cause instanceof Error && depth < 10; cause = cause.cause, depth++)
    text += `\nCaused by: ${cause.stack ?? cause}`;
  return text;
}

// An error that was thrown, or whatever else was.
function describe(thrown) {
  if (!(thrown instanceof Error)) return { error: clean(String(thrown), LONGEST_ERROR), detail: null };
  // pg's own errors are called "error".
  const text = String(thrown).replace(/^error: /, '');
  return { error: clean(text, LONGEST_ERROR), detail: clean(stacks(thrown), LONGEST_DETAIL) };
}

export function completed(value) {
  return { kind: 'complete', result: value === undefined || value === null ? null : stringify(value) };
}

export function failed(thrown, { retryIn = null, final = false } = {}) {
  return { kind: 'fail', ...describe(thrown), retryIn, final, rollback: true };
}

export function discarded(reason) {
  return { kind: 'fail', error: clean(String(reason), LONGEST_ERROR), detail: null, retryIn: null, final: true };
}

export const snoozed = (delay) => ({ kind: 'snooze', delay });
export const givenBack = () => snoozed(0);
export const waiting = (name, timeout) => ({ kind: 'wait', name, timeout });
export const continued = (cursor, delay, progress) => ({ kind: 'continue', cursor: stringify(cursor), delay, progress });

function call(job, outcome, values) {
  const fence = `${values.add('bigint', job.id)}, ${values.add('int', job.attempt)}`;
  switch (outcome.kind) {
    case 'complete':
      return `complete(${fence}, ${values.addJsonText('jsonb', outcome.result)})`;
    case 'fail':
      return `fail(${fence}, ${values.add('text', outcome.error)}, ${values.add('text', outcome.detail)}, ${values.add('interval', outcome.retryIn)}, ${values.add('boolean', outcome.final)})`;
    case 'snooze':
      return `snooze(${fence}, ${values.add('interval', outcome.delay)})`;
    case 'wait':
      return `wait_for_signal(${fence}, ${values.add('text', outcome.name)}, ${values.add('interval', outcome.timeout)})`;
    case 'continue':
      return `continue_at(${fence}, ${values.addJsonText('jsonb', outcome.cursor)}, ${values.add('interval', outcome.delay)}, ${values.add('float8', outcome.progress)})`;
    default:
      throw new TypeError(`No such outcome: ${outcome.kind}`);
  }
}

export async function writeOutcome(db, job, outcome) {
  const values = new Values();
  await ask(db, `SELECT queue_jobs.${call(job, outcome, values)}::text AS done`, values.values);
}

export const isStale = (error) => error.code === NOT_YOURS;

export function logStale(log, job, error) {
  log.warn({ event: 'stale', job: job.id, attempt: job.attempt, worker: job.worker, error: error?.message },
    'this attempt does not have the job any more: what has become of it is dropped');
}

