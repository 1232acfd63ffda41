"""Chromium by chromedriver, in W3C's WebDriver protocol, with nothing but Python's own library."""
import base64
import ctypes
import json
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

LIMIT = 180     # seconds until a condition that does not come is a failure
REPLACED = ['stale element', 'does not belong to the document', 'No node with given id']
ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
ARGUMENTS = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-dev-shm-usage',
             '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-extensions',
             '--password-store=basic', '--hide-scrollbars']


class WebDriverError(Exception):
    pass


def end_with_us():
    """In a child, before its program: it is terminated when the process that started it ends, however that comes about."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)      # PR_SET_PDEATHSIG


def wait_until(condition, what):
    """The condition's first true value."""
    deadline = time.monotonic() + LIMIT
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError('timed out waiting until ' + what)
        time.sleep(0.05)


class Driver:
    """One chromedriver, which has any number of browsers."""

    def __init__(self, log):
        self.log = open(log, 'w')
        self.process = subprocess.Popen(['chromedriver', '--port=0'], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        preexec_fn=end_with_us)
        self.port = None
        for line in self.process.stdout:
            if 'started successfully on port' in line:
                self.port = int(line.rstrip().rstrip('.').split()[-1])
                break
        if self.port is None:
            raise WebDriverError('chromedriver did not start')

    def call(self, method, path, body=None):
        request = urllib.request.Request('http://127.0.0.1:%d%s' % (self.port, path), method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as response:
                return json.load(response)['value']
        except urllib.error.HTTPError as error:
            value = json.load(error)['value']
            raise WebDriverError('%s: %s' % (value['error'], value['message'].split('\n')[0])) from None

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Browser:
    def __init__(self, driver, script=True, width=1280, height=900, dark=False):
        self.driver = driver
        self.folder = tempfile.mkdtemp(prefix='chromium')
        options = {'args': ARGUMENTS + ['--user-data-dir=' + self.folder, '--window-size=%d,%d' % (width, height)]
                   + (['--force-dark-mode', '--blink-settings=preferredColorScheme=0'] if dark else [])}
        if not script:
            options['prefs'] = {'profile.managed_default_content_settings.javascript': 2}
        capabilities = {'browserName': 'chrome', 'goog:chromeOptions': options, 'goog:loggingPrefs': {'browser': 'ALL'},
                        'timeouts': {'pageLoad': LIMIT * 1000, 'script': LIMIT * 1000}}
        self.session = '/session/' + driver.call('POST', '/session', {'capabilities': {'alwaysMatch': capabilities}})['sessionId']

    def call(self, method, path, body=None):
        return self.driver.call(method, self.session + path, body)

    def go(self, url):
        self.call('POST', '/url', {'url': url})

    def url(self):
        return self.call('GET', '/url')

    def title(self):
        return self.call('GET', '/title')

    def source(self):
        return self.call('GET', '/source')

    def all(self, css):
        return [element[ELEMENT] for element in self.call('POST', '/elements', {'using': 'css selector', 'value': css})]

    def one(self, css):
        return wait_until(lambda: self.all(css), 'there is ' + css)[0]

    def text(self, css):
        """Of the first such element. In one call, for a refresh may replace the element between two."""
        return wait_until(lambda: [text for text in [self.run(
            "const found = document.querySelector(arguments[0]); return found && document.readyState == 'complete' ? found.innerText ?? found.textContent : null", css)]
            if text is not None], 'there is ' + css)[0]

    def with_element(self, css, do):
        """Again, if a refresh has replaced the element after it was found."""
        def once():
            try:
                do(self.one(css))
                return True
            except WebDriverError as error:
                if not any(text in str(error) for text in REPLACED):
                    raise
                return False
        wait_until(once, css + ' stays')

    def click(self, css):
        self.with_element(css, lambda element: self.call('POST', '/element/%s/click' % element, {}))

    def type(self, css, text):
        self.with_element(css, lambda element: self.call('POST', '/element/%s/value' % element, {'text': text}))

    def keys(self, text):
        actions = [{'type': kind, 'value': key} for key in text for kind in ('keyDown', 'keyUp')]
        self.call('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keyboard', 'actions': actions}]})

    def pointer(self, *actions):
        self.call('POST', '/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'actions': list(actions)}]})

    def press(self, element):
        self.pointer({'type': 'pointerMove', 'origin': {ELEMENT: element}, 'x': 0, 'y': 0}, {'type': 'pointerDown', 'button': 0})

    def release(self):
        self.pointer({'type': 'pointerUp', 'button': 0})

    def run(self, script, *arguments):
        return self.call('POST', '/execute/sync', {'script': script, 'args': list(arguments)})

    def complaints(self):
        """What the browser's console has had since it was last asked: errors of the script, and what the page's policy forbade."""
        return [entry['message'] for entry in self.call('POST', '/se/log', {'type': 'browser'}) if entry['level'] == 'SEVERE']

    def screenshot(self, path):
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.call('GET', '/screenshot')))

    def close(self):
        try:
            self.driver.call('DELETE', self.session)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
