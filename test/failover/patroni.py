"""etcd, and two nodes of Patroni."""
import json
import os
import sys
import urllib.error
import urllib.request

from node import Node
from processes import free_ports, start, wait_for


class Patroni:
    def __init__(self, directory, programs):
        self.programs = programs
        self.configuration = f'{directory}/patroni.yml'
        with open('test/failover/patroni/patroni.yml', encoding='utf-8') as file, open(self.configuration, 'w', encoding='utf-8') as copy:
            # Sockets where the sandbox's user may make them.
            copy.write(file.read().replace('      parameters:\n', f'      parameters:\n        unix_socket_directories: {directory}\n'))
        etcd_port, peer, *ports = free_ports(6)
        etcd, peers = f'http://127.0.0.1:{etcd_port}', f'http://127.0.0.1:{peer}'
        start(f'{directory}/etcd.log', f'{programs}/usr/bin/etcd', '--data-dir', f'{directory}/etcd', '--listen-client-urls', etcd, '--advertise-client-urls', etcd,
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
        def roles(node):
            try:
                with urllib.request.urlopen(f'http://127.0.0.1:{self.api_ports[node]}/cluster', timeout=5) as answer:
                    return sorted((member['role'], member['state']) for member in json.load(answer)['members'])
            except urllib.error.HTTPError:
                return None
        wait_for('leader and synchronous standby', lambda: all(roles(node) == [('leader', 'running'), ('sync_standby', 'running')] for node in self.nodes))
