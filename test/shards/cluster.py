"""A router and shards, each a server of its own on this machine, set up as docs/how-to/shards.md says."""
import glob
import os
import re
import shutil
import signal
import subprocess

import page
from processes import free_ports, send, wait_for

OWN_SETTINGS = """
listen_addresses = '127.0.0.1'
fsync = on
max_connections = 60
timezone = 'UTC'
log_line_prefix = '%m [%p] %b %d %q%a '
queue_jobs.max_executors = 4
"""


def find_plproxy(programs):
    """The unpacked extension, put into the sandbox's copy of PostgreSQL."""
    prefix = os.environ['PATH'].split('/usr/lib/postgresql/')[0]
    for file in glob.glob(f'{programs}/usr/lib/postgresql/*/lib/*.so') + glob.glob(f'{programs}/usr/share/postgresql/*/extension/*'):
        link = prefix + file.removeprefix(programs)
        if not os.path.lexists(link):
            os.symlink(file, link)


class Server:
    def __init__(self, directory, name, template):
        self.name, self.data, self.log, self.sockets = name, f'{directory}/{name}', f'{directory}/{name}.log', directory
        self.port = free_ports(1)[0]
        shutil.copytree(template, self.data)
        self.configure(f"port = {self.port}\nunix_socket_directories = '{directory}'\n{OWN_SETTINGS}")

    def configure(self, settings):
        with open(f'{self.data}/postgresql.conf', 'a', encoding='utf-8') as file:
            file.write(settings)

    def conninfo(self, role='postgres', database='shop'):
        return f'host=127.0.0.1 port={self.port} dbname={database} user={role} connect_timeout=10'

    def start(self):
        """After kill() the processes of the old server may still hold its memory for a moment."""
        wait_for(f'{self.name} starts', lambda: subprocess.run(
            ['pg_ctl', '-s', '-w', '-D', self.data, '-l', self.log, 'start'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0)

    def stop(self):
        subprocess.run(['pg_ctl', '-s', '-D', self.data, '-m', 'immediate', 'stop'], stderr=subprocess.DEVNULL, check=False)

    def postmaster(self):
        with open(f'{self.data}/postmaster.pid', encoding='utf-8') as file:
            return int(file.readline())

    def kill(self):
        """The postmaster, at once; its processes end when they see it."""
        send(signal.SIGKILL, [self.postmaster()])

    def run(self, text, role='postgres', database='shop', plain=True):
        """Exit status of psql, and what it printed."""
        result = subprocess.run(['psql', '-Xq', *(['-At'] if plain else []), '-v', 'ON_ERROR_STOP=1', '-d', self.conninfo(role, database)], input=text,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        return result.returncode, result.stdout.strip()

    def sql(self, text, **options):
        status, printed = self.run(text, **options)
        if status == 2:
            raise OSError(printed)
        if status:
            raise RuntimeError(f'{self.name}: {printed}')
        return printed


class Cluster:
    def __init__(self, directory, shards, settings=''):
        template = f'{directory}/template'
        subprocess.run(['initdb', '-D', template, '-U', 'postgres', '-A', 'trust', '-N', '-E', 'UTF8', '--no-locale'], stdout=subprocess.DEVNULL, check=True)
        self.examples = page.examples()
        self.router = Server(directory, 'router', template)
        self.shards = [Server(directory, f'shard{n}', template) for n in range(shards)]
        self.by_name = {server.name: server for server in self.servers}
        for example in self.examples:
            if example.language == 'ini':
                for server in self.targets(example):
                    server.configure(example.text + settings)
        for server in self.servers:
            server.start()
            server.sql('CREATE DATABASE shop', database='postgres')

    @property
    def servers(self):
        return [self.router, *self.shards]

    def targets(self, example):
        return self.shards if example.server == 'shards' else [self.by_name[example.server]]

    def addressed(self, text):
        """With this machine's addresses in place of the page's."""
        return re.sub(r'host=(shard\d)', lambda found: f'host=127.0.0.1 port={self.by_name[found[1]].port}', text)

    def run_example(self, example, swap=False):
        """Runs it where it belongs. Swapped: a move in the other direction. An error if it fails, or prints anything else."""
        text, server = example.text, example.server
        if swap:
            text = text.replace('shard0', 'shard_').replace('shard1', 'shard0').replace('shard_', 'shard1').replace('SET shard = 1', 'SET shard = 0')
            server = {'shard0': 'shard1', 'shard1': 'shard0'}.get(server, server)
        for target in self.shards if server == 'shards' else [self.by_name[server]]:
            def look(target=target):
                status, printed = target.run(self.addressed(text), role=example.role, plain=example.until)
                good = printed == 't' if example.until else not status and (example.expected is None or page.printed(printed) == page.printed(example.expected))
                if not good and not example.until and not example.retry:
                    raise (OSError if status == 2 else RuntimeError)(f'{target.name}: {example.title}: {printed}')
                return good
            if example.until or example.retry:
                wait_for(f'{target.name}: {example.title}', look)
            else:
                look()

    def stop(self):
        for server in self.servers:
            server.stop()
