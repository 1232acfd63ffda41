"""--login: one sees and may do what one's role may, and the server's log says who did it."""
import base64
import contextlib
import socket
import threading
import time
import unittest

from client import Client
from support import Dashboard, Server
from webdriver import wait_until

server = None
dashboard = None


def setUpModule():
    global server, dashboard
    server = Server()
    dashboard = Dashboard(server, '--login', program='queue_jobs_web_sanitized')


def tearDownModule():
    status = dashboard.stop()
    server.stop()
    if 'LeakSanitizer has encountered a fatal error' not in dashboard.errors and (status != 0 or dashboard.errors):
        raise AssertionError('the dashboard ended with %d: %s' % (status, dashboard.errors))


def attempt(role, password, address=None, client=None):
    """A try to sign in, as a proxy on this machine passes it on."""
    client = client or Client(dashboard)
    return client.post('/login', {'role': role, 'password': password, 'token': client.token('/login')},
                       {'X-Forwarded-For': address} if address else None)


def signed_in(role, address=None):
    client = Client(dashboard)
    reply = attempt(role, role, address, client)
    assert (reply.status, reply.location) == (303, '/'), reply.body
    return client


def within_a_minute(test):
    """What is counted is counted for a minute: a test that this machine was too slow for is begun again."""
    def repeated(self):
        for turn in range(20):
            start = time.monotonic()
            try:
                return test(self, turn)
            except AssertionError:
                if time.monotonic() - start < 55:
                    raise
        raise AssertionError('never within a minute')
    return repeated


