"""What no browser sends: forged, malformed, oversized and slow requests. The dashboard runs with sanitizers."""
import concurrent.futures
import html
import html.parser
import random
import re
import socket
import threading
import time
import unittest
import urllib.parse

from client import LIMIT, Client, raw
from support import NASTY, Dashboard, Server
from webdriver import wait_until

server = None
dashboard = None
slow = None
PAGES = ['/', '/jobs', '/jobs/1', '/queues', '/workers', '/worker?name=work', '/schedules', '/batches', '/replicas', '/executors']


class Inline(html.parser.HTMLParser):
    """Script and style that stand in the page itself."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        if tag == 'style' or (tag == 'script' and 'src' not in names) or any(name == 'style' or name.startswith('on') for name in names):
            self.found.append((tag, attributes))


class SlowClients(threading.Thread):
    """Clients that send a byte now and then, until the dashboard has had enough of each."""

    def run(self):
        self.left = [socket.create_connection(('127.0.0.1', dashboard.port)) for _ in range(50)]
        deadline = time.monotonic() + LIMIT
        for connection in self.left:
            connection.sendall(b'GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ')
            connection.settimeout(0.01)
        while self.left and time.monotonic() < deadline:
            self.left = [connection for connection in self.left if self.is_there(connection)]
            time.sleep(0.5)

    @staticmethod
    def is_there(connection):
        try:
            connection.sendall(b'a')
            if connection.recv(1) != b'':
                return True
        except socket.timeout:
            return True
        except ConnectionError:
            pass
        connection.close()
        return False


def setUpModule():
    global server, dashboard, slow
    server = Server()
    dashboard = Dashboard(server, program='queue_jobs_web_sanitized')
    slow = SlowClients(daemon=True)
    slow.start()


def tearDownModule():
    status = dashboard.stop()
    server.stop()
    # Where the system does not let it trace threads, the leak checker says so.
    if 'LeakSanitizer has encountered a fatal error' not in dashboard.errors and (status != 0 or dashboard.errors):
        raise AssertionError('the dashboard ended with %d: %s' % (status, dashboard.errors))


class Forged(unittest.TestCase):
    def setUp(self):
        self.client = Client(dashboard)
        self.job = server.psql("SELECT queue_jobs.enqueue('later', delay => '1 day')")

    def refused(self, reply, status):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(server.state(self.job), 'scheduled')

    def test_without_token(self):
        self.client.get('/')
        self.refused(self.client.post('/action/cancel', {'id': self.job, 'sure': 'yes'}), 403)

    def test_with_the_token_of_another(self):
        token = Client(dashboard).token()
        self.client.get('/')
        self.refused(self.client.post('/action/cancel', {'id': self.job, 'sure': 'yes', 'token': token}), 403)

    def test_without_cookie(self):
        token = self.client.token()
        self.client.cookies = {}
        self.refused(self.client.post('/action/cancel', {'id': self.job, 'sure': 'yes', 'token': token}), 403)

    def test_from_another_site(self):
        fields = {'id': self.job, 'sure': 'yes', 'token': self.client.token()}
        self.refused(self.client.post('/action/cancel', fields, {'Sec-Fetch-Site': 'cross-site'}), 403)
        self.refused(self.client.post('/action/cancel', fields, {'Sec-Fetch-Site': 'same-site'}), 403)

    def test_as_another_type(self):
        fields = {'id': self.job, 'sure': 'yes', 'token': self.client.token()}
        self.refused(self.client.post('/action/cancel', fields, {'Content-Type': 'text/plain'}), 415)

    def test_by_get(self):
        self.refused(self.client.get('/action/cancel?id=%s&sure=yes&token=%s' % (self.job, self.client.token())), 404)

    def test_with_all_that_it_takes(self):
        reply = self.client.post('/action/cancel', {'id': self.job, 'sure': 'yes', 'token': self.client.token(), 'back': '/jobs/' + self.job})
        self.assertEqual((reply.status, reply.location), (303, '/jobs/' + self.job))
        self.assertEqual(server.state(self.job), 'cancelled')
        # A refresh of the page before, which may come first, does not take the message away.
        self.assertNotIn('The job is cancelled.', self.client.get('/jobs/' + self.job, X_Refresh='1').body)
        self.assertIn('The job is cancelled.', self.client.get('/jobs/' + self.job).body)
        self.assertNotIn('The job is cancelled.', self.client.get('/jobs/' + self.job).body)

    def test_back_is_of_this_server(self):
        for back in ['//evil.example/', 'https://evil.example/', '/\\evil.example', '/a\r\nX: y', '']:
            reply = self.client.post('/action/resume', {'queue': 'work', 'token': self.client.token(), 'back': back})
            self.assertEqual((reply.status, reply.location), (303, '/'), back)

    def test_host(self):
        for host, status in [('evil.example', 421), ('127.0.0.1.evil.example', 421), ('localhost@evil.example', 421), ('', 421),
                             ('localhost:1', 200), ('LOCALHOST', 200), ('[::1]:9', 200)]:
            self.assertEqual(self.client.get('/', Host=host).status, status, host)


class Headers(unittest.TestCase):
    def test_pages(self):
        for path in PAGES + ['/nothing']:
            headers = Client(dashboard).get(path).headers
            policy = headers['Content-Security-Policy']
            self.assertIn("default-src 'none'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn('unsafe', policy)
            self.assertEqual(headers['X-Content-Type-Options'], 'nosniff')
            self.assertEqual(headers['Cache-Control'], 'no-store')

    def test_cookie(self):
        cookie = Client(dashboard).get('/').headers['Set-Cookie']
        for attribute in ['HttpOnly', 'SameSite=Strict', 'Path=/']:
            self.assertIn(attribute, cookie)
        self.assertNotIn('Secure', cookie)
        self.assertIn('Secure', Client(dashboard).get('/', X_Forwarded_Proto='https').headers['Set-Cookie'])

    def test_nothing_inline(self):
        for path in PAGES:
            inline = Inline()
            inline.feed(Client(dashboard).get(path).body)
            self.assertEqual(inline.found, [], path)


class Pages(unittest.TestCase):
    def test_status(self):
        for path in PAGES + ['/style.css', '/script.js']:
            self.assertEqual(Client(dashboard).get(path).status, 200, path)
        for path in ['/nothing', '/jobs/', '/jobs/x', "/jobs/1'", '/jobs/99999999999999999999', '/jobs/999999999', '/worker?name=no', '/../etc/passwd']:
            self.assertEqual(Client(dashboard).get(path).status, 404, path)

    def test_names_are_text(self):
        job = server.psql("SELECT id FROM queue_jobs.job WHERE worker = :'nasty'", nasty=NASTY)
        for path in ['/', '/jobs', '/jobs/' + job, '/queues', '/workers', '/worker?name=' + urllib.parse.quote(NASTY, safe=''), '/schedules']:
            body = Client(dashboard).get(path).body
            self.assertIn('&lt;b id=&quot;pwned&quot;', body, path)
            self.assertNotIn('<b id=', body, path)
            self.assertNotIn('<script>', body, path)

    def test_parameters_are_values(self):
        for name in ['worker', 'queue', 'state', 'args', 'error', 'batch', 'since', 'until', 'tags', 'before']:
            for value in ["'; DROP SCHEMA queue_jobs CASCADE; --", '1) OR (1=1', '"', '\\', '{"a"', '%', '$1', '💥', 'x' * 3000]:
                reply = Client(dashboard).get('/jobs?' + urllib.parse.urlencode({name: value}))
                self.assertEqual(reply.status, 200, value)
        self.assertEqual(server.psql("SELECT count(*) > 250 FROM queue_jobs.job"), 't')

    def test_options_of_one_job(self):
        job = server.psql("SELECT id FROM queue_jobs.job WHERE args ->> 'n' = 'own'")
        body = Client(dashboard).get('/jobs/' + job).body
        for text in ['0 of 8', 'max_retries 7', 'timeout', '00:01:30', '3 days', '>a, b</a>', '>%s</a>' % NASTY]:
            self.assertIn(text, html.unescape(body))
        # The links of its tags find it, and so does what a user types.
        links = [html.unescape(link) for link in re.findall(r'href="(/jobs\?tags=[^"]*)"', body)]
        typed = '/jobs?' + urllib.parse.urlencode({'tags': '{"a, b"}'})
        for path in links + [typed]:
            self.assertEqual(re.findall(r'<tr data-key="(\d+)"', Client(dashboard).get(path).body), [job], path)
        self.assertEqual(len(links), 2)
        self.assertEqual(re.findall(r'<tr data-key="(\d+)"', Client(dashboard).get('/jobs?tags=a').body), [])
        self.assertNotIn('class="problem"', Client(dashboard).get('/jobs/1').body)
        two = server.psql("SELECT queue_jobs.enqueue('later', delay => '1 day', tags => '{red,green}')")
        self.assertEqual(re.findall(r'<tr data-key="(\d+)"', Client(dashboard).get('/jobs?tags=green,+red').body), [two])

    def test_how_far_a_job_is(self):
        server.psql("SELECT queue_jobs.define_worker('far'); SELECT queue_jobs.enqueue('far') FROM generate_series(1, 2)")
        share, count = server.psql("SELECT string_agg(id::text, ',' ORDER BY id) FROM queue_jobs.claim('c', '{far}', 2)").split(',')
        server.psql("SELECT queue_jobs.report(%s, 1, 0.4, '<b>row</b> 40'), queue_jobs.report(%s, 1, 4000)" % (share, count))
        bodies = [Client(dashboard).get('/jobs/' + share).body, re.search('<tr data-key="%s">.*' % share, Client(dashboard).get('/jobs?worker=far').body).group()]
        for body in bodies:
            for text in ['<rect class="done" width="40"', '40 %', '&lt;b&gt;row&lt;/b&gt; 40']:
                self.assertIn(text, body)
        bodies = [Client(dashboard).get('/jobs/' + count).body, re.search('<tr data-key="%s">.*' % count, Client(dashboard).get('/jobs?worker=far').body).group()]
        for body in bodies:
            self.assertIn('4000', body)
            self.assertNotIn('class="progress"', body)
        server.psql("SELECT queue_jobs.complete(%s, 1)" % share)
        self.assertIn('40 %', Client(dashboard).get('/jobs/' + share).body)

    def test_until_when_a_debounced_job_waits(self):
        job = server.psql("SELECT id FROM queue_jobs.job WHERE args ->> 'n' = 'debounced'")
        self.assertIn('each call that debounces it puts it off, until ', Client(dashboard).get('/jobs/' + job).body)

    def test_options_of_a_worker(self):
        server.psql("SELECT queue_jobs.define_worker('opts', retry_for => '2 h', if_waiting => 'replace', idempotent => true, inherit_context => false)")
        facts = dict(re.findall('<dt>([^<]*)</dt><dd>([^<]*)</dd>', Client(dashboard).get('/worker?name=opts').body))
        self.assertEqual([facts.get(name) for name in ('retry_for', 'if_waiting', 'inherit_context')], ['02:00:00', 'replace', 'f'])

    def test_bounds_of_a_schedule(self):
        row = re.search('<tr data-key="bounded">.*', Client(dashboard).get('/schedules').body).group()
        for text in ['2099-01-01', '2099-12-31', '00:05:00', 'elsewhere']:
            self.assertIn(text, row)

    def test_pages_by_key(self):
        seen = []
        path = '/jobs?worker=later&state=scheduled'
        while path:
            body = Client(dashboard).get(path).body
            seen += re.findall(r'<tr data-key="(\d+)"', body)
            older = re.search(r'rel="next" href="([^"]*)"', body)
            path = older and older.group(1).replace('&amp;', '&')
        self.assertEqual(len(seen), len(set(seen)))
        self.assertGreaterEqual(len(seen), 250)
        self.assertEqual(seen, sorted(seen, key=int, reverse=True))

    def test_metrics(self):
        if not server.has('metric'):
            self.skipTest('this version has no view metric')
        reply = Client(dashboard).get('/metrics')
        self.assertEqual(reply.status, 200, reply.body)
        families = re.findall(r'^# TYPE (\S+) ', reply.body, re.M)
        self.assertEqual(len(families), len(set(families)))
        self.assertIn('queue_jobs_runs_total', families)
        for line in reply.body.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \S+ .*|[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? -?[0-9.e+-]+)$')

    def test_health(self):
        reply = Client(dashboard).get('/healthz')
        if server.has('health'):
            self.assertEqual(reply.status == 200, 'not ok' not in reply.body)
        self.assertIn('ok', reply.body)


class Limits(unittest.TestCase):
    def test_malformed(self):
        for query in ['a=%', 'a=%4', 'a=%zz', 'a=%00', '%00=a', 'a=%ff', 'a=%c0%80', 'a=%ed%a0%80', '&'.join('a=1' for n in range(400))]:
            self.assertEqual(raw(dashboard, b'GET /jobs?%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' % query.encode()), 400, query)
        for line in [b'GET', b'GET / HTTP/9.9', b'\x00\x01\x02\r\n', b'GET /\x80 HTTP/1.1', b'BREW / HTTP/1.1', b'GET * HTTP/1.1', b'GET http://x/ HTTP/1.1', b'POST / HTTP/1.1']:
            self.assertNotEqual(raw(dashboard, line + b'\r\nHost: localhost\r\nConnection: close\r\n\r\n'), 200, line)

    def test_too_large(self):
        head = b'POST /action/cancel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n'
        self.assertEqual(raw(dashboard, head + b'Content-Length: 9999999999\r\n\r\n'), 413)
        self.assertEqual(raw(dashboard, head + b'Transfer-Encoding: chunked\r\n\r\n' + b'4000\r\n' + b'a' * 0x4000 + b'\r\n' + b'20000\r\n' + b'a' * 0x20000 + b'\r\n0\r\n\r\n'), 413)
        self.assertNotEqual(raw(dashboard, b'GET / HTTP/1.1\r\nHost: localhost\r\nCookie: ' + b'a' * 100000 + b'\r\n\r\n'), 200)
        self.assertNotEqual(raw(dashboard, b'GET /' + b'a' * 100000 + b' HTTP/1.1\r\nHost: localhost\r\n\r\n'), 200)
        self.assertEqual(Client(dashboard).get('/').status, 200)

    def test_mangled(self):
        """A good request, changed in some places: any reply will do, and the next one is good."""
        chance = random.Random(1)
        token = Client(dashboard).token()
        good = (b'POST /action/cancel_marked?a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: queue_jobs_web=' + b'0' * 64 +
                b'\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 90\r\n\r\nid=1&id=2&token=' + token.encode())
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(chance.randint(1, 6)):
                at = chance.randrange(len(bad))
                bad[at:at + chance.randint(0, 3)] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 3)))
            raw(dashboard, bytes(bad))
        self.assertEqual(Client(dashboard).get('/').status, 200)

    def test_many_viewers(self):
        """200 viewers ask the overview for some seconds: each of its queries runs once a second at most."""
        queries = ['FROM queue_jobs.queue ORDER BY', 'FROM queue_jobs.health()', 'FROM queue_jobs.running_jobs()', 'FROM queue_jobs.worker_statistics']
        before = [server.logged().count(query) for query in queries]
        start = time.monotonic()
        asked = []
        # What the test before has asked may still be shown to the first 200.
        while not asked or (0 in asked and time.monotonic() < start + 60):
            with concurrent.futures.ThreadPoolExecutor(50) as viewers:
                replies = list(viewers.map(lambda n: Client(dashboard).get('/').status, range(200)))
            self.assertEqual(replies, [200] * 200)
            asked = [server.logged().count(query) - count for query, count in zip(queries, before)]
        seconds = time.monotonic() - start
        for query, count in zip(queries, asked):
            self.assertGreater(count, 0, query)
            self.assertLessEqual(count, seconds + 2, query)


class Options(unittest.TestCase):
    """Other ways to start it."""

    def with_dashboard(self, *options):
        other = Dashboard(server, *options, program='queue_jobs_web_sanitized')
        self.addCleanup(other.stop)
        return other

    def test_read_only(self):
        client = Client(self.with_dashboard('--read-only'))
        for path in PAGES:
            self.assertNotIn('/action/', client.get(path).body, path)
        job = server.psql("SELECT queue_jobs.enqueue('later', delay => '1 day')")
        # The token is that of the cookie, wherever it is shown: here no form has it.
        client.cookies['queue_jobs_web'] = '0' * 64
        self.assertEqual(client.post('/action/cancel', {'id': job, 'sure': 'yes'}).status, 403)
        self.assertEqual(server.state(job), 'scheduled')

    def test_hide_args(self):
        client = Client(self.with_dashboard('--hide-args'))
        job = server.psql("SELECT id FROM queue_jobs.job WHERE worker = :'nasty'", nasty=NASTY)
        for path in ['/jobs', '/jobs/' + job, '/schedules', '/jobs?args=' + urllib.parse.quote('{"secret": "no"}')]:
            body = client.get(path).body
            self.assertNotIn('s3cret', body, path)
            self.assertNotIn('&quot;n&quot;', body, path)
        server.psql("SELECT queue_jobs.enqueue('claimed')")
        job, attempt = server.psql("SELECT id, attempt FROM queue_jobs.claim('c', '{claimed}') ").split('|')
        server.psql("SELECT queue_jobs.report(%s, %s, 0.4, 's3cret too')" % (job, attempt))
        for path in ['/jobs?state=executing', '/jobs/' + job]:
            body = client.get(path).body
            self.assertIn('40 %', body, path)
            self.assertNotIn('s3cret', body, path)
        job = server.psql("SELECT id FROM queue_jobs.job WHERE worker = :'nasty'", nasty=NASTY)
        self.assertIn('href="/jobs/%s"' % job, client.get('/jobs?worker=%s&args=%s' % (urllib.parse.quote(NASTY), urllib.parse.quote('{"secret": "no"}'))).body)

    def test_prefix(self):
        client = Client(self.with_dashboard('--prefix=/at/here'))
        for path in PAGES:
            body = client.get('/at/here' + path).body
            for link in re.findall(r'(?:href|src|action|formaction)="([^"]*)"', body):
                self.assertTrue(link.startswith('/at/here/') or link in ('data:,', '#main'), link)
        self.assertEqual(client.get('/jobs').status, 404)
        self.assertEqual(client.get('/at/herejobs').status, 404)
        self.assertIn('Path=/at/here/', Client(client.dashboard).get('/at/here/').headers['Set-Cookie'])

    def test_host(self):
        client = Client(self.with_dashboard('--host=jobs.example'))
        self.assertEqual(client.get('/', Host='jobs.example').status, 200)
        self.assertEqual(client.get('/', Host='other.example').status, 421)

    def test_not_beyond_this_machine(self):
        for options in [('--listen=0.0.0.0:0',), ('--listen=[::]:0',), ('--listen=nonsense',), ('--listen=127.0.0.1:x',), ('--prefix=x',), ('--prefix=/a"b',)]:
            with self.assertRaisesRegex(RuntimeError, 'does not listen'):
                Dashboard(server, *options)

    def test_server_restarts(self):
        client = Client(self.with_dashboard())
        self.assertEqual(client.get('/').status, 200)
        server.stop()
        # What was asked within the last second is answered as it was.
        wait_until(lambda: 'could not be read' in client.get('/').body, 'the overview says that there is no server')
        wait_until(lambda: client.get('/healthz').status == 503, 'the health says so, too')
        server.start()
        wait_until(lambda: 'could not be read' not in client.get('/').body, 'the dashboard is connected again')

    def test_no_extension(self):
        server.psql('CREATE DATABASE empty')
        other = Dashboard(server, 'dbname=empty', program='queue_jobs_web_sanitized')
        self.addCleanup(other.stop)
        for path in PAGES:
            body = Client(other).get(path).body
            self.assertIn('CREATE EXTENSION queue_jobs', body, path)


class Slow(unittest.TestCase):
    """While all tests above have run; this one is the last."""

    def test_clients(self):
        slow.join()
        self.assertEqual(slow.left, [])
