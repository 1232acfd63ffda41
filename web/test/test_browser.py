"""Every page and every action in Chromium, with and without the script, and with args and names that are full of markup."""
import os
import re
import unittest
import urllib.parse

from support import HERE, NASTY, Dashboard, Server
from webdriver import ELEMENT, Browser, Driver, wait_until

PAGES = ['/', '/jobs', '/jobs/{job}', '/queues', '/workers', '/worker?name={worker}', '/schedules', '/batches', '/replicas', '/executors']

server = None
dashboard = None
driver = None


def setUpModule():
    global server, dashboard, driver
    server = Server()
    dashboard = Dashboard(server)
    driver = Driver(os.path.join(server.folder, 'chromedriver.log'))


def tearDownModule():
    driver.stop()
    dashboard.stop()
    server.stop()


def one_of(worker, state):
    return server.psql("SELECT id FROM queue_jobs.job WHERE worker = '%s' AND state = '%s' ORDER BY id LIMIT 1" % (worker, state))


class Actions:
    """What works with the script and without."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(driver, script=cls.script)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def go(self, path):
        self.browser.go(dashboard.url + path)

    def said(self, text):
        wait_until(lambda: text in self.browser.text('main'), 'the page says "%s"' % text)

    def confirm(self, question):
        self.said(question)
        self.browser.click('form.sure button')

    def test_pages(self):
        job = server.psql("SELECT id FROM queue_jobs.job WHERE worker = :'nasty'", nasty=NASTY)
        for path in PAGES:
            self.go(path.format(job=job, worker=urllib.parse.quote(NASTY, safe='')))
            self.assertTrue(self.browser.title().endswith(' · queue_jobs'), path)
            self.assertEqual(self.browser.all('#pwned, main script, main img'), [], path)
            self.assertEqual(self.browser.all('main .problem[role=alert]:not(#health *)'), [], path)
        self.go('/jobs/' + job)
        self.assertIn('<script>', self.browser.text('#args pre'))
        self.assertIn(NASTY, self.browser.text('#facts'))

    def test_retry(self):
        job = one_of('fail', 'dead')
        self.go('/jobs/' + job)
        self.assertIn('no <em>good</em>', self.browser.text('#errors'))
        self.assertIn('the "detail" & more', self.browser.text('#errors'))
        self.assertIn('finished', self.browser.text('#why'))
        before = server.psql('SELECT attempt FROM queue_jobs.job WHERE id = ' + job)
        self.browser.click('#actions button')
        self.said('The job runs again.')
        server.wait("attempt > %s AND state = 'dead' FROM queue_jobs.job WHERE id = %s" % (before, job))

    def test_cancel_and_discard(self):
        for action, state in [('cancel', 'cancelled'), ('discard', 'dead')]:
            job = one_of('later', 'scheduled')
            self.go('/jobs/' + job)
            self.browser.click('form[action$="/%s"] button' % action)
            self.confirm(action.capitalize() + ' the job?')
            self.said('The job is ' + state)
            self.assertEqual(server.state(job), state)

    def test_marked(self):
        self.go('/jobs?worker=later&state=scheduled')
        jobs = self.ids()[:2]
        for job in jobs:
            self.browser.click('input[value="%s"]' % job)
        self.browser.click('#marked button[formaction$="cancel_marked"]')
        self.confirm('2 jobs are marked')
        self.said('2 jobs cancelled.')
        self.assertEqual([server.state(job) for job in jobs], ['cancelled'] * 2)

    def ids(self):
        return wait_until(lambda: re.findall(r'<tr data-key="(\d+)"', self.browser.source()), 'there are jobs')

    def test_matching(self):
        worker = 'matching' + str(self.script)
        server.psql("SELECT queue_jobs.define_worker('{0}', 'app.work'); "
                    "SELECT queue_jobs.enqueue('{0}', jsonb_build_object('n', n), delay => '1 day') FROM generate_series(1, 120) n".format(worker))
        self.go('/jobs')
        self.browser.type('input[name=worker]', worker)
        self.browser.type('input[name=args]', '{"n": 7}')
        self.browser.click('.search button')
        wait_until(lambda: 'args=' in self.browser.url() and len(self.browser.all('tbody tr')) == 1, 'one job is found')
        self.go('/jobs?worker=%s&state=scheduled' % worker)
        self.browser.click('button[formaction$="discard_matching"]')
        self.said('120 jobs match now')
        self.browser.click('form.sure button')
        self.said('120 jobs discarded.')
        self.assertEqual(server.psql("SELECT count(*) FROM queue_jobs.job WHERE worker = '%s' AND state = 'dead'" % worker), '120')

    def test_queue(self):
        row = 'tr[data-key="later"] '
        self.go('/queues')
        self.browser.click(row + 'form[action$="/pause"] button')
        self.said('The queue is paused.')
        self.assertEqual(server.psql("SELECT paused FROM queue_jobs.queue WHERE queue = 'later'"), 't')
        self.browser.click(row + 'form[action$="/resume"] button')
        self.said('The queue runs again.')
        waiting = server.psql("SELECT count(*) FROM queue_jobs.job WHERE queue = 'later' AND state = 'scheduled'")
        for source, target in [('later', 'else where'), ('else where', 'later')]:
            self.go('/queues')
            self.browser.type('tr[data-key="%s"] input[name=to]' % source, target)
            self.browser.click('tr[data-key="%s"] form[action$="/migrate"] button' % source)
            self.confirm('Move all jobs')
            self.said(waiting + ' jobs moved.')

    def test_limit(self):
        limit = 'limit' + str(self.script)
        server.psql("SELECT queue_jobs.define_limit('%s', max_running => 2)" % limit)
        row = 'tr[data-key="%s"] ' % limit
        self.go('/queues')
        self.browser.type(row + 'input[name=duration]', ' 30 s')
        self.browser.click(row + 'form[action$="/close_limit"] button')
        self.said('The limit is closed.')
        self.assertEqual(server.psql("SELECT closed_until > now() + interval '1 min' FROM queue_jobs.named_limit WHERE name = '%s'" % limit), 't')
        self.browser.click(row + 'form[action$="/open_limit"] button')
        self.said('The limit is open.')
        self.assertEqual(server.psql("SELECT closed_until IS NULL FROM queue_jobs.named_limit WHERE name = '%s'" % limit), 't')
        self.browser.type(row + 'form[action$="/change_limit"] input[name=number]', '3')
        self.browser.click(row + 'form[action$="/change_limit"] button')
        self.said('The limit is changed.')
        self.assertEqual(server.psql("SELECT max_running > 2 FROM queue_jobs.named_limit WHERE name = '%s'" % limit), 't')
        server.psql("SELECT queue_jobs.drop_limit('%s')" % limit)

    def test_worker(self):
        name = urllib.parse.quote(NASTY, safe='')
        self.go('/worker?name=' + name)
        self.browser.click('.bar form[action$="/disable"] button')
        self.confirm('Disable the worker?')
        self.said('The worker is disabled.')
        self.assertEqual(server.psql("SELECT enabled FROM queue_jobs.worker WHERE name = :'nasty'", nasty=NASTY), 'f')
        self.browser.click('.bar form[action$="/enable"] button')
        self.said('The worker is enabled.')
        self.assertEqual(server.psql("SELECT enabled FROM queue_jobs.worker WHERE name = :'nasty'", nasty=NASTY), 't')

    def test_broken_worker(self):
        server.psql("SELECT queue_jobs.define_worker('breaks', 'app.fail', max_retries => 0, break_after => 1, break_for => '1 hour')")
        server.psql("SELECT queue_jobs.enqueue('breaks')")
        server.wait("(SELECT broken_until IS NOT NULL FROM queue_jobs.worker WHERE name = 'breaks')")
        self.go('/workers')
        self.assertIn('broken until', self.browser.text('tr[data-key="breaks"]'))
        self.go('/worker?name=breaks')
        self.assertIn('broken until', self.browser.text('.bar'))
        self.browser.click('.bar form[action$="/close_breaker"] button')
        self.said('Jobs of the worker begin again.')
        self.assertEqual(server.psql("SELECT broken_until IS NULL FROM queue_jobs.worker WHERE name = 'breaks'"), 't')
        self.assertNotIn('broken until', self.browser.text('.bar'))

    def test_schedule(self):
        self.go('/schedules')
        self.browser.click('form[action$="/run_now"] button')
        self.said('Its job is enqueued.')
        server.wait("""count(*) > 0 FROM queue_jobs.job WHERE args @> '{"n": 99}' AND state = 'completed'""")
        self.browser.click('form[action$="/pause_schedule"] button')
        self.said('The schedule is paused.')
        self.assertEqual(server.psql("SELECT paused FROM queue_jobs.schedule WHERE name = :'nasty'", nasty=NASTY), 't')
        self.browser.click('form[action$="/resume_schedule"] button')
        self.said('The schedule ticks again.')
        self.assertEqual(server.psql("SELECT paused FROM queue_jobs.schedule WHERE name = :'nasty'", nasty=NASTY), 'f')
        self.assertIn(NASTY, self.browser.text('#subscriptions'))
        # Once a year at midnight in UTC.
        ticks = server.psql("SELECT extract(year FROM now() AT TIME ZONE 'UTC')::int - 2020")
        self.browser.type('form[action$="/run_missed"] input[name=since]', '2020-06-01')
        self.browser.click('form[action$="/run_missed"] button')
        self.confirm('Enqueue a job for each tick')
        self.said(ticks + ' jobs enqueued.')

    def test_replica(self):
        self.go('/replicas')
        self.browser.click('form[action$="/pause_replica"] button')
        self.said('No job reads from the replica.')
        self.browser.click('form[action$="/resume_replica"] button')
        self.said('Jobs may read from the replica.')

    def test_executors(self):
        """An executor whose job waits for another session's lock, and a job that an application has claimed."""
        session = server.session()
        session.stdin.write('BEGIN;\nUPDATE app.gate SET id = id;\nSELECT pg_backend_pid();\n')
        session.stdin.flush()
        server.wait("count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name = 'psql'")
        pid = server.psql("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name = 'psql'")
        try:
            job = server.psql("SELECT queue_jobs.enqueue('pass')")
            server.psql("SELECT queue_jobs.claim('my <u>program</u>', '{claimed}')")
            server.wait("cardinality(pg_blocking_pids(pid)) > 0 FROM queue_jobs.running_jobs() WHERE job_id = " + job)
            self.go('/executors')
            text = self.browser.text('#executors')
            self.assertIn(job, text)
            self.assertIn(pid + ' (postgres, psql)', text)
            self.assertIn('my <u>program</u>', self.browser.text('#claims'))
            self.go('/jobs/' + job)
            self.assertIn('blocked', self.browser.text('#why'))
        finally:
            session.communicate('ROLLBACK;\n')
        server.wait("state = 'completed' FROM queue_jobs.job WHERE id = " + job)

    def test_error(self):
        """What the database refuses is said in its words, and nothing is done."""
        job = one_of('later', 'scheduled')
        self.go('/jobs/' + job)
        self.browser.click('form[action$="/cancel"] button')
        self.said('Cancel the job?')
        server.psql("ALTER FUNCTION queue_jobs.cancel(bigint) RENAME TO no_cancel")
        try:
            self.browser.click('form.sure button')
            self.said('Nothing was done')
            self.assertIn('42883', self.browser.text('main'))
        finally:
            server.psql("ALTER FUNCTION queue_jobs.no_cancel(bigint) RENAME TO cancel")
        self.assertEqual(server.state(job), 'scheduled')

    def test_batch(self):
        if not server.has('enqueue_workflow'):
            self.skipTest('this version has no workflows')
        steps = ('[{"step": "first <i>", "worker": "work"}, {"step": "bad", "worker": "fail"}, '
                 '{"step": "last", "worker": "work", "after": ["first <i>", "bad"]}]')
        job = server.psql("SELECT job FROM queue_jobs.enqueue_workflow('load <b>', '%s') WHERE step = 'bad'" % steps)
        batch = server.psql('SELECT batch FROM queue_jobs.workflow_step WHERE job = ' + job)
        server.wait("state = 'dead' FROM queue_jobs.job WHERE id = " + job)
        self.go('/batches')
        self.assertIn('load <b>', self.browser.text('#batches'))
        self.go('/batches/' + batch)
        self.assertEqual(len(self.browser.all('.graph .node')), 3)
        self.assertEqual(len(self.browser.all('.graph .edge')), 2)
        self.assertIn('first <i>', self.browser.text('.graph'))
        self.go('/jobs/' + job)
        self.assertIn('last', self.browser.text('#batch'))
        self.go('/batches/' + batch)
        self.browser.click('form[action$="/retry_batch"] button')
        self.said('1 job retried.')
        self.browser.click('form[action$="/cancel_batch"] button')
        self.confirm('Cancel all jobs of the batch')
        self.said('cancelled.')


