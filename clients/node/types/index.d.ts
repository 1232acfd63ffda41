/** Ids are strings of digits: PostgreSQL's bigint does not fit into a number. */
export type Id = string;
/** What is taken as an id. A number that may have lost digits is refused. */
export type IdLike = Id | bigint | number;
/** Milliseconds, or PostgreSQL's interval, such as '5 min'. */
export type Interval = number | string;
/** Integers beyond 2^53 are BigInt, in both directions. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/**
 * The args and results of your workers, for the compiler:
 * `declare module 'queue_jobs' { interface Jobs { send_mail: { args: { mail_id: number }; result: { status: number } } } }`
 */
export interface Jobs {}

export type ArgsOf<W> = W extends keyof Jobs ? (Jobs[W] extends { args: infer A } ? A : any) : any;
export type ResultOf<W> = W extends keyof Jobs ? (Jobs[W] extends { result: infer R } ? R : any) : any;
export type WorkerName = keyof Jobs | (string & {});

/** pg's Client, PoolClient and Pool, or an adapter. */
export interface Queryable {
  query(text: string, values?: any[]): Promise<{ rows: any[] } | any[]>;
}

export interface CommonOptions {
  /** A string is a timestamp as PostgreSQL reads it. */
  runAt?: Date | string;
  delay?: Interval;
  /** Lower runs first. */
  priority?: number;
  /** The batch that the job is to belong to. */
  batch?: IdLike;
  queue?: string;
  /** A job that has not been started so long after its time never is. */
  expiresIn?: Interval;
  jitter?: Interval;
  /** In place of the worker's. */
  maxRetries?: number;
  /** Labels of the job, by which search_jobs() finds it. */
  tags?: Iterable<string>;
  /** What its run, and what that enqueues, inherits; beside that of the job under way, and its trace. */
  context?: Record<string, unknown>;
}

export interface EnqueueOptions extends CommonOptions {
  /** An idempotency token, in place of the args. */
  dedupKey?: string;
  /** In place of the worker's: how long a run may take, and how long the job is kept when it is done. */
  timeout?: Interval;
  keepCompleted?: Interval;
  /** The jobs that it waits for. */
  after?: Iterable<IdLike>;
  /** What it does if one of these is dead or cancelled. */
  ifDead?: 'hold' | 'cancel' | 'run';
  /** What becomes of the job of its key that waits and has not begun: it gets these args, or is put off. */
  ifWaiting?: 'drop' | 'replace' | 'replace_args' | 'debounce';
  /** With ifWaiting 'debounce': due no later than so long after the first call. */
  maxDelay?: Interval;
}

export interface EnqueueManyOptions extends CommonOptions {
  batchSize?: number;
  batchInterval?: Interval;
  /** One for each job, or null: it has what runAt or delay, priority, and no dedupKey, say. */
  runAts?: Iterable<Date | string | null>;
  priorities?: Iterable<number | null>;
  dedupKeys?: Iterable<string | null>;
  /** One for each job. */
  contexts?: Record<string, unknown>[];
}

/** The job that will do this work: of a duplicate the one that stands; null if the worker is disabled. */
export function enqueue<W extends WorkerName>(db: Queryable, worker: W, args?: ArgsOf<W>, options?: EnqueueOptions): Promise<Id | null>;
/** The same, but null for a duplicate. */
export function tryEnqueue<W extends WorkerName>(db: Queryable, worker: W, args?: ArgsOf<W>, options?: EnqueueOptions): Promise<Id | null>;
/** A job for each of the args, in their order. */
export function enqueueMany<W extends WorkerName>(db: Queryable, worker: W, argsList: Iterable<ArgsOf<W>>, options?: EnqueueManyOptions): Promise<(Id | null)[]>;

export function cancel(db: Queryable, id: IdLike): Promise<boolean>;
export function retry(db: Queryable, id: IdLike): Promise<boolean>;
export function discard(db: Queryable, id: IdLike): Promise<boolean>;
/** True if it is the job's first signal of that name, and the job is not finished. */
export function signal(db: Queryable, id: IdLike, name: string, payload?: Json): Promise<boolean>;

export interface CallbackOptions {
  /** Workers whose jobs are enqueued then, with `args` and the key `batch`. */
  onSuccess?: string;
  onEnded?: string;
  onDead?: string;
  args?: Record<string, unknown>;
  keep?: Interval;
}

export interface BatchOptions extends CallbackOptions {
  parent?: IdLike;
  /** It does not end before closeBatch(). */
  open?: boolean;
}

export interface Step {
  step: string;
  worker: WorkerName;
  args?: Record<string, unknown>;
  after?: string[];
  ifDead?: 'hold' | 'cancel' | 'run';
  delay?: Interval;
  priority?: number;
  queue?: string;
  maxRetries?: number;
  timeout?: Interval;
  tags?: string[];
  dedupKey?: string;
}

export interface BatchResult {
  job: Id;
  step: string | null;
  worker: string;
  args: any;
  state: string;
  result: any;
}

export function newBatch(db: Queryable, name?: string | null, options?: BatchOptions): Promise<Id>;
export function closeBatch(db: Queryable, id: IdLike): Promise<boolean>;
export function cancelBatch(db: Queryable, id: IdLike): Promise<number>;
export function retryBatch(db: Queryable, id: IdLike): Promise<number>;
export function batchResults(db: Queryable, id: IdLike): Promise<BatchResult[]>;
/** The id of each step's job, by its name. */
export function enqueueWorkflow(db: Queryable, name: string, steps: Step[], options?: CallbackOptions & { dedupKey?: string }): Promise<Record<string, Id>>;

