"""A program that has imported everything, and forks a driver for each start: imports take most of its time.

A line on standard input, a ``Start`` as JSON, starts a driver. Standard output has ``started PID`` and ``ended
STATUS``.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

# Imported here, so that the forked process need not.
import pyspark.sql.streaming  # noqa: F401 # pyright: ignore[reportUnusedImport]

from aflow.errors import InternalError
from bench.crash.fork_server import ended_status
from bench.crash.stream.program import Start, run_driver


def main() -> None:
    """Start a driver for each line, one at a time."""
    for line in sys.stdin.buffer:
        start = msgspec.json.decode(line, type=Start)
        if threading.active_count() != 1:
            raise InternalError("a program with threads must not fork")
        pid = os.fork()
        if pid == 0:
            _become_driver(start)
        print(f"started {pid}", flush=True)
        print(f"ended {ended_status(pid)}", flush=True)


def _become_driver(start: Start) -> NoReturn:
    log = Path(start.log)
    for number, path in ((1, log), (2, log.with_suffix(".err"))):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(start.variables)
    status = 1
    try:
        status = run_driver(start.settings)
    finally:
        sys.stderr.flush()
        # Threads of py4j may wait for a JVM that was killed.
        os._exit(status)


if __name__ == "__main__":
    main()
