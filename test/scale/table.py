"""Tables of what each job takes, from what the counting server's processes have written: table.py FOLDER MHZ"""
import collections
import glob
import os
import re
import sys

folder, mhz = sys.argv[1], float(sys.argv[2])
BUCKETS = 32


class Count:
    """What all sessions took of one thing."""

    def __init__(self):
        self.shared = self.exclusive = self.blocked = 0
        self.held = [0] * BUCKETS

    def add(self, shared, exclusive, blocked, held):
        self.shared += shared
        self.exclusive += exclusive
        self.blocked += blocked
        self.held = [a + b for a, b in zip(self.held, held)]

    def median_ns(self):
        """The median of how long it was held, within a factor of the bucket's width."""
        wanted, seen = sum(self.held) / 2, 0
        for bucket, n in enumerate(self.held):
            if n and seen + n >= wanted:
                return 2 ** (bucket + (wanted - seen) / n) / mhz * 1000
            seen += n
        return None


def relation_name(filenode, relations):
    name = relations.get(filenode, 'catalogs')
    name = re.sub(r'^finished_job_\d+_\d+', 'finished_job', name)
    return 'catalogs' if name.startswith(('pg_', 'sql_')) else name


class Run:
    """One kind of work with so many sessions."""

    def __init__(self, kind, sessions):
        self.kind, self.sessions = kind, sessions
        self.base = os.path.join(folder, '%s.%d' % (kind, sessions))
        self.things = collections.defaultdict(Count)    # by what they are
        self.single = collections.defaultdict(Count)    # each lock and page
        self.transactions = self.processes = 0
        with open(self.base + '.relations') as file:
            self.relations = dict(line.split() for line in file)
        wanted = 'queue_jobs executor' if kind == 'execute' else 'client backend'
        found = [(sum(line[5] for line in lines if line[:2] == ('lwlock', 'XidGen')), lines) for name, lines in self.read() if name == wanted]
        most = max((transactions for transactions, lines in found), default=0)
        for transactions, lines in found:
            if transactions * 20 > most:    # and not those that observe
                self.processes += 1
                self.transactions += transactions
                for line in lines:
                    self.count(*line)
        self.jobs = self.transactions * (10 if kind == 'claim_10' else 1)

    def read(self):
        process = None
        with open(self.base + '.counts') as file:
            for line in file:
                fields = line.rstrip('\n').split('\t')
                if fields[0] == 'process':
                    if process:
                        yield process
                    process = (fields[1], [])
                else:
                    process[1].append((fields[0], fields[1], fields[2], fields[3], *map(int, fields[4:7]),
                                       list(map(int, fields[7].split(',')))))
        if process:
            yield process

    def count(self, kind, tranche, address, page, shared, exclusive, blocked, held):
        where = ''
        if page:
            where = relation_name(page.split('.')[0], self.relations)
        if kind == 'pin':
            name, one = 'pin ' + where, 'pin %s %s' % (where, page)
        elif kind == 'spin':
            name = one = 'spin %s:%s' % (tranche, address)
        else:
            name = 'LWLock %s %s' % (tranche, where)
            one = '%s %s %s' % (tranche, where, page or address)
        self.things[name.strip()].add(shared, exclusive, blocked, held)
        self.single[one].add(shared, exclusive, blocked, held)

    def per_job(self, name):
        c = self.things.get(name)
        return None if c is None else (c.shared / self.jobs, c.exclusive / self.jobs, c.blocked / self.jobs)

    def sums(self):
        result = collections.Counter()
        for name, c in self.things.items():
            kind = name.split(' ', 1)[0]
            for what in ('shared', 'exclusive', 'blocked'):
                result[kind + ' ' + what] += getattr(c, what) / self.jobs
        return result

    def wal(self):
        with open(self.base + '.wal') as file:
            before, after = (list(map(int, line.split())) for line in file)
        return [b - a for a, b in zip(before, after)]

    def waits(self):
        with open(self.base + '.waits') as file:
            counted = collections.Counter(line.strip() for line in file)
        total = sum(counted.values()) or 1
        return ', '.join('%s %.0f %%' % (name, 100 * n / total) for name, n in counted.most_common(6))


