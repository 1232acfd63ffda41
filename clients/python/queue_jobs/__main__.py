"""python -m queue_jobs MODULE: runs the Worker of a module until SIGTERM."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from .log import to_stderr
from .worker import Refused, Worker


def find(name: str) -> Worker:
    """The Worker that MODULE or MODULE:NAME means: the only one of the module, or the one of that name."""
    module, _, attribute = name.partition(":")
    names = vars(importlib.import_module(module))
    found = [names[attribute]] if attribute else list({id(value): value for value in names.values() if isinstance(value, Worker)}.values())
    if len(found) != 1 or not isinstance(found[0], Worker):
        raise SystemExit(f"{module} has {len(found)} workers: say MODULE:NAME")
    return found[0]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m queue_jobs", description="Runs the Worker of a module until SIGTERM.")
    result.add_argument("module", help="as for import; MODULE:NAME if it has several workers")
    add_options(result)
    return result


def add_options(result: argparse.ArgumentParser) -> None:
    result.epilog = "What is not given is as the Worker has it. QUEUE_JOBS_LOG=debug, info (default), warn or error: the least level that is logged."
    result.add_argument("--queues", metavar="LIST", help="queues to claim from: names, separated by commas or spaces, and selectors, separated by spaces, "
                        "such as 'urgency=high&tags=mail,index' (wherever jobs of the handlers wait)")
    result.add_argument("--mode", choices=["transaction", "lease"], help="transaction: claim, handler and completion are one transaction, exactly once; lease: at least once (transaction)")
    result.add_argument("--concurrency", metavar="N", type=int, help="handlers that run at once (1)")
    result.add_argument("--batch", metavar="N", type=int, help="lease mode: jobs in hand at most, running or not begun (as many as run at once)")
    result.add_argument("--lease", metavar="SECONDS", type=float, help="lease mode: how long a claim holds without a heartbeat (300)")
    result.add_argument("--grace", metavar="SECONDS", type=float, help="from SIGTERM until what still runs is given back (25)")
    result.add_argument("--name", metavar="NAME", help="what the claimant's name begins with (the host's name)")


def apply_options(worker: Worker, options: argparse.Namespace) -> None:
    """Error: ValueError."""
    if options.queues:
        worker.queues = queue_list(options.queues)
    for name in ("mode", "lease", "grace", "name"):
        if getattr(options, name) is not None:
            setattr(worker, name, getattr(options, name))
    if options.concurrency is not None:
        if options.concurrency < 1:
            raise ValueError("--concurrency is at least 1")
        worker.concurrency = worker.batch = options.concurrency
    if options.batch is not None:
        worker.batch = max(options.batch, worker.concurrency)


def queue_list(text: str) -> list[str]:
    """Names, separated by commas or spaces, and selectors, in which commas separate values."""
    return [queue for part in text.split() for queue in ([part] if "=" in part else part.split(",")) if queue]


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    sys.path.insert(0, os.getcwd())
    worker = find(options.module)
    try:
        apply_options(worker, options)
    except ValueError as error:
        parser().error(str(error))
    to_stderr()
    try:
        worker.run()
    except Refused as refused:
        raise SystemExit(f"{parser().prog}: {refused}")


if __name__ == "__main__":
    main()
