"""A client's session: a psql that connects to the server that lets it write, and gives up on one that does not answer."""
import os
import select
import subprocess
import time

END = 'end of answer'


class Lost(Exception):
    """No answer: what was asked may or may not have been committed."""


class Refused(Exception):
    """An error of the server's: it was not committed."""


class Session:
    def __init__(self, conninfo):
        self.psql = subprocess.Popen(['psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', conninfo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     bufsize=0, start_new_session=True)

    def ask(self, sql, limit=10):
        """Its answer's lines, all statements of it acknowledged."""
        answer, end = '', time.time() + limit
        try:
            self.psql.stdin.write(f'{sql};\n\\echo {END}\n'.encode())
            while not answer.endswith(f'{END}\n'):
                if not select.select([self.psql.stdout], [], [], max(0, end - time.time()))[0]:
                    raise Lost('no answer in time')
                data = os.read(self.psql.stdout.fileno(), 65536).decode()
                if not data:
                    raise (Refused if self.psql.wait() == 3 else Lost)(answer)
                answer += data
        except OSError as error:
            raise Lost(answer) from error
        # A commit that did not wait for the standby to the end is none that was acknowledged.
        if 'WARNING' in answer:
            raise Lost(answer)
        return answer.splitlines()[:-1]

    def close(self):
        self.psql.kill()
        self.psql.wait()
        self.psql.stdin.close()
        self.psql.stdout.close()
