// What becomes of a claimed job, and how that is written: complete(), fail(), snooze(), continue_at() or
// wait_for_signal(), fenced by the attempt. Its kind is the event in the log.
import { stringify } from './json.js';
import { ofError } from './log.js';
import { ask, textOf, Values } from './sql.js';

const LONGEST_ERROR = 2000;
const LONGEST_DETAIL = 20_000;
// How long a job is put back of which not even a failure can be written.
const UNWRITABLE_DELAY = '1 min';

// SQLSTATE of a job that this attempt does not have any more.
const NOT_YOURS = '55000';
// Conflicts, resources, operators, internal errors: no fault of what was to be written.
const MAY_PASS = /^(40...|53...|55P03|57...|58...|XX...)$/;
export const mayPass = (error) => MAY_PASS.test(error.code ?? '');

// PostgreSQL's text has no character 0.
const clean = (text, longest) => text.slice(0, longest).replaceAll('\u0000', '\uFFFD');

// What each server's encoding has.
const plain = (text) => text.replace(/[^\n\x20-\x7e]/g, '?').slice(0, LONGEST_ERROR);

function isError(thrown) {
  try {
    return thrown instanceof Error;
  } catch {
    return false; // a Proxy may throw at any question
  }
}

function stacks(error) {
  let text = null;
  try {
    text = String(error.stack ?? error);
    for (let cause = error.cause, depth = 0; cause instanceof Error && depth < 10; cause = cause.cause, depth++)
      text += `\nCaused by: ${cause.stack ?? cause}`;
  } catch {
    // What it does not say is left out.
  }
  return text === null ? null : clean(text, LONGEST_DETAIL);
}

// An error that was thrown, or whatever else was.
function describe(thrown) {
  const text = textOf(thrown);
  if (!isError(thrown)) return { error: clean(text, LONGEST_ERROR), detail: null };
  // pg's own errors are called "error".
  return { error: clean(text.replace(/^error: /, ''), LONGEST_ERROR), detail: stacks(thrown) };
}

export function completed(value) {
  return { kind: 'completed', result: value === undefined || value === null ? null : stringify(value) };
}

export function failed(thrown, { retryIn = null, final = false } = {}) {
  return { kind: 'failed', ...describe(thrown), retryIn: final ? null : retryIn, final, rollback: true };
}

export function discarded(reason) {
  return { kind: 'failed', error: clean(textOf(reason), LONGEST_ERROR), detail: null, retryIn: null, final: true };
}

export const snoozed = (delay) => ({ kind: 'snoozed', delay });
export const givenBack = () => snoozed(0);
export const waiting = (name, timeout) => ({ kind: 'waiting', name, timeout });
export const continued = (cursor, delay, progress) => ({ kind: 'continued', cursor: stringify(cursor), delay, progress });

// One below zero, such as a Retry-After that has passed, is none.
const delayParameter = (values, delay) =>
  (delay === null ? 'NULL::interval' : `greatest(${values.add('interval', delay)}, interval '0')`);

function call(job, outcome, values) {
  const fence = `${values.add('bigint', job.id)}, ${values.add('int', job.attempt)}`;
  switch (outcome.kind) {
    case 'completed':
      return `complete(${fence}, ${values.addJsonText('jsonb', outcome.result)})`;
    case 'failed':
      return `fail(${fence}, ${values.add('text', outcome.error)}, ${values.add('text', outcome.detail)}, ${delayParameter(values, outcome.retryIn)}, ${values.add('boolean', outcome.final)})`;
    case 'snoozed':
      return `snooze(${fence}, ${delayParameter(values, outcome.delay)})`;
    case 'waiting':
      return `wait_for_signal(${fence}, ${values.add('text', outcome.name)}, ${delayParameter(values, outcome.timeout)})`;
    case 'continued':
      return `continue_at(${fence}, ${values.addJsonText('jsonb', outcome.cursor)}, ${delayParameter(values, outcome.delay)}, ${values.add('float8', outcome.progress)})`;
    default:
      throw new TypeError(`No such outcome: ${outcome.kind}`);
  }
}

async function write(db, job, outcome) {
  const values = new Values();
  await ask(db, `SELECT queue_jobs.${call(job, outcome, values)}::text AS done`, values.values);
}

// What a handler has asked for, as it reads in an error.
function askedFor(outcome) {
  switch (outcome.kind) {
    case 'failed':
      return outcome.retryIn === null ? '' : `retryIn(${textOf(outcome.retryIn)}): `;
    case 'snoozed':
      return `snooze(${textOf(outcome.delay)}): `;
    case 'waiting':
      return `waitForSignal(${textOf(outcome.name)}, { timeout: ${textOf(outcome.timeout)} }): `;
    case 'continued':
      return `continueAt(..., { delay: ${textOf(outcome.delay)}, progress: ${textOf(outcome.progress)} }): `;
    default:
      return '';
  }
}

// What takes the place of an outcome that was refused: a failure that says so; then one in which there is
// nothing to refuse; then the job is put back. Undefined: there is nothing more to try.
function instead(outcome, refusal) {
  const why = askedFor(outcome) + textOf(refusal).replace(/^error: /, '');
  if (outcome.last) return undefined;
  if (outcome.plain) return { ...snoozed(UNWRITABLE_DELAY), rollback: true, last: true };
  if (outcome.kind === 'failed')
    return { kind: 'failed', error: plain(`${outcome.error} (${why})`), detail: null, retryIn: null, final: outcome.final, rollback: true, plain: true };
  return { ...failed(refusal), error: clean(why, LONGEST_ERROR) };
}

// Writes an outcome, or what takes its place if it is refused. undo: takes back what the handler has
// written, before a failure is. patient: leaves an error that may pass to the caller.
// Returns what was written. Error: the connection is lost; the job is not this attempt's; or not even the last was taken.
export async function writeOutcome(db, job, outcome, { log, undo = () => {}, patient = false }) {
  for (let next = outcome; ;) {
    if (next.rollback) await undo();
    try {
      await write(db, job, next);
      return next;
    } catch (error) {
      const other = instead(next, error);
      if (error.lost || isStale(error) || !other || (patient && mayPass(error))) throw error;
      log.error({ event: 'error', job: job.id, worker: job.worker, attempt: job.attempt, outcome: next.kind, ...ofError(error) },
        other.last ? `cannot write what has become of the job: it is put back for ${UNWRITABLE_DELAY}` : 'what was to become of the job was refused: it fails');
      next = other;
    }
  }
}

export const isStale = (error) => error.code === NOT_YOURS;

export function logStale(log, { job, outcome }, error) {
  log.warn({ event: 'stale', job: job.id, worker: job.worker, attempt: job.attempt, outcome: outcome.kind, ...ofError(error) },
    'this attempt does not have the job any more: what has become of it is dropped');
}

