"""A node: a server, the tool's process that looks after it, and the link through which the others reach it."""
import os
import signal
import subprocess
import sys

from processes import free_ports, kill_tree, send, start, tree


class Server:
    def __init__(self, port, database='postgres', user='postgres'):
        self.port = port
        self.conninfo = f'host=127.0.0.1 port={port} dbname={database} user={user} connect_timeout=5'

    def sql(self, text):
        """The answer of this server, without the link. OSError if it has none."""
        try:
            result = subprocess.run(['psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', self.conninfo],
                                    input=text, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired as late:
            raise OSError('no answer') from late
        if result.returncode == 3:
            raise RuntimeError(result.stderr)
        if result.returncode:
            raise OSError(result.stderr)
        return result.stdout.strip()


class Node(Server):
    def __init__(self, directory, number, port, service_port):
        super().__init__(port)
        self.name = f'node{number}'
        self.host = f'127.0.0.1{number}'      # for the others, through the link; the server itself listens on 127.0.0.1
        self.data = f'{directory}/{self.name}'
        self.log = f'{directory}/{self.name}.log'
        self.keeper = None
        # Both ways: the others' to the server, and its own to the service, which is the monitor or etcd.
        self.service = f'{self.host}:{free_ports(1)[0]}'
        self.link = start(self.log, sys.executable, '-B', 'test/failover/link.py', f'{self.host}:{port}={port}', f'{self.service}={service_port}')

    def postmaster(self):
        """Its process id, and since when it has been ready: for readers, then, promoted, for writers. What it says in its file."""
        try:
            with open(f'{self.data}/postmaster.pid') as file:
                lines = file.read().split('\n')
                since = os.fstat(file.fileno()).st_mtime
            os.kill(int(lines[0]), 0)
            return int(lines[0]), since if lines[7].strip() == 'ready' else None
        except (OSError, ValueError, IndexError):
            return None, None

    def ready_since(self):
        """Since when it lets clients write, if it does. A tool may have it promoted, but read-only for a while: until a reload. At the moment
        of promotion this may still be when it was ready for readers, so callers ask for a time after an event."""
        if not self.postmaster()[1]:
            return None
        try:
            writable, reload = self.sql("""SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off',
                extract(epoch FROM pg_conf_load_time())""").split('|')
        except OSError:
            return None
        since = self.postmaster()[1]
        return max(since, float(reload)) if writable == 't' and since else None

    def kill_postmaster(self):
        send(signal.SIGKILL, [self.postmaster()[0]])

    def kill(self):
        """All of the node, as if its machine had lost power."""
        postmaster = self.postmaster()[0]
        backends = tree(postmaster)
        kill_tree(self.keeper)
        send(signal.SIGKILL, backends)

    def freeze_keeper(self):
        send(signal.SIGSTOP, set(tree(self.keeper.pid)) - set(tree(self.postmaster()[0])))

    def thaw_keeper(self):
        send(signal.SIGCONT, tree(self.keeper.pid))

    def cut(self):
        send(signal.SIGSTOP, [self.link.pid])

    def mend(self):
        send(signal.SIGCONT, [self.link.pid])
