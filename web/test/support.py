"""A throwaway server with jobs of every kind in it, and dashboards of it."""
import os
import subprocess
import tempfile
import threading

from webdriver import end_with_us, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
WEB = os.path.dirname(HERE)

# What could be taken for markup, for the end of a string, for part of an address or of a query.
NASTY = '''<b id="pwned" onmouseover="x">'&amp;%2F"</b>'''
NASTY_ARGS = '''{"<script>document.title = 'pwned'</script>": "\\"'><img src=x onerror=\\"document.title='pwned'\\">", "secret": "s3cret"}'''


class Server:
    """PostgreSQL on a Unix socket: postgres comes in without a password, all others need theirs."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='web')
        self.data = os.path.join(self.folder, 'data')
        self.log = os.path.join(self.folder, 'server.log')
        self.run('initdb', '-D', self.data, '-U', 'postgres', '-A', 'trust')
        with open(os.path.join(self.data, 'pg_hba.conf'), 'w') as hba:
            hba.write('local all postgres,open trust\nlocal all all scram-sha-256\n')
        with open(os.path.join(self.data, 'postgresql.conf'), 'a') as conf:
            conf.write("shared_preload_libraries = 'queue_jobs'\nlisten_addresses = ''\nunix_socket_directories = '%s'\n"
                       "max_worker_processes = 16\nlog_statement = 'all'\nlog_line_prefix = '%%m [%%p] %%u %%a '\n"
                       "fsync = off\n" % self.folder)
        self.start()
        self.run('createdb', '-h', self.folder, '-U', 'postgres', 'web')
        self.psql(open(os.path.join(HERE, 'setup.sql')).read(), nasty=NASTY, nasty_args=NASTY_ARGS)

    @staticmethod
    def run(*command, **options):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        if result.returncode != 0:
            raise RuntimeError('%s: %s' % (command[0], result.stdout))
        return result.stdout

    def start(self):
        self.run('pg_ctl', '-s', '-w', '-t', '180', '-D', self.data, '-l', self.log, 'start')

    def stop(self):
        self.run('pg_ctl', '-s', '-w', '-t', '180', '-D', self.data, '-m', 'fast', 'stop')

    def psql(self, text, role='postgres', **variables):
        """The last result, without alignment."""
        command = ['psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-h', self.folder, '-U', role, '-d', 'web']
        for name, value in variables.items():
            command += ['-v', '%s=%s' % (name, value)]
        return self.run(*command, input=text, env=dict(os.environ, PGPASSWORD=role)).strip()

    def session(self):
        """A psql that stays: what is written to it is run."""
        return subprocess.Popen(['psql', '-X', '-q', '-h', self.folder, '-U', 'postgres', '-d', 'web'], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def wait(self, condition):
        wait_until(lambda: self.psql('SELECT %s' % condition) == 't', condition)

    def has(self, name):
        """Whether this version has a function or view of that name."""
        return self.psql("SELECT to_regclass('queue_jobs.%s') IS NOT NULL OR to_regproc('queue_jobs.%s') IS NOT NULL" % (name, name)) == 't'

    def state(self, job):
        return self.psql('SELECT state FROM queue_jobs.job WHERE id = %s' % job)

    def logged(self):
        with open(self.log) as file:
            return file.read()


class Dashboard:
    def __init__(self, server, *options, program='queue_jobs_web', role='postgres'):
        environment = {name: value for name, value in os.environ.items() if not name.startswith('PG')}
        environment.update(PGHOST=server.folder, PGUSER=role, PGDATABASE='web', UBSAN_OPTIONS='print_stacktrace=1',
                           ASAN_OPTIONS='detect_leaks=1')
        self.process = subprocess.Popen([os.path.join(WEB, program), '--listen=127.0.0.1:0', *options], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=end_with_us)
        line = self.process.stdout.readline()
        if 'listens on ' not in line:
            raise RuntimeError('%s does not listen: %s' % (program, self.process.stderr.read()))
        self.url = line.split()[-1].rstrip('/')
        self.port = int(self.url.split(':')[2].split('/')[0])
        self.errors = ''
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.errors = self.process.stderr.read()

    def stop(self):
        """Its exit status, after which errors is what it wrote."""
        self.process.terminate()
        status = self.process.wait(timeout=180)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status
