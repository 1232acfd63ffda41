"""HTTP as it is on the wire."""
import http.client
import re
import socket
import urllib.parse

LIMIT = 180


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read().decode()
        self.location = response.headers['Location']


class Client:
    """A browser without a screen: it keeps its cookies, and knows its forms' token."""

    def __init__(self, dashboard):
        self.dashboard = dashboard
        self.cookies = {}

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.dashboard.port, timeout=LIMIT)
        sent = dict({'Cookie': '; '.join('%s=%s' % item for item in self.cookies.items())} if self.cookies else {}, **(headers or {}))
        connection.request(method, path, body, sent)
        reply = Reply(connection.getresponse())
        connection.close()
        for cookie in reply.headers.get_all('Set-Cookie') or []:
            name, value = cookie.split(';')[0].split('=', 1)
            self.cookies[name] = value
        return reply

    def get(self, path, **headers):
        return self.request('GET', path, headers={name.replace('_', '-'): value for name, value in headers.items()})

    def token(self, path='/queues'):
        return re.search(r'name="token" value="([0-9a-f]{64})"', self.get(path).body).group(1)

    def post(self, path, fields, headers=None):
        return self.request('POST', path, urllib.parse.urlencode(fields, doseq=True),
                            dict({'Content-Type': 'application/x-www-form-urlencoded'}, **(headers or {})))


def raw(dashboard, request):
    """The status of the reply to these bytes; None if the connection is just closed."""
    with socket.create_connection(('127.0.0.1', dashboard.port), timeout=LIMIT) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            reply = b''
            while True:
                more = connection.recv(65536)
                if not more:
                    break
                reply += more
        except ConnectionError:
            return None
    return int(reply.split(b' ')[1]) if reply.startswith(b'HTTP/1.1 ') else None
