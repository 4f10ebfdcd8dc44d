"""A program that has imported the service, and forks a process for each start: imports take longer than all the rest.

A line on standard input starts the service, with the path of the file for its errors. Standard output has
``started PID``, the output of the service, and ``ended STATUS``.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
from pathlib import Path
from typing import NoReturn

# Imported here, so that the forked process need not.
import fastapi_fraud.service  # noqa: F401 # pyright: ignore[reportUnusedImport]
from aflow.errors import InternalError
from bench.crash.fork_server import ended_status


def main() -> None:
    """Start the service for each line, one at a time."""
    for line in sys.stdin:
        if threading.active_count() != 1:
            raise InternalError("a program with threads must not fork")
        pid = os.fork()
        if pid == 0:
            _serve(Path(line.strip()))
        print(f"started {pid}", flush=True)
        print(f"ended {ended_status(pid)}", flush=True)


def _serve(errors: Path) -> NoReturn:
    """Become the service."""
    nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(errors, os.O_CREAT | os.O_WRONLY)
    os.dup2(nothing, 0)
    os.dup2(file, 2)
    sys.argv = ["fastapi_fraud", "--port", "0"]
    status = 1
    try:
        runpy.run_module("fastapi_fraud", run_name="__main__")
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
