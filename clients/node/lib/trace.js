// What a job inherits: the context of the job that enqueues it, and W3C traceparent if OpenTelemetry is in
// the process.
import { AsyncLocalStorage } from 'node:async_hooks';

// The job that is run here, if any: { context }.
export const running = new AsyncLocalStorage();

// Where every copy of @opentelemetry/api, version 1, finds the other ones.
const telemetry = () => globalThis[Symbol.for('opentelemetry.js.api.1')];

export function inheritedContext() {
  const inherited = { ...running.getStore()?.context };
  const api = telemetry();
  if (api?.propagation && api.context)
    api.propagation.inject(api.context.active(), inherited, { set: (carrier, key, value) => { carrier[key] = value; } });
  return inherited;
}

// Runs a job, so that what it enqueues, and the spans that it starts, belong to the trace of its enqueuer.
export function runWithContext(job, run) {
  if (job.context === null) return run(); // there is nothing to inherit, and each promise would pay for it
  const api = telemetry();
  const within = () => running.run({ context: job.context }, run);
  if (!job.context.traceparent || !api?.propagation || !api.context) return within();
  const parent = api.propagation.extract(api.context.active(), job.context,
    { get: (carrier, key) => carrier[key], keys: (carrier) => Object.keys(carrier) });
  return api.context.with(parent, within);
}
