"""A monitor and two nodes of pg_auto_failover."""
import glob
import os
import shutil

from node import Node, Server
from processes import free_ports, kill_tree, run, start, wait_for

FILES = 'test/failover/pg_auto_failover'


def find_extension(programs):
    """The monitor's extension, put into the sandbox's copy of PostgreSQL."""
    prefix = os.environ['PATH'].split('/usr/lib/postgresql/')[0]
    for file in glob.glob(f'{programs}/usr/lib/postgresql/*/lib/*.so') + glob.glob(f'{programs}/usr/share/postgresql/*/extension/*'):
        link = prefix + file.removeprefix(programs)
        if not os.path.lexists(link):
            os.symlink(file, link)


def add(file, part):
    with open(file, 'a', encoding='utf-8') as out, open(part, encoding='utf-8') as settings:
        out.write(settings.read())


class PgAutoFailover:
    def __init__(self, directory, programs):
        self.directory = directory
        # Where pg_autoctl's servers have their sockets, and itself its files.
        os.environ.update(PG_REGRESS_SOCK_DIR=directory, PGHOST=directory, XDG_RUNTIME_DIR=directory)
        self.command = f'{programs}/usr/bin/pg_autoctl'
        find_extension(programs)
        monitor_port, *ports = free_ports(3)
        self.nodes = [Node(directory, number, port, monitor_port) for number, port in enumerate(ports, 1)]
        self.start_monitor(monitor_port)
        for node in self.nodes:
            self.create(node)
            self.start_keeper(node)
            wait_for(f'{node.name} runs', lambda: node.postmaster()[0] and (node.sql('SELECT 1')))
        self.wait_for_pair()

    def start_monitor(self, port):
        data, log = f'{self.directory}/monitor', f'{self.directory}/monitor.log'
        run(log, self.command, 'create', 'monitor', '--pgdata', data, '--pgport', str(port), '--hostname', '127.0.0.1', '--auth', 'trust', '--no-ssl',
            '--pgctl', shutil.which('pg_ctl'))
        add(f'{data}/postgresql.conf', f'{FILES}/monitor.conf')
        start(log, self.command, 'run', '--pgdata', data)
        self.monitor = Server(port, 'pg_auto_failover', 'autoctl_node')
        wait_for('the monitor runs', lambda: self.monitor.sql('SELECT 1'))

    def create(self, node):
        run(node.log, self.command, 'create', 'postgres', '--pgdata', node.data, '--pgport', str(node.port), '--listen', '127.0.0.1', '--pghost', '127.0.0.1',
            '--username', 'postgres', '--hostname', node.host, '--name', node.name, '--auth', 'trust', '--no-ssl',
            '--pgctl', shutil.which('pg_ctl'), '--monitor', f'postgres://autoctl_node@{node.service}/pg_auto_failover')
        run(node.log, self.command, 'config', 'set', '--pgdata', node.data, 'timeout.network_partition_timeout', '5')
        if node is self.nodes[0]:       # the other one is a copy of it
            add(f'{node.data}/postgresql.conf', f'{FILES}/node.conf')

    def start_keeper(self, node):
        node.keeper = start(node.log, self.command, 'run', '--pgdata', node.data)

    def wait_for_pair(self):
        """Until both are what the monitor wants them to be, a primary and its synchronous standby."""
        wait_for('primary and secondary', lambda: self.monitor.sql(
            "SELECT count(*) FROM pgautofailover.node WHERE reportedstate = goalstate AND goalstate IN ('primary', 'secondary')") == '2')
