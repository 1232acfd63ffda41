// npx queue_jobs worker.mjs --queues …: runs the handlers of a module until SIGTERM.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { Worker } from './worker.js';

const USAGE = `Usage: queue_jobs MODULE [OPTION…]

The default export of MODULE is an object of handlers, { name: async (args, ctx) => result },
or a function that is given the worker: (worker) => { worker.handle(name, handler); worker.use(middleware); }

  --queues LIST        queues to claim from, separated by commas; or one selector, such as
                       'urgency=high&tags=mail,index'. Default: wherever jobs of the handlers wait
  --concurrency N      handlers that run at once (10)
  --prefetch N         lease mode: jobs claimed before their turn (0)
  --transaction        exactly once: claim, handler and completion are one transaction
  --lease INTERVAL     lease mode: how long a claim holds without a heartbeat ('5 min')
  --stop-within S      seconds from SIGTERM until what still runs is given back (25)
  --database URL       several hosts may be named, one of which is the primary. Default: DATABASE_URL, or PGHOST and so on
  --name NAME          the beginning of the claimant's name
  --help

QUEUE_JOBS_LOG=debug logs each job.
`;

const OPTIONS = {
  queues: { type: 'string' },
  concurrency: { type: 'string' },
  prefetch: { type: 'string' },
  transaction: { type: 'boolean' },
  lease: { type: 'string' },
  'stop-within': { type: 'string' },
  database: { type: 'string' },
  name: { type: 'string' },
  help: { type: 'boolean' },
};

// A list of names, or selectors, in which commas separate values.
const queueList = (text) => (text?.includes('=') ? [text] : text?.split(',').map((queue) => queue.trim()));

const number = (text) => (text === undefined ? undefined : Number(text));

async function load(file, worker) {
  const module = await import(pathToFileURL(resolve(file)).href);
  if (typeof module.default === 'function') await module.default(worker);
  else if (module.default && typeof module.default === 'object') worker.handle(module.default);
  else throw new TypeError(`${file} has no default export: handlers, or a function that is given the worker`);
}

function parse(args) {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  if (!values.help && positionals.length !== 1) throw new TypeError('One module is wanted');
  return { values, file: positionals[0] };
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
  const { values, file } = parsed;
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    const worker = new Worker({
      connection: values.database,
      queues: queueList(values.queues),
      mode: values.transaction ? 'transaction' : 'lease',
      concurrency: number(values.concurrency),
      prefetch: number(values.prefetch),
      lease: values.lease,
      stopWithin: values['stop-within'] === undefined ? undefined : Number(values['stop-within']) * 1000,
      name: values.name,
    });
    await load(file, worker);
    await worker.run();
    return 0;
  } catch (error) {
    process.stderr.write(`${describe(error)}\n`);
    return 1;
  }
}
