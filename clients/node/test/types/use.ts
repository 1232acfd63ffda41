// Compiled by types.test.mjs: what the types allow, and what they refuse.
import { enqueue, enqueueMany, enqueueWorkflow, newBatch, Worker, type Queryable } from 'queue_jobs';
import { assertEnqueued, runDue } from 'queue_jobs/testing';

declare module 'queue_jobs' {
  interface Jobs {
    send_mail: { args: { mail_id: number }; result: { status: number } };
  }
}

declare const client: Queryable;

export async function use() {
  const id: string | null = await enqueue(client, 'send_mail', { mail_id: 1 }, { delay: '5 min', after: ['1', 2n] });
  await enqueue(client, 'any other', { anything: true });
  await enqueueMany(client, 'send_mail', [{ mail_id: 1 }], { batch: await newBatch(client, 'mails', { onSuccess: 'done' }) });
  const jobs = await enqueueWorkflow(client, 'nightly', [{ step: 'a', worker: 'send_mail' }, { step: 'b', worker: 'b', after: ['a'], ifDead: 'run' }]);
  // @ts-expect-error: mail_id is a number
  await enqueue(client, 'send_mail', { mail_id: 'one' });
  await enqueue(client, 'send_mail', { mail_id: 1 }, { dedupKey: 'quiet', ifWaiting: 'debounce', delay: 5000, maxDelay: '1 min' });
  // @ts-expect-error: no such mode
  await enqueue(client, 'send_mail', { mail_id: 1 }, { dedupKey: 'quiet', ifWaiting: 'last' });
  // @ts-expect-error: no such option
  await enqueue(client, 'send_mail', { mail_id: 1 }, { delayed: 1 });

  const worker = new Worker({ mode: 'transaction', connection: ['postgres://a', { host: 'b' }] })
    .handle('send_mail', async ({ mail_id }, ctx) => {
      const n: number = mail_id;
      const price = await ctx.step('price', async () => n * 2);
      await ctx.report(0.5, 'half of it');
      ctx.continueAt({ from: price });
      const seen: Record<string, unknown> = await ctx.signals();
      if ((await ctx.signalPayload('go')) === null && !('go' in seen)) ctx.waitForSignal('go', { timeout: '3 days' });
      // @ts-expect-error: the timeout is an option
      ctx.waitForSignal('go', '3 days');
      return { status: 250 };
    })
    .handle({ other: (args, ctx) => ctx.snooze(1000) })
    .use(async (ctx, next) => next());
  // @ts-expect-error: the result has a status
  worker.handle('send_mail', () => ({ code: 1 }));
  await assertEnqueued(client, 'send_mail', { mail_id: 1 }, { count: 1 });
  const [ran] = await runDue(client, worker);
  return [id, jobs.a, ran.outcome];
}
