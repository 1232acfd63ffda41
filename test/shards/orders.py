"""The load: clients who place orders through the router. What they asked for, and what was acknowledged, is in the memory of the
test alone. A call whose answer was lost, or that was refused, is made again with the same id."""
import collections
import re
import threading
import time
import uuid

from session import Lost, Refused, Session


class Client:
    def __init__(self, conninfo, tenant):
        self.conninfo, self.tenant = conninfo, tenant
        self.asked, self.acknowledged = set(), set()
        self.errors = collections.Counter()
        self.answered_at, self.longest = time.time(), 0     # and the longest time between two answers, in seconds
        self.failure = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.go_on, daemon=True)
        self.thread.start()

    def go_on(self):
        session, order = None, None
        while not self.stopping.is_set() or order:
            try:
                session = session or Session(self.conninfo)
                order = order or str(uuid.uuid4())
                self.place(session, order)
                order = None
                time.sleep(0.01)
            except (Lost, Refused) as error:
                self.errors[re.sub(r'\d+', 'N', str(error).split('\n', maxsplit=1)[0])] += 1
                session.close()
                session = None
                time.sleep(0.1)
            except Exception as error:      # which the test would not see otherwise
                self.failure = error
                return
        if session:
            session.close()

    def place(self, session, order):
        self.asked.add(order)
        session.ask(f"SELECT shop.place_order({self.tenant}, '{order}', 1)", limit=60)
        self.acknowledged.add(order)
        now = time.time()
        self.answered_at, self.longest = now, max(self.longest, now - self.answered_at)


class Load:
    def __init__(self, conninfo, tenants):
        self.clients = [Client(conninfo, tenant) for tenant in tenants]

    def acknowledged(self, tenants):
        self.check()
        return sum(len(client.acknowledged) for client in self.clients if client.tenant in tenants)

    def longest(self, tenant):
        """The longest that a client of the tenant was without an answer, since this was last asked."""
        clients = [client for client in self.clients if client.tenant == tenant]
        longest = max(client.longest for client in clients)
        for client in clients:
            client.longest = 0
        return longest

    def errors(self):
        return sum((client.errors for client in self.clients), collections.Counter())

    def check(self):
        for client in self.clients:
            if client.failure:
                raise client.failure

    def stop(self):
        for client in self.clients:
            client.stopping.set()
        for client in self.clients:
            client.thread.join()
        self.check()

    def orders(self, acknowledged):
        """(tenant, id) of all that was asked for, or of what was acknowledged."""
        return {(client.tenant, order) for client in self.clients for order in (client.acknowledged if acknowledged else client.asked)}
