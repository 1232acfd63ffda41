export { enqueue, tryEnqueue, enqueueMany, cancel, retry, discard, signal } from './enqueue.js';
export { newBatch, closeBatch, cancelBatch, retryBatch, batchResults, enqueueWorkflow } from './batches.js';
export { fromKnex, fromKysely, fromDrizzle, fromPrisma } from './adapters.js';
export { Worker } from './worker.js';
export { jsonLog } from './log.js';
