"""docs/how-to/shards.md, run: its examples; a shard killed while the others go on; a tenant moved there and back under load, with a
server killed between the steps; and the ledger. Within the sandbox. A line `ok` or `not ok` for each test.

    run.py PROGRAMS MOVES
"""
import collections
import itertools
import os
import signal
import sys
import tempfile

sys.path.append('test/failover')     # processes, session

from cluster import Cluster, find_plproxy   # noqa: E402
from orders import Load                     # noqa: E402
from processes import stop_all, wait_for    # noqa: E402

STEPS = ['publish', 'subscribe', 'copied', 'pause', 'paused', 'leave', 'handed over', 'arrive', 'switch', 'unsubscribe', 'clear']
# Which server of a move is killed right before which step. In the first two the tenant's jobs are in no queue.
KILLS = [None, ('source', 'handed over'), ('target', 'arrive'), *itertools.product(('source', 'target'), STEPS)]
SETTINGS = "queue_jobs.idle_timeout = 1s\nwal_retrieve_retry_interval = 200ms\n"
failed = []


def test(good, name, *notes):
    print(f'{"ok" if good else "not ok"} - {name}', flush=True)
    if not good:
        failed.append(name)
        for note in notes:
            print(f'# {note}', flush=True)


def run_examples(cluster):
    for example in cluster.examples:
        if example.language == 'sql' and not example.step:
            try:
                cluster.run_example(example)
                test(True, f'example: {example.title}')
            except (RuntimeError, OSError, TimeoutError) as error:
                test(False, f'example: {example.title}', *str(error).splitlines())
                return


def trap(cluster):
    """Beside the page's example: what the business function does is undone with it, on its shard."""
    shard = cluster.shards[0]
    before = shard.sql('SELECT count(*) FROM queue_jobs.job')
    status, printed = shard.run('SELECT shop.place_order(7, gen_random_uuid(), 1), 1 / (random() * 0)::int', role='app')
    test(status == 3 and 'division by zero' in printed, 'a business function fails on its shard', printed)
    test(shard.sql('SELECT count(*) FROM queue_jobs.job') == before, 'and its job is gone with it')


def kill_each(cluster, load):
    killed, tenants_there, others = cluster.shards[1], {8}, {7, 42}
    killed.kill()
    before = load.acknowledged(others)
    wait_for('the other shard goes on', lambda: load.acknowledged(others) >= before + 50)
    done = "SELECT count(*) FROM shop.invoice"
    invoices = int(cluster.shards[0].sql(done))
    wait_for('its jobs go on', lambda: int(cluster.shards[0].sql(done)) > invoices)
    test(True, 'a shard is dead: 50 orders on the other one, and their jobs')
    status, printed = cluster.router.run('SELECT count(*) FROM shop.queue')
    test(status == 3, 'the view over all shards fails', printed)
    states = dict(line.split('|') for line in cluster.router.sql("SELECT shard, translate(state, E'\\n', ' ') FROM shop.shards()").splitlines())
    test(states['0'] == 'ok' and states['1'].startswith('does not answer'), 'shards() says which does not answer', states)
    before = load.acknowledged(tenants_there)
    killed.start()
    wait_for('its tenants go on', lambda: load.acknowledged(tenants_there) >= before + 20)
    test(True, 'back again: its tenants go on')
    test(int(cluster.router.sql('SELECT count(*) FROM shop.queue')) > 0, 'and the view over all shards')
    cluster.router.kill()
    cluster.router.start()
    before = load.acknowledged({7, 8, 42})
    wait_for('orders by the new router', lambda: load.acknowledged({7, 8, 42}) >= before + 50)
    test(True, 'the router has been killed, and is back: orders go on')


def move(cluster, load, swap, kill):
    """All steps; one that fails as its server has been killed is made again."""
    steps = {example.step: example for example in cluster.examples if example.step}
    source, target = reversed(cluster.shards) if swap else cluster.shards
    before = load.acknowledged({42})
    for name in STEPS:
        if kill and kill[1] == name:
            server = source if kill[0] == 'source' else target
            server.kill()
            server.start()
        if name == 'leave':
            load.longest(42)
            # Jobs to move, of every kind that moves; those of the orders are paused.
            source.sql("""SET ROLE app; SELECT count(queue_jobs.enqueue('later', jsonb_build_object('tenant', 42, 'n', n), delay => '1 day', priority => n, queue => 'tenant:42',
                dedup_key => 'token ' || n, context => '{"c": 1}', expires_in => '2 days')) FROM generate_series(1, 3) AS n""")
            jobs = look_at_jobs(source)
        wait_for(f'step {name}', lambda example=steps[name]: again(cluster, example, swap))
        if name == 'switch':
            switched = load.acknowledged({42})
            wait_for('orders on the new shard', lambda start=switched: load.acknowledged({42}) > start + 5)
            waited = load.longest(42)
    where = f'move to {target.name}' + (f', {kill[0]} killed before {kill[1]}' if kill else '')
    test(look_at_jobs(target) == jobs and jobs.count('\n') == 2, f'{where}: jobs are as they were', jobs, look_at_jobs(target))
    source_left = source.sql('SELECT count(*) FROM shop.purchase WHERE tenant = 42') + source.sql("SELECT count(*) FROM queue_jobs.job WHERE queue = 'tenant:42' AND finished_at IS NULL")
    test(source_left == '00', f'{where}: nothing is left', source_left)
    target.sql("SELECT queue_jobs.cancel_jobs('later'); SELECT queue_jobs.forget_jobs('later', states => '{cancelled}')")
    source.sql("SELECT queue_jobs.forget_jobs('later', states => '{cancelled}')")
    print(f'# {where}: {load.acknowledged({42}) - before} orders of the tenant meanwhile, and none for {waited:.2f} s', flush=True)


