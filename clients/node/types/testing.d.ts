import type { ArgsOf, Handlers, Id, Queryable, Worker, WorkerName } from './index.js';

export interface Ran {
  id: Id;
  worker: string;
  args: any;
  outcome: 'completed' | 'failed' | 'snoozed' | 'waiting' | 'continued';
  result: any;
  error: string | null;
}

/** Runs what is due, and what that enqueues, in the transaction of `db`; what ran, in that order. */
export function runDue(db: Queryable, worker: Worker | Handlers, options?: { queues?: string[]; maxJobs?: number }): Promise<Ran[]>;
/** The ids of the worker's unfinished jobs whose args contain these. Error: there is none, or not `count`. */
export function assertEnqueued<W extends WorkerName>(db: Queryable, worker: W, args?: Partial<ArgsOf<W>>, options?: { count?: number }): Promise<Id[]>;
export function assertNotEnqueued<W extends WorkerName>(db: Queryable, worker: W, args?: Partial<ArgsOf<W>>): Promise<Id[]>;
