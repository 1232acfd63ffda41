"""The throwaway server as the workloads see it: SQL, pgbench, and what it has used so far."""
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
PROCESSORS = os.cpu_count()


class Session:
    """One psql that stays connected. Each call sends a statement and returns the last line of what it prints."""

    def __init__(self, command):
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sql(self, statement):
        self.psql.stdin.write(statement + "; SELECT '=done=';\n")
        self.psql.stdin.flush()
        last = None
        for line in self.psql.stdout:
            if line == "=done=\n":
                return last
            last = line.rstrip("\n")
        raise RuntimeError("the session ended at: " + statement)

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


class Server:
    """directory: of the socket; data: the server's; workloads run as the role app."""

    def __init__(self, directory, data, database):
        self.directory = directory
        self.data = data
        self.database = database
        self.warnings = set()        # that clients have seen: there should be none

    def in_database(self, name):
        """The same server, seen from another of its databases."""
        other = Server(self.directory, self.data, name)
        other.warnings = self.warnings
        return other

    def conninfo(self, user):
        return f"host={self.directory} dbname={self.database} user={user}"

    def psql_command(self, user, database=None):
        return ["psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", self.directory, "-U", user,
                "-d", database or self.database]

    def session(self, user="postgres", database=None):
        return Session(self.psql_command(user, database))

    def sql(self, statement, user="postgres"):
        """The first value of the last row, as text."""
        done = subprocess.run(self.psql_command(user) + ["-c", statement], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{done.stderr}{statement}")
        rows = done.stdout.splitlines()
        return rows[-1].split("\t")[0] if rows else None

    def sql_again(self, statement):
        """The same until no deadlock ends it."""
        for _ in range(20):
            try:
                return self.sql(statement)
            except RuntimeError as error:
                if "deadlock detected" not in str(error):
                    raise
        raise RuntimeError(f"deadlock each time: {statement}")

    def row(self, statement, user="postgres"):
        done = subprocess.run(self.psql_command(user) + ["-c", statement], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split("\t")

    def file(self, name):
        subprocess.run(self.psql_command("postgres") + ["-f", SCRIPTS / name], check=True, stdout=subprocess.DEVNULL)

    def wait_until(self, condition, limit=600):
        """Asks every 50 ms."""
        session = self.session()
        end = time.monotonic() + limit
        while session.sql("SELECT " + condition) != "t":
            if time.monotonic() > end:
                raise RuntimeError(f"not within {limit} s: {condition}")
            time.sleep(0.05)
        session.close()

    def start_pgbench(self, script, clients, *options, synchronous=True, **variables):
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, PROCESSORS)),
                   "-f", str(SCRIPTS / script), "-h", self.directory, "-U", "app", *map(str, options)]
        for name, value in variables.items():
            command += ["-D", f"{name}={value}"]
        # (The server would take the textbook's array of one id for less than the generic plan's ten, and plan each statement anew.)
        options = f"-c synchronous_commit={'on' if synchronous else 'off'}" + (" -c plan_cache_mode=force_generic_plan" if "textbook" in script else "")
        environment = dict(os.environ, PGOPTIONS=options)
        output = tempfile.TemporaryFile("w+")      # not a pipe, which may be full before anybody reads it
        process = subprocess.Popen(command + [self.database], env=environment, stdout=output, stderr=subprocess.STDOUT)
        return process, output

    def finish_pgbench(self, started):
        """What it printed: progress and result."""
        process, output = started
        status = process.wait()
        output.seek(0)
        printed = output.read()
        output.close()
        if status != 0:
            raise RuntimeError(f"{process.args}: {printed[-2000:]}")
        self.warnings.update(re.findall(r"^WARNING: .*", printed, re.M))
        return printed

    def pgbench(self, script, clients, *options, **more):
        """Transactions a second, and seconds. options: -T seconds or -t transactions."""
        out = self.finish_pgbench(self.start_pgbench(script, clients, *options, **more))
        match = re.search(r"tps = ([0-9.]+) \(without", out)
        done = int(re.search(r"actually processed: (\d+)", out).group(1))
        return float(match.group(1)), done / float(match.group(1))

    def checkpoint(self):
        self.sql("CHECKPOINT")

    def wal_position(self):
        return int(self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def processes(self):
        """Process IDs: the postmaster first, then its children."""
        postmaster = int((Path(self.data) / "postmaster.pid").read_text().split("\n")[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster] + [int(pid) for pid in children]

    def cpu_seconds(self):
        """User and system time of all the server's processes; of those that have ended, too."""
        ticks = 0
        for number, pid in enumerate(self.processes()):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            # Fields 14 and 15 of proc(5); of the postmaster also 16 and 17, its children that have ended.
            ticks += sum(map(int, fields[11:15] if number == 0 else fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def switches(pids):
    """How often these processes have been put to sleep or taken from a processor."""
    total = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        total += sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", status)))
    return total
