// npx queue_jobs worker.mjs --queues …: runs the handlers of a module until SIGTERM.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { Worker } from './worker.js';

const USAGE = `Usage: queue_jobs MODULE [OPTION…]

The default export of MODULE is an object of handlers, { name: async (args, ctx) => result },
or a function that is given the worker: (worker) => { worker.handle(name, handler); worker.use(middleware); }

  --queues LIST        queues to claim from: names, separated by commas or spaces, and selectors, separated by
                       spaces, such as 'urgency=high&tags=mail,index' (wherever jobs of the handlers wait)
  --mode MODE          transaction: claim, handler and completion are one transaction, exactly once;
                       lease: at least once (lease)
  --transaction        the same as --mode transaction
  --concurrency N      handlers that run at once (10)
  --batch N            lease mode: jobs in hand at most, running or not begun (as many as run at once)
  --prefetch N         lease mode: of these, how many are not begun (0)
  --lease SECONDS      lease mode: how long a claim holds without a heartbeat (300); or an interval, '5 min'
  --grace SECONDS      from SIGTERM until what still runs is given back (25); also --stop-within
  --database URL       several hosts may be named, one of which is the primary (DATABASE_URL, or PGHOST and so on)
  --name NAME          what the claimant's name begins with (the host's name)
  --help

QUEUE_JOBS_LOG=debug, info (default), warn or error: the least level that is logged.
`;

const OPTIONS = {
  queues: { type: 'string' },
  concurrency: { type: 'string' },
  prefetch: { type: 'string' },
  mode: { type: 'string' },
  transaction: { type: 'boolean' },
  batch: { type: 'string' },
  lease: { type: 'string' },
  grace: { type: 'string' },
  'stop-within': { type: 'string' },
  database: { type: 'string' },
  name: { type: 'string' },
  help: { type: 'boolean' },
};

// Names, separated by commas or spaces, and selectors, in which commas separate values.
const queueList = (text) => text?.split(/\s+/).flatMap((part) => (part.includes('=') ? [part] : part.split(','))).filter(Boolean);

const number = (text) => (text === undefined ? undefined : Number(text));
const milliseconds = (text) => (text === undefined ? undefined : Number(text) * 1000);

// What the options ask of a Worker. Error: TypeError.
function workersOptions(values) {
  const concurrency = number(values.concurrency);
  return {
    connection: values.database,
    queues: queueList(values.queues),
    mode: values.transaction ? 'transaction' : values.mode,
    concurrency,
    prefetch: values.batch === undefined ? number(values.prefetch) : Math.max(number(values.batch) - (concurrency ?? 10), 0),
    lease: /^[\d.]+$/.test(values.lease) ? milliseconds(values.lease) : values.lease,
    stopWithin: milliseconds(values.grace ?? values['stop-within']),
    name: values.name,
  };
}

async function load(file, worker) {
  const module = await import(pathToFileURL(resolve(file)).href);
  if (typeof module.default === 'function') await module.default(worker);
  else if (module.default && typeof module.default === 'object') worker.handle(module.default);
  else throw new TypeError(`${file} has no default export: handlers, or a function that is given the worker`);
}

function parse(args) {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  if (values.help) return { help: true };
  if (positionals.length !== 1) throw new TypeError('One module is wanted');
  return { worker: new Worker(workersOptions(values)), file: positionals[0] };
}

// The server's errors say more than their message.
const describe = (error) =>
  [error.stack, error.detail && `DETAIL: ${error.detail}`, error.hint && `HINT: ${error.hint}`].filter(Boolean).join('\n');

// Returns the exit status.
export async function main(args) {
  let parsed;
  try {
    parsed = parse(args);
  } catch (error) {
    process.stderr.write(`${error.message}\n\n${USAGE}`);
    return 2;
  }
  const { help, worker, file } = parsed;
  if (help) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    await load(file, worker);
    await worker.run();
    return 0;
  } catch (error) {
    process.stderr.write(`${describe(error)}\n`);
    return 1;
  }
}