def look_at_jobs(server):
    return server.sql("""SELECT worker, args, owner, extract(epoch FROM run_at), priority, dedup_key, context, extract(epoch FROM expires_at)
        FROM queue_jobs.job WHERE worker = 'later' AND state = 'scheduled' ORDER BY priority""")


def again(cluster, example, swap):
    """False if it failed because a connection was lost, or a server was not ready."""
    try:
        cluster.run_example(example, swap)
    except RuntimeError as error:
        message = str(error)
        if any(known in message for known in ('could not connect', 'could not receive', 'connection to server', 'terminating connection', 'is active for PID', 'cannot leave', 'has changed meanwhile')):
            return False
        raise
    return True


def refusals(cluster):
    """What leave() and clear() refuse, and that nothing has happened then."""
    shard = cluster.shards[0]
    shard.sql("""SET ROLE app; SELECT queue_jobs.enqueue('later', '{"tenant": 7}', queue => 'tenant:7', delay => '1 day', batch => queue_jobs.new_batch(open => true))""")
    for call, error in [('leave(7)', 'tenant 7 cannot leave: job'), ('leave(8)', 'tenant 8 is not at home'), ('arrive(8)', 'tenant 8 has not been handed over'), ('clear(7)', 'tenant 7 is at home here')]:
        status, printed = shard.run(f'SELECT shop.{call}')
        test(status == 3 and error in printed, f'{call} is refused', printed)
    status, printed = shard.run("SELECT shop.place_order(7, gen_random_uuid(), 1) IS NOT NULL", role='app')
    test(printed == 't', 'a tenant that could not leave goes on', printed)
    shard.sql("SELECT queue_jobs.cancel_jobs('later')")


def check_ledger(cluster, load):
    """Each order that was acknowledged is at one place, where its tenant is at home, and has one invoice; so has each other that was committed."""
    own = {order for _, order in load.orders(acknowledged=False)}
    purchases, invoices, homes = [], collections.Counter(), collections.Counter()
    left = "SELECT count(*) FROM queue_jobs.job WHERE worker = 'invoice' AND state NOT IN ('completed', 'cancelled')"
    for shard in cluster.shards:
        wait_for(f'all jobs of {shard.name} are done', lambda shard=shard: shard.sql(left) == '0')
        rows = [tuple(row.split('|')) for row in shard.sql('SELECT tenant, id FROM shop.purchase').splitlines()]
        purchases += [(int(tenant), order) for tenant, order in rows if order in own]
        invoices.update(order for order in shard.sql('SELECT purchase FROM shop.invoice').splitlines() if order in own)
        homes.update(int(tenant) for tenant in shard.sql('SELECT id FROM shop.tenant').splitlines())
    acknowledged = load.orders(acknowledged=True)
    missing, unasked = acknowledged - set(purchases), set(purchases) - load.orders(acknowledged=False)
    test(not missing, f'all {len(acknowledged)} orders that were acknowledged are there', f'{len(missing)} are not')
    test(len(purchases) == len(set(purchases)) and not unasked, 'each once', len(purchases), len(set(purchases)), len(unasked))
    wrong = {order: invoices[order] for _, order in purchases if invoices[order] != 1}
    test(not wrong and len(invoices) == len(purchases), f'each of the {len(purchases)} has been invoiced exactly once', wrong)
    test(set(homes.values()) == {1} and set(homes) == {7, 8, 42}, 'each tenant is at home on one shard', homes)


def main():
    programs, moves = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    find_plproxy(programs)
    cluster = Cluster(tempfile.mkdtemp(prefix='sh', dir=os.environ['TMPDIR']), 2, SETTINGS)
    try:
        run_examples(cluster)
        if failed:
            return 1
        trap(cluster)
        for shard in cluster.shards:
            shard.sql("SELECT queue_jobs.define_worker('later')")
        refusals(cluster)
        load = Load(cluster.router.conninfo('app'), [7, 7, 8, 8, 42, 42])
        wait_for('orders of all', lambda: all(load.acknowledged({tenant}) > 10 for tenant in (7, 8, 42)))
        kill_each(cluster, load)
        for number in range(moves):
            move(cluster, load, number % 2 == 1, KILLS[number % len(KILLS)])
        load.stop()
        for error, count in load.errors().most_common(10):
            print(f'# clients saw {count} times: {error}')
        check_ledger(cluster, load)
    finally:
        cluster.stop()
        stop_all()
    return bool(failed)


if __name__ == '__main__':
    sys.exit(main())
