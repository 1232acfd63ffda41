"""Both servers at work for a while: the primary is cut off from its standby and from what decides, and the standby is promoted.
Jobs with an effect outside of the database run meanwhile: a file each (outside() in ledger.sql), which tells who ran it, and when."""
import collections
import os
import time

from processes import wait_for

JOBS = 1500
CASES = [(frozen, synchronous) for synchronous in ('off', 'on') for frozen in (False, True)]


def effects(pair):
    """When which job's effect took place, by server: {port: {n: [time, …]}}."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for name in os.listdir(pair.effects):
        port, number, at = name.split('.', 2)
        found[int(port)][int(number)].append(float(at))
    return found


def split(pair, primary_of, first, frozen, synchronous):
    """Returns a row of the table: how it went, and what ran where."""
    old = primary_of(pair)
    new, = [node for node in pair.nodes if node is not old]
    old.sql(f"""ALTER DATABASE postgres SET queue_jobs.synchronous_commit = {synchronous};
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor';     -- the next ones begin with it
        SELECT count(*) FROM queue_jobs.enqueue_many('outside', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series({first}, {first + JOBS - 1}) AS n));""")
    wait_for('jobs with effects run', lambda: any(number >= first for number in effects(pair)[old.port]))
    cut = time.time()
    if frozen:
        old.freeze_keeper()
    old.cut()
    promoted = wait_for(f'{new.name} is promoted', lambda: (since := new.ready_since()) and since > cut and since)
    wait_for(f'jobs with effects run on {new.name}', lambda: len([number for number in effects(pair)[new.port] if number >= first]) > 50)
    writable = bool(old.ready_since())
    after = sum(at > promoted for times in effects(pair)[old.port].values() for at in times)
    old.mend()
    if frozen:
        old.thaw_keeper()
    pair.wait_for_pair()
    found = effects(pair)
    both = [number for number in found[old.port] if number >= first and number in found[new.port]]
    new.sql("SELECT queue_jobs.remove_jobs('outside')")
    return (f'| {"its keeper hangs, too" if frozen else "cut off"} | {synchronous} | {promoted - cut:.1f} s | {"yes" if writable else "no"} | {after} | {len(both)} |',
            [] if frozen or not after else [f'{after} jobs ran on a primary that should have been fenced'])


def test(pair, primary_of):
    """What is wrong, one line each."""
    wrong = []
    print('| primary | queue_jobs.synchronous_commit | cut to promotion | then the old one lets clients write | runs on it after the promotion | effects outside that happened on both |\n|---|---|---|---|---|---|',
          flush=True)
    for number, case in enumerate(CASES):
        row, bad = split(pair, primary_of, 1 + number * JOBS, *case)
        print(row, flush=True)
        wrong += bad
    return wrong