def number(value):
    return '' if value is None else '0' if value == 0 else '%.2f' % value if value < 10 else '%.0f' % value


def row(*cells):
    print('| ' + ' | '.join(str(c) for c in cells) + ' |')


def head(*cells):
    row(*cells)
    print('|---' * len(cells) + '|')


def main():
    runs = collections.defaultdict(list)
    for path in glob.glob(os.path.join(folder, '*.counts')):
        kind, sessions = os.path.basename(path).split('.')[:2]
        run = Run(kind, int(sessions))
        if run.jobs:
            runs[kind].append(run)
        else:
            print('%s with %s sessions: no job was counted' % (kind, sessions), file=sys.stderr)
    for kind in [k for k in ('enqueue', 'execute', 'claim', 'claim_10') if k in runs]:
        of_kind = sorted(runs[kind], key=lambda run: run.sessions)
        print('\n## %s\n' % kind)
        head('a job takes', *('%d sessions' % run.sessions for run in of_kind))
        row('jobs counted (sessions seen)', *('%d (%d)' % (run.jobs, run.processes) for run in of_kind))
        sums = [run.sums() for run in of_kind]
        for label, key in (('LWLocks shared', 'LWLock shared'), ('LWLocks exclusive', 'LWLock exclusive'), ('waits for LWLocks', 'LWLock blocked'),
                           ('spinlocks', 'spin exclusive'), ('of these found taken', 'spin blocked'), ('pins of buffers', 'pin shared')):
            row(label, *('%.4f' % s[key] if 'waits' in label or 'taken' in label else number(s[key]) for s in sums))
        for i, label in enumerate(('WAL records', 'page images', 'WAL bytes', 'WAL writes', 'WAL syncs')):
            row(label + ', whole server', *(number(run.wal()[i] / run.jobs) for run in of_kind))
        names = set(name for run in of_kind for name in run.things)
        most = {name: max(sum((run.per_job(name) or (0, 0, 0))[:2]) for run in of_kind) for name in names}
        print('\nA job takes shared + exclusive; waits of 1000 jobs; held exclusively, median with one session and with the most\n')
        head('what', *('%d' % run.sessions for run in of_kind), *('waits %d' % run.sessions for run in of_kind), 'ns')
        for name in sorted(names, key=lambda name: -most[name]):
            if most[name] < 0.02:
                continue
            taken = [run.per_job(name) for run in of_kind]
            cells = ['' if t is None else number(t[0]) if t[1] == 0 else number(t[1]) if name.startswith('spin') else number(t[0]) + ' + ' + number(t[1])
                     for t in taken]
            waits = ['' if t is None else number(1000 * t[2]) for t in taken]
            held = [run.things[name].median_ns() for run in (of_kind[0], of_kind[-1]) if name in run.things]
            row(name, *cells, *waits, ' … '.join('%.0f' % h for h in held if h))
        print('\nSingle locks and pages that were taken most\n')
        for run in of_kind:
            hot = sorted(run.single.items(), key=lambda item: -item[1].exclusive)
            print('- %d sessions, exclusively: %s' % (run.sessions, '; '.join('%s %.2f (%s ns)' % (name, c.exclusive / run.jobs, number(c.median_ns()))
                                                                              for name, c in hot if not name.startswith('spin'))[:1200]))
            pins = sorted((item for item in run.single.items() if item[0].startswith('pin')), key=lambda item: -item[1].shared)
            print('  pinned: %s' % '; '.join('%s %.2f' % (name[4:], c.shared / run.jobs) for name, c in pins[:12]))
            print('  waits sampled: %s' % run.waits())


main()