class WithScript(Actions, unittest.TestCase):
    script = True

    def tearDown(self):
        self.assertEqual([text for text in self.browser.complaints() if 'status of 4' not in text], [])

    def test_refresh(self):
        """Numbers change without a reload, and what is marked, opened and focused stays."""
        queue = 'tr[data-key="later"] '
        self.go('/')
        self.browser.run('window.stays = true')
        before = self.browser.text(queue)
        server.psql("SELECT queue_jobs.enqueue('later', delay => '1 day')")
        wait_until(lambda: self.browser.text(queue) != before, 'the overview has changed')
        self.assertTrue(self.browser.run('return window.stays'))

        self.go('/jobs?worker=later&state=scheduled')
        job, other = self.ids()[:2]
        self.browser.run('window.stays = true')
        self.browser.click('input[value="%s"]' % job)
        added = server.psql("SELECT queue_jobs.enqueue('later', delay => '1 day')")
        server.psql('SELECT queue_jobs.cancel(%s)' % other)
        wait_until(lambda: self.browser.all('tr.gone[data-key="%s"]' % other), 'the row of the cancelled job is dimmed')
        self.assertEqual(self.browser.all('tr[data-key="%s"]' % added), [])
        self.assertTrue(self.browser.run('return document.querySelector(\'input[value="%s"]\').checked && window.stays' % job))
        self.browser.click('input[value="%s"]' % job)
        wait_until(lambda: self.browser.all('tr[data-key="%s"]' % added), 'without a mark the new job is shown')

    def test_pressed(self):
        """A refresh while the button is down does not take the click away."""
        self.go('/')
        link = self.browser.one('#queues tr[data-key="later"] a')
        self.browser.run('arguments[0].scrollIntoView({block: "center"})', {ELEMENT: link})
        self.browser.press(link)
        fetched = "return performance.getEntriesByType('resource').filter((entry) => entry.initiatorType == 'fetch').length"
        before = self.browser.run(fetched)
        wait_until(lambda: self.browser.run(fetched) >= before + 2, 'the page has been refreshed')
        self.browser.release()
        wait_until(lambda: self.browser.url() != dashboard.url + '/', 'the link is followed')

    def test_keys(self):
        self.go('/')
        self.browser.keys('gj')
        wait_until(lambda: self.browser.url().endswith('/jobs'), 'the keys lead to the jobs')
        self.browser.one('footer button')
        self.browser.keys('jjx')
        self.assertEqual(len(self.browser.all('tr.at input:checked')), 1)
        self.browser.keys('/')
        self.assertEqual(self.browser.run('return document.activeElement.name'), 'worker')

    def test_named(self):
        """Each control has a name for screen readers, each page one heading of the first order."""
        job = one_of('fail', 'dead')
        for path in PAGES:
            self.go(path.format(job=job, worker='work'))
            self.assertEqual(len(self.browser.all('h1')), 1)
            nameless = self.browser.run(
                "return [...document.querySelectorAll('input:not([type=hidden]), button, a, svg[role]')].filter((control) => "
                "!control.labels?.length && !control.getAttribute('aria-label') && !control.textContent.trim()).map((control) => control.outerHTML)")
            self.assertEqual(nameless, [], path)
            self.assertEqual(self.browser.run("return document.querySelectorAll('thead th:not([scope])').length"), 0, path)

    def test_narrow(self):
        self.browser.call('POST', '/window/rect', {'width': 500, 'height': 800})
        try:
            for path in PAGES:
                self.go(path.format(job=one_of('fail', 'dead'), worker='work'))
                self.assertTrue(self.browser.run('return document.documentElement.scrollWidth <= window.innerWidth'), path)
        finally:
            self.browser.call('POST', '/window/rect', {'width': 1280, 'height': 900})

    def test_pictures(self):
        if not os.environ.get('PICTURES'):
            self.skipTest('PICTURES is not set')
        import pictures
        pictures.take(server, dashboard, self.browser)


class WithoutScript(Actions, unittest.TestCase):
    script = False
