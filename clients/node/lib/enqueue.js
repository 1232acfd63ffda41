// Enqueue, on the caller's own connection or transaction.
import { stringify } from './json.js';
import { ask, namedArguments, Values } from './sql.js';
import { inheritedContext } from './trace.js';

const COMMON = {
  runAt: ['run_at', 'timestamptz'],
  delay: ['delay', 'interval'],
  priority: ['priority', 'int'],
  batch: ['batch', 'bigint'],
  queue: ['queue', 'text'],
  expiresIn: ['expires_in', 'interval'],
  jitter: ['jitter', 'interval'],
  maxRetries: ['max_retries', 'int'],
  tags: ['tags', 'text[]'],
};

const OPTIONS = {
  ...COMMON,
  dedupKey: ['dedup_key', 'text'],
  after: ['after', 'bigint[]'],
  ifDead: ['if_dead', 'text'],
  timeout: ['timeout', 'interval'],
  keepCompleted: ['keep_completed', 'interval'],
  ifWaiting: ['if_waiting', 'text'],
  maxDelay: ['max_delay', 'interval'],
};

const MANY_OPTIONS = {
  ...COMMON,
  batchSize: ['batch_size', 'int'],
  batchInterval: ['batch_interval', 'interval'],
  runAts: ['run_ats', 'timestamptz[]'],
  priorities: ['priorities', 'int[]'],
  dedupKeys: ['dedup_keys', 'text[]'],
};

// What the session has in queue_jobs.context stays, but for the keys that we have, too.
const SESSION_CONTEXT = "coalesce(nullif(current_setting('queue_jobs.context', true), ''), '{}')::jsonb";

function contextArgument(values, given) {
  const inherited = inheritedContext();
  if (given) return `, context => ${values.add('jsonb', { ...inherited, ...given })}`;
  if (Object.keys(inherited).length === 0) return '';
  return `, context => ${SESSION_CONTEXT} || ${values.add('jsonb', inherited)}`;
}

async function call(name, db, worker, args, { context, ...options } = {}) {
  const values = new Values();
  const call = `${values.add('text', worker)}, ${values.add('jsonb', args ?? {})}`;
  const [row] = await ask(db, `SELECT queue_jobs.${name}(${call}${namedArguments(values, OPTIONS, options)}${contextArgument(values, context)})::text AS id`, values.values);
  return row.id;
}

// The id of the job that will do this work, as a string; of the one that stands for it, if it is a duplicate.
export const enqueue = (db, worker, args, options) => call('enqueue', db, worker, args, options);

// The same, but null for a duplicate.
export const tryEnqueue = (db, worker, args, options) => call('try_enqueue', db, worker, args, options);

// One job for each of args, in their order; the ids.
export async function enqueueMany(db, worker, argsList, { context, contexts, ...options } = {}) {
  const values = new Values();
  const list = [...argsList];
  const inherited = { ...inheritedContext(), ...context };
  let call = `${values.add('text', worker)}, ${values.add('jsonb[]', list.map((args) => args ?? {}))}`;
  if (contexts && contexts.length !== list.length) throw new TypeError(`There are ${list.length} jobs, and ${contexts.length} contexts`);
  if (contexts) {
    call += `, contexts => ${values.add('jsonb[]', contexts.map((own) => ({ ...inherited, ...own })))}`;
  } else if (Object.keys(inherited).length > 0) {
    const session = context ? '' : `${SESSION_CONTEXT} || `;
    call += `, contexts => array_fill(${session}${values.add('jsonb', inherited)}, ARRAY[${list.length}])`;
  }
  if (list.length === 0) return [];
  const rows = await ask(db, `SELECT id::text AS id FROM queue_jobs.enqueue_many(${call}${namedArguments(values, MANY_OPTIONS, options)}) WITH ORDINALITY AS enqueued (id, n) ORDER BY n`, values.values);
  return rows.map((row) => row.id);
}

async function steer(db, text, values) {
  const [row] = await ask(db, `SELECT ${text} AS done`, values.values);
  return row.done;
}

async function steerJob(db, name, id) {
  const values = new Values();
  return steer(db, `queue_jobs.${name}(${values.add('bigint', id)})`, values);
}

export const cancel = (db, id) => steerJob(db, 'cancel', id);
export const retry = (db, id) => steerJob(db, 'retry', id);
export const discard = (db, id) => steerJob(db, 'discard', id);

// Gives a job a signal; true if it is the first of that name, and the job is not finished.
export async function signal(db, id, name, payload = null) {
  const values = new Values();
  return steer(db, `queue_jobs.signal(${values.add('bigint', id)}, ${values.add('text', name)}, ${values.addJsonText('jsonb', stringify(payload))})`, values);
}

