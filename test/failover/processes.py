"""Processes that the test starts, and ends by their ids; and waiting."""
import os
import random
import signal
import socket
import subprocess
import time

LIMIT = 600
started = []


def wait_for(what, condition, limit=LIMIT):
    """The condition's first true value. A condition that cannot be asked (OSError) is not true yet."""
    end = time.time() + limit
    while True:
        try:
            if value := condition():
                return value
        except OSError:
            pass
        if time.time() > end:
            raise TimeoutError(f'not within {limit} s: {what}')
        time.sleep(0.02)


def start(log, *command, env=None):
    with open(log, 'ab') as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | (env or {}))
    started.append(process)
    return process


def run(log, *command, env=None):
    """To its end, which must be a good one."""
    if status := start(log, *command, env=env).wait(LIMIT):
        raise RuntimeError(f'{" ".join(command)} failed with {status}, see {log}')


def tree(pid):
    """A process and its descendants."""
    children = {}
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{entry}/stat') as stat:
                children.setdefault(int(stat.read().rpartition(')')[2].split()[1]), []).append(int(entry))
        except OSError:
            pass    # it has ended meanwhile
    pids = [pid]
    for parent in pids:
        pids += children.get(parent, [])
    return pids


def send(number, pids):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def kill_tree(process):
    """At once, as if the machine had stopped: none of them can tell, or start, another."""
    pids = tree(process.pid)
    send(signal.SIGSTOP, pids)
    pids = list(dict.fromkeys(pids + tree(process.pid)))
    send(signal.SIGKILL, pids)
    process.wait(LIMIT)


def stop_all():
    for process in reversed(started):
        if process.poll() is None:
            kill_tree(process)


def free_ports(count):
    """Ports below those that the kernel gives to clients."""
    ports = []
    while len(ports) < count:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(('', port))
                ports.append(port)
            except OSError:
                pass
    return ports