export function fromKnex(knex: { raw(sql: string, bindings: any): PromiseLike<any> }): Queryable;
export function fromKysely(kysely: { executeQuery(query: any): Promise<{ rows: any[] }> }): Queryable;
/** `sql` is drizzle-orm's. */
export function fromDrizzle(database: { execute(query: any): PromiseLike<any> }, sql: any): Queryable;
export function fromPrisma(prisma: { $queryRawUnsafe(query: string, ...values: any[]): PromiseLike<any> }): Queryable;

/** pino's, console-like: fields first. */
export interface Log {
  debug(fields: object, message?: string): void;
  info(fields: object, message?: string): void;
  warn(fields: object, message?: string): void;
  error(fields: object, message?: string): void;
}

export function jsonLog(level?: 'debug' | 'info' | 'warn' | 'error', write?: (line: string) => void): Log;

export interface Job {
  id: Id;
  attempt: number;
  max_attempts: number;
  worker: string;
  queue: string;
  args: any;
  context: Record<string, any> | null;
  version: number;
  priority: number;
  batch: Id | null;
  cursor: any;
  progress: number | null;
}

export interface JobContext<W = string> {
  readonly id: Id;
  readonly worker: string;
  readonly queue: string;
  readonly args: ArgsOf<W>;
  readonly attempt: number;
  readonly context: Record<string, any>;
  readonly job: Job;
  /** What continueAt() was given last; null in the first run. */
  readonly cursor: any;
  readonly progress: number | null;
  readonly batch: Id | null;
  /** In transaction mode the connection, within the transaction that completes the job. */
  readonly client: Queryable;
  /** Aborted when the time to stop is nearly over, and when the job is lost. */
  readonly signal: AbortSignal;
  /** SIGTERM has come. */
  readonly stopping: boolean;
  readonly log: Log;

  snooze(delay: Interval): void;
  /** The job runs again when the signal has come, or after the timeout; at once if it has come before. */
  waitForSignal(name: string, options?: { timeout?: Interval | null }): void;
  retryIn(delay: Interval): void;
  discard(reason?: string): void;
  continueAt(cursor: Json, options?: { delay?: Interval | null; progress?: number | null }): void;
  /** How far the job is: others see it at once in the view job. */
  report(progress?: number | null, message?: string | null): Promise<void>;
  step<T>(name: string, run: () => T | Promise<T>): Promise<T>;
  enqueue<V extends WorkerName>(worker: V, args?: ArgsOf<V>, options?: EnqueueOptions): Promise<Id | null>;
  enqueueMany<V extends WorkerName>(worker: V, argsList: Iterable<ArgsOf<V>>, options?: EnqueueManyOptions): Promise<(Id | null)[]>;
  /** The payloads of the signals that were sent to this job so far, by their names. */
  signals(): Promise<Record<string, any>>;
  /** Null if it has not come. (A payload may be null, too: then signals() has the name.) */
  signalPayload(name: string): Promise<any>;
  /** Sends a signal to another job: true if it is the first of that name, and the job is not finished. */
  sendSignal(id: IdLike, name: string, payload?: Json): Promise<boolean>;
  batchResults(batch?: IdLike): Promise<BatchResult[]>;
  /** In a workflow's step: what the steps before it have returned, by their names. */
  results(): Promise<Record<string, any>>;
}

export type Handler<W = string> = (args: ArgsOf<W>, ctx: JobContext<W>) => ResultOf<W> | Promise<ResultOf<W>> | void | Promise<void>;
export type Middleware = (ctx: JobContext, next: () => Promise<any>) => any;
export type Handlers = { [W in keyof Jobs]?: Handler<W> } & { [name: string]: Handler<any> | undefined };

/** A URL, of which one may name several hosts; pg's configuration; or several of these, of which one is the primary. */
export type ConnectionOptions = string | object | (string | object)[];

export interface WorkerOptions {
  /** Default: DATABASE_URL, or PGHOST and so on. */
  connection?: ConnectionOptions;
  /** Names, 'namespace:*', '*' or selectors. Default: wherever jobs of the handlers wait. */
  queues?: string[];
  mode?: 'lease' | 'transaction';
  concurrency?: number;
  /** Lease mode: jobs claimed before their turn. */
  prefetch?: number;
  /** Lease mode: how long a claim holds without a heartbeat. */
  lease?: Interval;
  /** Milliseconds from stop() until what still runs is given back. */
  stopWithin?: number;
  /** Milliseconds without an answer after which a connection counts as lost (120,000). */
  silence?: number;
  /** The beginning of the claimant's name. */
  name?: string;
  log?: Log;
}

export class Worker {
  constructor(options?: WorkerOptions);
  /** The claimant's name, of this start. */
  readonly name: string;
  readonly log: Log;
  handle<W extends WorkerName>(worker: W, handler: Handler<W>): this;
  handle(handlers: Handlers): this;
  /** The first one is the outermost. */
  use(middleware: Middleware): this;
  /** Settles when it has ended. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** start(), until SIGTERM or SIGINT. */
  run(): Promise<void>;
}
