"""make failover: a primary and its standby under a tool that promotes, load of every kind, and the primary killed time and again.
Within the sandbox. Prints how long each took, and whether the ledger is exact.

    run.py PROGRAMS KILLS TOOL…
"""
import os
import signal
import statistics
import sys
import tempfile
import time

import processes
import split_brain
from load import Load
from patroni import Patroni
from pg_auto_failover import PgAutoFailover
from processes import send, tree, wait_for

TOOLS = {'pg_auto_failover': PgAutoFailover, 'patroni': Patroni}
TIMES = ['kill to server ready', 'first job run', 'first tick', 'first claim']


def read(name):
    with open(f'test/failover/{name}', encoding='utf-8') as file:
        return file.read()


def primary_since(pair, after):
    """The server that lets clients write, and since when, which is after that moment."""
    def look():
        ready = [(since, node) for node in pair.nodes if (since := node.ready_since()) and since > after]
        return max(ready, key=lambda found: found[0], default=None)
    return wait_for('a server that can be written to', look)


def primary_of(pair):
    return primary_since(pair, 0)[1]


def first_runs(node, load, since):
    """How long after that moment the first job ran, the first tick did, and the first claim was acknowledged."""
    def look():
        times = node.sql(f"""SELECT extract(epoch FROM min(at)) FROM done WHERE worker <> 'claimed' AND at > to_timestamp({since!r});
            SELECT extract(epoch FROM min(at)) FROM tick WHERE at > to_timestamp({since!r});""").split('\n')
        claims = [at for at in load.claims if at > since]
        return '' not in times and len(times) == 2 and claims and [float(at) - since for at in (*times, min(claims))]
    return wait_for('a job, a tick and a claim', look)


def kill_and_wait(pair, load, whole_node):
    """Kills the primary's postmaster, or all of its node, as a failing machine does; returns what happened, and the times of it."""
    old = primary_of(pair)
    asked, claims = len(load.acknowledged), len(load.claims)
    wait_for('load', lambda: len(load.acknowledged) > asked + 5 and len(load.claims) > claims + 5)
    killed = time.time()
    if whole_node:
        old.kill()
    else:
        old.kill_postmaster()
    since, new = primary_since(pair, killed)
    times = [since - killed, *first_runs(new, load, since)]
    if whole_node:
        pair.start_keeper(old)
    pair.wait_for_pair()
    return 'restarted' if new is old else f'{new.name} promoted', times


def drain_and_check(pair, load):
    """What is wrong, one line each."""
    node = primary_of(pair)
    load.no_more_requests.set()
    node.sql("SELECT queue_jobs.unschedule('ticks')")
    left = "SELECT worker, state, waits_for, count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead') GROUP BY 1, 2, 3"
    try:
        wait_for('all jobs are done', lambda: node.sql(left) == '')
    except TimeoutError:
        return [f'left: {node.sql(left)}']
    load.stop()
    node.sql('CREATE TABLE acknowledged (n bigint); COPY acknowledged FROM STDIN;\n' + ''.join(f'{n}\n' for n in load.acknowledged) + '\\.\n')
    return node.sql(read('check.sql')).splitlines()


def test(tool, programs, kills):
    directory = tempfile.mkdtemp(prefix='fo', dir=os.environ['TMPDIR'])
    effects = f'{directory}/effects'
    os.mkdir(effects)
    print(f'=== {tool}', flush=True)
    pair = TOOLS[tool](directory, programs)
    pair.effects = effects
    primary_of(pair).sql(read('ledger.sql') + f"ALTER DATABASE postgres SET test.effects = '{effects}'")
    load = Load(pair.nodes)
    rows = {}
    print('| | ' + ' | '.join(TIMES) + ' |\n|---|' + '---|' * len(TIMES), flush=True)
    for kill in range(kills):
        whole_node = kill % 2 == 1
        happened, times = kill_and_wait(pair, load, whole_node)
        rows.setdefault((whole_node, happened.split()[-1]), []).append(times)
        print(f'| {kill + 1}: {"node" if whole_node else "postmaster"} killed, {happened} | ' + ' | '.join(f'{t:.3f} s' for t in times) + ' |', flush=True)
    for (whole_node, happened), times in sorted(rows.items()):
        print(f'| **median of {len(times)}: {"node" if whole_node else "postmaster"} killed, {happened}** | '
              + ' | '.join(f'**{statistics.median(t):.3f} s**' for t in zip(*times)) + ' |', flush=True)
    try:
        wrong = split_brain.test(pair, primary_of)
        wrong += drain_and_check(pair, load)
    except TimeoutError:
        for node in pair.nodes:
            with open(node.log, encoding='utf-8', errors='replace') as log:
                print(f'--- end of the log of {node.name}', ''.join(log.readlines()[-40:]), sep='\n', flush=True)
        raise
    print(f'{len(load.acknowledged)} transactions acknowledged, {len(load.claims)} claims, {load.carried_over} completed in another session than their own')
    for error, count in load.errors.most_common(10):
        print(f'clients saw {count} times: {error}')
    print('\n'.join(wrong) or 'the ledger is exact', flush=True)
    stop(pair)
    return not wrong


def stop(pair):
    postmasters = [node.postmaster()[0] for node in pair.nodes]
    processes.stop_all()
    for postmaster in filter(None, postmasters):
        send(signal.SIGKILL, tree(postmaster))


def main():
    programs, kills, *tools = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return not all([test(tool, programs, int(kills)) for tool in tools or TOOLS])
    finally:
        processes.stop_all()


if __name__ == '__main__':
    sys.exit(main())