class Login(unittest.TestCase):
    def setUp(self):
        self.job = server.psql("SELECT min(id) FROM queue_jobs.job WHERE worker = 'of_ann' AND state = 'scheduled'")

    def test_nothing_without(self):
        for path in ['/', '/jobs', '/jobs/' + self.job, '/queues', '/executors']:
            reply = Client(dashboard).get(path)
            self.assertEqual((reply.status, reply.location), (303, '/login'), path)
        client = Client(dashboard)
        reply = client.post('/action/cancel', {'id': self.job, 'sure': 'yes', 'token': client.token('/login')})
        self.assertEqual((reply.status, reply.location), (303, '/login'))
        self.assertEqual(server.state(self.job), 'scheduled')

    def test_sees_its_own(self):
        ann, bob = signed_in('ann'), signed_in('bob')
        self.assertIn('ann alone', ann.get('/jobs').body)
        self.assertIn('ann alone', ann.get('/jobs/' + self.job).body)
        self.assertNotIn('ann alone', bob.get('/jobs').body)
        self.assertEqual(bob.get('/jobs/' + self.job).status, 404)

    def test_may_do_its_own(self):
        ann, bob = signed_in('ann'), signed_in('bob')
        job = server.psql("SELECT queue_jobs.enqueue('of_ann', delay => '1 day')", role='ann')
        reply = bob.post('/action/cancel', {'id': job, 'sure': 'yes', 'token': bob.token()})
        self.assertEqual(reply.status, 422)
        self.assertIn('42501', reply.body)
        self.assertEqual(server.state(job), 'scheduled')
        reply = ann.post('/action/cancel', {'id': job, 'sure': 'yes', 'token': ann.token(), 'back': '/jobs'})
        self.assertEqual(reply.status, 303)
        self.assertEqual(server.state(job), 'cancelled')
        self.assertRegex(server.logged(), r'ann queue_jobs_web LOG:  execute <unnamed>: SELECT queue_jobs\.cancel')

    def test_session(self):
        """Another id at the sign-in than before, and none that counts after the sign-out."""
        client = Client(dashboard)
        token = client.token('/login')
        before = client.cookies['queue_jobs_web']
        client.post('/login', {'role': 'ann', 'password': 'ann', 'token': token})
        session = client.cookies['queue_jobs_web']
        self.assertNotEqual(session, before)
        self.assertEqual(client.get('/').status, 200)
        self.assertEqual(client.post('/logout', {'token': client.token()}).location, '/login')
        client.cookies['queue_jobs_web'] = session
        self.assertEqual(client.get('/').location, '/login')

    def test_wrong_password(self):
        client = Client(dashboard)
        for password in ['wrong', 'bob', '']:
            reply = client.post('/login', {'role': 'ann', 'password': password, 'token': client.token('/login')})
            self.assertIn(reply.status, (403, 422))
        self.assertEqual(client.get('/').location, '/login')

    def test_role_without_password(self):
        """The server lets the role in without one: here it does not come in."""
        client = Client(dashboard)
        reply = client.post('/login', {'role': 'open', 'password': 'any', 'token': client.token('/login')})
        self.assertEqual(reply.status, 403)
        self.assertIn('no password', reply.body)

    def test_guessing(self):
        wait_until(lambda: attempt('nobody', 'x').status == 429, 'it has to wait')
        self.assertEqual(signed_in('ann').get('/').status, 200)

    @within_a_minute
    def test_count_is_kept(self, turn):
        """Other names, and other addresses, do not make the program forget what a role has tried from an address."""
        victim, address = 'victim%d' % turn, '203.0.113.%d' % turn
        statuses = [attempt(victim, 'x', address).status for _ in range(6)]
        self.assertEqual(statuses, [403] * 5 + [429])
        for n in range(70):
            attempt('name%d' % n, 'x', '198.51.100.%d' % n)
        self.assertEqual(attempt(victim, 'x', address).status, 429)

    @within_a_minute
    def test_at_once(self, turn):
        """Sixty tries at once are no more than sixty one after the other."""
        statuses = []
        start = threading.Barrier(60)

        def try_it():
            client = Client(dashboard)
            token = client.token('/login')
            start.wait()
            statuses.append(client.post('/login', {'role': 'crowd%d' % turn, 'password': 'x', 'token': token},
                                        {'X-Forwarded-For': '192.0.2.%d' % turn}).status)

        threads = [threading.Thread(target=try_it) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(statuses.count(403), 5)
        self.assertEqual(statuses.count(403) + statuses.count(429) + statuses.count(503), 60)

    @within_a_minute
    def test_strangers_keep_nobody_out(self, turn):
        """The role is flooded from everywhere; from where it has signed in before, it still comes in."""
        home = '192.0.2.%d' % (100 + turn)
        signed_in('bob', home)
        flood = [attempt('bob', 'x', '198.18.%d.%d' % (turn, n)).status for n in range(25)]
        self.assertEqual(flood[-1], 429)
        self.assertEqual(attempt('bob', 'bob', '198.18.%d.200' % turn).status, 429)
        self.assertEqual(signed_in('bob', home).get('/').status, 200)
        self.assertEqual(signed_in('ann', '192.0.2.%d' % (130 + turn)).get('/').status, 200)

    @within_a_minute
    def test_address_tries_every_role(self, turn):
        spray = [attempt('role%d' % n, 'x', '203.0.113.%d' % (100 + turn)).status for n in range(31)]
        self.assertEqual(spray, [403] * 30 + [429])

    @within_a_minute
    def test_last_forwarded_address_counts(self, turn):
        """The proxy adds the address that it sees to what the browser has sent; IPv6 counts by the network."""
        for kind, addresses in (('four', ['10.0.%d.%d, 203.0.113.%d' % (turn, n, 200 + turn) for n in range(6)]),
                                ('six', ['2001:db8:0:%d::%d' % (turn, n) for n in range(1, 7)])):
            statuses = [attempt('%s%d' % (kind, turn), 'x', address).status for address in addresses]
            self.assertEqual(statuses, [403] * 5 + [429], kind)

    def test_sessions_of_a_role(self):
        """A role that signs in again and again ends its own sessions, and keeps no other role out."""
        bob = signed_in('bob', '192.0.2.201')
        first = signed_in('ann', '192.0.2.200')
        latest = [signed_in('ann', '192.0.2.200') for _ in range(70)][-1]
        self.assertEqual(first.get('/').location, '/login')
        self.assertEqual(latest.get('/').status, 200)
        self.assertEqual(bob.get('/').status, 200)
        self.assertEqual(signed_in('bob', '192.0.2.201').get('/').status, 200)

    def test_silent_connections(self):
        """As many connections as there may be, which send nothing: those who are in, and new ones, are answered."""
        ann = signed_in('ann', '192.0.2.202')
        with contextlib.ExitStack() as silent:
            for _ in range(400):
                silent.enter_context(socket.create_connection(('127.0.0.1', dashboard.port), timeout=60))
            self.assertEqual(ann.get('/').status, 200)
            self.assertEqual(Client(dashboard).get('/login').status, 200)

    def test_conninfo_in_the_name(self):
        client = Client(dashboard)
        reply = client.post('/login', {'role': "postgres' dbname=template1", 'password': 'x', 'token': client.token('/login')})
        self.assertEqual(reply.status, 403)

    def test_metrics(self):
        client = Client(dashboard)
        reply = client.get('/metrics')
        self.assertEqual(reply.status, 401)
        self.assertIn('Basic', reply.headers['WWW-Authenticate'])
        wrong = base64.b64encode(b'bob:wrong').decode()
        self.assertEqual(client.get('/metrics', Authorization='Basic ' + wrong).status, 401)
        right = base64.b64encode(b'bob:bob').decode()
        reply = client.get('/metrics', Authorization='Basic ' + right)
        self.assertEqual(reply.status, 200 if server.has('metric') else 503)

    def test_health_tells_nothing(self):
        reply = Client(dashboard).get('/healthz')
        self.assertEqual((reply.status, reply.body), (200, 'ok\n'))
