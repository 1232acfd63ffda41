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
    result.add_argument("--queues", help="names or selectors, separated by spaces or given as a|b; default: the workers that have handlers")
    result.add_argument("--mode", choices=["transaction", "lease"])
    result.add_argument("--concurrency", type=int)
    result.add_argument("--batch", type=int, help="lease mode: jobs in hand at most")
    result.add_argument("--lease", type=float, help="seconds")
    result.add_argument("--grace", type=float, help="seconds from SIGTERM until what still runs is given back")
    result.add_argument("--name", help="what the claimant's name begins with")


def apply_options(worker: Worker, options: argparse.Namespace) -> None:
    if options.queues:
        worker.queues = options.queues.split()
    for name in ("mode", "lease", "grace", "name"):
        if getattr(options, name) is not None:
            setattr(worker, name, getattr(options, name))
    if options.concurrency is not None:
        worker.concurrency = worker.batch = options.concurrency
    if options.batch is not None:
        worker.batch = max(options.batch, worker.concurrency)


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    sys.path.insert(0, os.getcwd())
    worker = find(options.module)
    apply_options(worker, options)
    to_stderr()
    try:
        worker.run()
    except Refused as refused:
        raise SystemExit(f"{parser().prog}: {refused}")


if __name__ == "__main__":
    main()
