"""The load: clients who ask for work of each kind, and claimants who do some of it. They connect again whatever happens to
them, and remember what was acknowledged."""
import collections
import itertools
import re
import threading
import time

from session import Lost, Refused, Session


class Load:
    def __init__(self, nodes):
        ports = ','.join(str(node.port) for node in nodes)
        hosts = ','.join('127.0.0.1' for node in nodes)
        self.conninfo = f'host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs=read-write connect_timeout=3'
        self.numbers = itertools.count(1)
        self.acknowledged = []      # the numbers of what was asked for and committed
        self.claims = []            # when claims were acknowledged
        self.carried_over = 0       # claims that were completed in another session than their own
        self.errors = collections.Counter()
        self.failure = None
        self.no_more_requests, self.stopping = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self.go_on, args=(what, name), daemon=True)
                        for what, name in [(self.request, 'web 1'), (self.request, 'web 2'), (self.claim, 'claimant 1'), (self.claim, 'claimant 2')]]
        for thread in self.threads:
            thread.start()

    def go_on(self, what, name):
        """A session after another; each may be lost. Psql that cannot connect is a session that is lost at once."""
        state = {}
        stopping = self.no_more_requests if what == self.request else self.stopping
        while not stopping.is_set():
            session = Session(self.conninfo)
            try:
                while not stopping.is_set():
                    what(session, name, state)
            except (Lost, Refused) as error:
                self.errors[re.sub(r'\d+', 'N', str(error).split('\n')[0])] += 1
                time.sleep(0.05)
            except Exception as error:      # which the test would not see otherwise
                self.failure = error
                return
            finally:
                session.close()

    def request(self, session, _name, _state):
        number = next(self.numbers)
        session.ask(f'SELECT ask({number})')
        self.acknowledged.append(number)
        time.sleep(0.1)

    def claim(self, session, name, state):
        """A claim, its work and its completion in the next transaction, if need be in the next session."""
        carried_over = 'job' in state
        if not carried_over:
            session.ask("CALL queue_jobs.wait_for_jobs('{claimed}', '1 s')")
            claimed = session.ask(f"SELECT id, attempt, args ->> 'n' FROM queue_jobs.claim('{name}', '{{claimed}}', lease => '30 s')")
            if not claimed:
                return
            self.claims.append(time.time())
            state['job'] = claimed[0].split('|')
        job, attempt, number = state['job']
        time.sleep(0.05)
        try:
            session.ask(f"BEGIN; INSERT INTO done VALUES ({number}, 'claimed', {job}); SELECT queue_jobs.complete({job}, {attempt}); COMMIT;")
        except Refused:
            # Completed, and the answer was lost; or its lease has lapsed. The ledger tells whether it was done.
            del state['job']
            raise
        self.carried_over += carried_over
        del state['job']

    def stop(self):
        self.no_more_requests.set()
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure
