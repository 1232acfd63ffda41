"""Orders with their jobs through 1, 2 and 4 shards of this machine, by the router and without it, side by side: in each round each of them.
Prints medians, and the processor time that an order takes of the router and of the shards, which says what more machines would give.

    measure.py PROGRAMS [ROUNDS [ORDERS]]
"""
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append('test/failover')     # processes

from cluster import Cluster, find_plproxy           # noqa: E402
from processes import stop_all, tree, wait_for      # noqa: E402

SHARDS = 4
CLIENTS = 8
TENANTS = range(100, 164)
ORDER = "SELECT shop.place_order(:tenant, gen_random_uuid(), 1);\n"
TICK = os.sysconf('SC_CLK_TCK')


def set_up(directory):
    cluster = Cluster(directory, SHARDS)
    for example in cluster.examples:
        if example.language == 'sql' and (example.server == 'shards' or 'EXTENSION plproxy' in example.text):
            cluster.run_example(example)
    for n, shard in enumerate(cluster.shards):
        shard.sql(f'ALTER DATABASE shop SET shop.shard = {n}')
    more = ', '.join(f"ADD p{n} 'host=127.0.0.1 port={shard.port} dbname=shop'" for n, shard in enumerate(cluster.shards) if n > 1)
    cluster.router.sql(f'ALTER SERVER shop OPTIONS ({more})')
    return cluster


def divide(cluster, count):
    """All tenants among that many shards."""
    cluster.router.sql('DELETE FROM shop.home; INSERT INTO shop.home ' + tenants('tenant', f'tenant % {count}'))
    for n, shard in enumerate(cluster.shards):
        shard.sql(f'DELETE FROM shop.tenant; INSERT INTO shop.tenant {tenants("tenant")} WHERE {n} < {count} AND tenant % {count} = {n}')
        shard.sql('CHECKPOINT')


def tenants(*columns):
    return f'SELECT {", ".join(columns)} FROM generate_series({TENANTS[0]}, {TENANTS[-1]}) AS tenant'


def cpu(servers):
    """Seconds that their processes have used, those that have ended included."""
    ticks = 0
    for server in servers:
        for pid in tree(server.postmaster()):
            try:
                with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
                    ticks += sum(map(int, stat.read().rpartition(')')[2].split()[11:15]))
            except OSError:
                pass    # it has ended, and is in its parent's sum
    return ticks / TICK


def idle(shard):
    return shard.sql('SELECT coalesce(sum(available + executing + retryable), 0) FROM queue_jobs.queue') == '0'


def pgbench(server, script, clients, orders):
    return subprocess.Popen(['pgbench', '-n', '-c', str(clients), '-t', str(orders // clients), '-f', script, server.conninfo('app')],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def measure(cluster, directory, count, orders, by_router):
    """Orders a second, the same with all their jobs done, and processor milliseconds an order of router and of shards."""
    jobs = []
    used = cpu([cluster.router]), cpu(cluster.shards)
    began = time.time()
    for n in range(1 if by_router else count):
        script = f'{directory}/order{n}.sql'
        # Of this shard's tenants, or of all.
        step = 1 if by_router else count
        with open(script, 'w', encoding='utf-8') as file:
            file.write(f'\\set tenant {TENANTS[0] + n} + {step} * random(0, {len(TENANTS) // step - 1})\n{ORDER}')
        clients = CLIENTS // step
        target = cluster.router if by_router else cluster.shards[(TENANTS[0] + n) % count]
        jobs.append(pgbench(target, script, clients, orders // step))
    for job in jobs:
        if job.wait(600):
            raise RuntimeError(job.stderr.read().decode())
    placed = time.time() - began
    wait_for('all jobs are done', lambda: all(idle(shard) for shard in cluster.shards))
    done = time.time() - began
    used = cpu([cluster.router]) - used[0], cpu(cluster.shards) - used[1]
    return [orders / placed, orders / done, *(1000 * u / orders for u in used)]


def main():
    programs, rounds, orders = sys.argv[1], *map(int, (sys.argv[2:] + ['5', '4000'][len(sys.argv) - 2:])[:2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    find_plproxy(programs)
    directory = tempfile.mkdtemp(prefix='sm', dir=os.environ['TMPDIR'])
    cluster = set_up(directory)
    results = {}
    try:
        for number in range(rounds + 1):        # the first is not counted
            for count in (1, 2, 4):
                divide(cluster, count)
                for by_router in (True, False):
                    result = measure(cluster, directory, count, orders, by_router)
                    if number:
                        results.setdefault((by_router, count), []).append(result)
    finally:
        cluster.stop()
        stop_all()
    print(f'{rounds} rounds of {orders} orders by {CLIENTS} clients, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end; medians')
    print('| | orders/s | to one shard | with their jobs done/s | to one shard | router, CPU ms an order | shards, CPU ms an order with its job |\n|---|---|---|---|---|---|---|')
    for (by_router, count), rows in sorted(results.items(), key=lambda item: (not item[0][0], item[0][1])):
        median = [statistics.median(column) for column in zip(*rows)]
        # A round's own: what else the machine did at the time is in both.
        ratio = [statistics.median(row[i] / one[i] for row, one in zip(rows, results[by_router, 1])) for i in (0, 1)]
        print(f'| {count} shard{"s" * (count > 1)}, {"by the router" if by_router else "without it"} | {median[0]:.0f} | {ratio[0]:.2f} | {median[1]:.0f} | {ratio[1]:.2f} | {median[2]:.2f} | {median[3]:.2f} |')


if __name__ == '__main__':
    main()
