"""Programs in processes that are forked from one that has imported aflow: starting them takes a tenth of the time.

For tests that kill programs. Those of the command line and of ``bench crash`` start real ones, so that the processes of
a test have different seeds of ``hash``; the forked ones of a test process have the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]

#: Modules that the programs import. Those of packages that are not installed are skipped.
MODULES: Final = (
    "aflow",
    "aflow.testing",
    "aflow.web",
    "aflow_connectors.files",
    "aflow_connectors.http",
    "aflow_connectors.mqtt",
    "aflow_connectors.postgres",
    "aiohttp.web",
    "aiohttp_ingest.service",
    "llm_enrichment.commands",
)


class Forked:
    """A program in a process of its own; the same as ``asyncio.subprocess.Process``."""

    def __init__(
        self,
        pid: int,
        status: int,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader | None,
        pipes: list[asyncio.ReadTransport],
    ) -> None:
        self.pid: Final = pid
        self.stdout: Final = stdout
        self.stderr: Final = stderr
        #: Exit status; a negative one is that of a signal. None while it runs.
        self.returncode: int | None = None
        self._pipes = pipes
        self._status = status
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(status, self._on_end)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end, and return the exit status. Output that was not read until then may be lost."""
        await self._ended.wait()
        for pipe in self._pipes:
            pipe.close()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for its end, and return the rest of its output and of its errors."""
        readers = [self.stdout] if self.stderr is None else [self.stdout, self.stderr]
        output, *errors = await asyncio.gather(*(reader.read() for reader in readers))
        await self.wait()
        return output, b"".join(errors)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        # The server writes the status before it closes the pipe.
        self.returncode = int(os.read(self._status, 64) or b"-9")
        os.close(self._status)
        self._ended.set()


class ForkServer:
    """The process that forks; see ``tests/fork_server.py``."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests

    async def start(
        self, module: str, *arguments: str | Path | float, errors: bool = False
    ) -> Forked:
        """Start ``python -m module arguments`` in the folder of the project.

        Its errors are those of the test; with ``errors``, they can be read from ``stderr``.
        """
        request = {
            "module": module,
            "arguments": [str(one) for one in arguments],
            "environment": dict(os.environ),
            "folder": str(PROJECT),
        }
        nothing = os.open(os.devnull, os.O_RDONLY)
        read_status, status = os.pipe()
        read_output, output = os.pipe()
        read_errors, written = os.pipe() if errors else (None, os.dup(2))
        given = [nothing, output, written, status]
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode() + b"\n"], given)
            pid = int(self._requests.recv(64))  # the server forks at once
        finally:
            for descriptor in given:
                os.close(descriptor)
        stdout, pipe = await _reader(read_output)
        if read_errors is None:
            return Forked(pid, read_status, stdout, None, [pipe])
        stderr, other = await _reader(read_errors)
        return Forked(pid, read_status, stdout, stderr, [pipe, other])


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    return reader, pipe


@contextmanager
def fork_server() -> Generator[ForkServer]:
    """Start a server, and kill its programs at the end."""
    ours, theirs = socket.socketpair()
    paths = os.pathsep.join([str(PROJECT), *filter(None, sys.path)])
    with ours:
        with theirs:
            number = str(theirs.fileno())
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", number, *MODULES],
                cwd=PROJECT,
                env={**os.environ, "PYTHONPATH": paths},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C ends the tests, which end it
            )
        yield ForkServer(ours)
    process.wait()
