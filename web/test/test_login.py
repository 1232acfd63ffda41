"""--login: one sees and may do what one's role may, and the server's log says who did it."""
import base64
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


def signed_in(role):
    client = Client(dashboard)
    reply = client.post('/login', {'role': role, 'password': role, 'token': client.token('/login')})
    assert (reply.status, reply.location) == (303, '/'), reply.body
    return client


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
        client = Client(dashboard)
        token = client.token('/login')
        wait_until(lambda: client.post('/login', {'role': 'nobody', 'password': 'x', 'token': token}).status == 429, 'it has to wait')
        self.assertEqual(signed_in('ann').get('/').status, 200)

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
