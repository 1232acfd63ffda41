"""etcd, and two nodes of Patroni."""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

from node import Node
from processes import free_ports, start, wait_for

MEND_AFTER = 120      # seconds


class Patroni:
    def __init__(self, directory, programs):
        self.programs = programs
        self.configuration = f'{directory}/patroni.yml'
        with open('test/failover/patroni/patroni.yml', encoding='utf-8') as file, open(self.configuration, 'w', encoding='utf-8') as copy:
            # Sockets where the sandbox's user may make them.
            copy.write(file.read().replace('      parameters:\n', f'      parameters:\n        unix_socket_directories: {directory}\n'))
        etcd_port, peer, *ports = free_ports(6)
        self.etcd, peers = f'http://127.0.0.1:{etcd_port}', f'http://127.0.0.1:{peer}'
        start(f'{directory}/etcd.log', f'{programs}/usr/bin/etcd', '--data-dir', f'{directory}/etcd', '--listen-client-urls', self.etcd, '--advertise-client-urls', self.etcd,
              '--listen-peer-urls', peers, '--initial-advertise-peer-urls', peers, '--initial-cluster', f'default={peers}')
        self.nodes = [Node(directory, number, ports[number], etcd_port) for number in (1, 2)]
        self.api_ports = dict(zip(self.nodes, (ports[0], ports[3])))
        for node in self.nodes:
            self.start_keeper(node)
        self.wait_for_pair()

    def start_keeper(self, node):
        api = f'127.0.0.1:{self.api_ports[node]}'
        node.keeper = start(node.log, sys.executable, f'{self.programs}/usr/bin/patroni', self.configuration, env={
            'PYTHONPATH': f'{self.programs}/usr/lib/python3/dist-packages',
            'PATRONI_NAME': node.name,
            'PATRONI_POSTGRESQL_LISTEN': f'127.0.0.1:{node.port}',
            'PATRONI_POSTGRESQL_CONNECT_ADDRESS': f'{node.host}:{node.port}',
            'PATRONI_POSTGRESQL_DATA_DIR': node.data,
            'PATRONI_POSTGRESQL_PGPASS': f'{node.data}.pgpass',
            'PATRONI_RESTAPI_LISTEN': api,
            'PATRONI_RESTAPI_CONNECT_ADDRESS': api,
            # Through the link, and no other way that etcd may name.
            'PATRONI_ETCD3_HOST': node.service,
            'PATRONI_ETCD3_USE_PROXIES': 'true'})

    def wait_for_pair(self):
        """Until one leads and the other is its synchronous standby."""
        try:
            wait_for('leader and synchronous standby', self.is_pair, limit=MEND_AFTER)
        except TimeoutError:
            self.mend_sync_key()
            wait_for('leader and synchronous standby', self.is_pair)

    def is_pair(self):
        return all(sorted(self.roles(node).values()) == [('leader', 'running'), ('sync_standby', 'running')] for node in self.nodes)

    def roles(self, node):
        """Role and state of each, by name, as this node's Patroni knows them; none if it knows no leader."""
        try:
            return {member['name']: (member['role'], member['state']) for member in self.ask(node, 'cluster')['members']}
        except urllib.error.HTTPError:
            return {}

    def mend_sync_key(self):
        """A leader that hung, and wakes up, writes its name into the key of synchronous standbys before it sees that it leads no more. Patroni 3.0.2
        then never writes the new leader's: it logs "Synchronous replication key updated by someone else". Without synchronous mode it deletes the key."""
        print(f'# no synchronous standby for {MEND_AFTER} s: synchronous_mode off and on', flush=True)
        leader = wait_for('a leader', lambda: next((node for node in self.nodes if self.roles(node).get(node.name) == ('leader', 'running')), None))
        self.ask(leader, 'config', {'synchronous_mode': False})
        wait_for('no key of synchronous standbys', lambda: not self.sync_key())
        self.ask(leader, 'config', {'synchronous_mode': True})

    def sync_key(self):
        return subprocess.run([f'{self.programs}/usr/bin/etcdctl', '--endpoints', self.etcd, 'get', '/service/shop/sync'], check=True, capture_output=True,
                              env=os.environ | {'ETCDCTL_API': '3'}).stdout

    def ask(self, node, path, change=None):
        """The answer of this node's Patroni."""
        request = urllib.request.Request(f'http://127.0.0.1:{self.api_ports[node]}/{path}', method='PATCH' if change else 'GET',
                                         data=json.dumps(change).encode() if change else None)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)
