// Batches, and workflows, which are batches whose jobs have names and wait for each other.
import { parse, stringify } from './json.js';
import { ask, interval, namedArguments, Values } from './sql.js';
import { inheritedContext } from './trace.js';

const CALLBACKS = {
  onSuccess: ['on_success', 'text'],
  onEnded: ['on_ended', 'text'],
  onDead: ['on_dead', 'text'],
  args: ['args', 'jsonb'],
  keep: ['keep', 'interval'],
};

const BATCH_OPTIONS = { ...CALLBACKS, parent: ['parent', 'bigint'], open: ['open', 'boolean'] };
const WORKFLOW_OPTIONS = { ...CALLBACKS, dedupKey: ['dedup_key', 'text'] };

// The id of the new batch, to be given to enqueue() as `batch`.
export async function newBatch(db, name = null, options = {}) {
  const values = new Values();
  const [row] = await ask(db, `SELECT queue_jobs.new_batch(${values.add('text', name)}${namedArguments(values, BATCH_OPTIONS, options)})::text AS id`, values.values);
  return row.id;
}

async function call(db, name, id) {
  const values = new Values();
  const [row] = await ask(db, `SELECT queue_jobs.${name}(${values.add('bigint', id)})::text AS done`, values.values);
  return row.done;
}

// False if it was closed already.
export const closeBatch = async (db, id) => (await call(db, 'close_batch', id)) === 'true';

// How many jobs were cancelled, or are tried again.
export const cancelBatch = async (db, id) => Number(await call(db, 'cancel_batch', id));
export const retryBatch = async (db, id) => Number(await call(db, 'retry_batch', id));

export async function batchResults(db, id) {
  const values = new Values();
  const rows = await ask(db, `SELECT job::text AS job, step, worker, args::text AS args, state, result::text AS result FROM queue_jobs.batch_results(${values.add('bigint', id)})`, values.values);
  return rows.map((row) => ({ ...row, args: parse(row.args), result: parse(row.result) }));
}

// What the steps before this job of a workflow have returned, by their names.
export async function resultsBefore(db, batch, job) {
  const values = new Values();
  const id = values.add('bigint', batch);
  const rows = await ask(db, `SELECT r.step, r.result::text AS result FROM queue_jobs.workflow_step AS s JOIN queue_jobs.batch_results(${id}) AS r ON r.step = ANY (s.after) WHERE s.batch = ${id} AND s.job = ${values.add('bigint', job)}`, values.values);
  return Object.fromEntries(rows.map((row) => [row.step, parse(row.result)]));
}

const STEP_KEYS = { step: 'step', worker: 'worker', args: 'args', after: 'after', ifDead: 'if_dead', delay: 'delay', priority: 'priority', queue: 'queue', maxRetries: 'max_retries', timeout: 'timeout', tags: 'tags', dedupKey: 'dedup_key' };
const STEP_INTERVALS = ['delay', 'timeout'];

function writeStep(step) {
  const written = {};
  for (const [key, value] of Object.entries(step)) {
    if (!Object.hasOwn(STEP_KEYS, key)) throw new TypeError(`A step has no ${key}: ${Object.keys(STEP_KEYS).join(', ')}`);
    if (value !== undefined) written[STEP_KEYS[key]] = STEP_INTERVALS.includes(key) ? interval(value) : value;
  }
  return written;
}

// enqueue_workflow() takes the context of the session, so for its time that is what the jobs are to inherit.
async function askWithContext(db, columns, name, rest, values) {
  const inherited = inheritedContext();
  if (Object.keys(inherited).length === 0) return ask(db, `SELECT ${columns} FROM queue_jobs.enqueue_workflow(${name}${rest})`, values.values);
  const [{ previous }] = await ask(db, "SELECT coalesce(current_setting('queue_jobs.context', true), '') AS previous");
  const context = values.add('text', stringify({ ...(previous && parse(previous)), ...inherited }));
  // One statement, for outside of a transaction the setting lasts no longer; the name depends on it, so it
  // is made first.
  const rows = await ask(db, `SELECT ${columns} FROM (SELECT set_config('queue_jobs.context', ${context}, true) AS context) AS setting, LATERAL queue_jobs.enqueue_workflow(${name} || left(setting.context, 0)${rest})`, values.values);
  await ask(db, "SELECT set_config('queue_jobs.context', $1::text, true)", [previous]);
  return rows;
}

// steps: [{ step, worker, args, after: [names], ifDead, delay, priority, queue, maxRetries, timeout, tags,
// dedupKey }]; returns { step: id of its job }.
export async function enqueueWorkflow(db, name, steps, options = {}) {
  const values = new Values();
  const nameParameter = values.add('text', name);
  const rest = `, ${values.add('jsonb', steps.map(writeStep))}${namedArguments(values, WORKFLOW_OPTIONS, options)}`;
  const rows = await askWithContext(db, 'step, job::text AS job', nameParameter, rest, values);
  return Object.fromEntries(rows.map((row) => [row.step, row.job]));
}
