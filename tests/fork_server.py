"""A process that imports modules once, and forks a process for each program: ``tests/forked.py`` starts it.

``python -m tests.fork_server DESCRIPTOR MODULE…`` reads requests from the socket with this file descriptor until it is
closed. A request is a line of JSON, with four file descriptors: standard input, output and errors of the program, and a
pipe for its exit status. The answer is a line with the number of the process.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any, Final

_LARGEST: Final = 1 << 20


class ProcessForker:
    """Forks this process. It has no threads, of which a fork would have one."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        #: Pipes for the exit status by the number of the process.
        self._running: dict[int, int] = {}
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def serve(self) -> dict[str, Any] | None:
        """Answer requests. Return each request in its new process, and None in this one when the socket is closed."""
        signal.signal(signal.SIGCHLD, _on_child)
        signal.set_wakeup_fd(self._waker.fileno())
        while True:
            readable, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in readable:
                self._woken.recv(4096)
                self._report()
            if self._requests in readable:
                line, descriptors = self._read()
                if not line:
                    return None
                if (child := os.fork()) == 0:
                    self._become(descriptors)
                    request: dict[str, Any] = json.loads(line)
                    return request
                *streams, status = descriptors
                for stream in streams:
                    os.close(stream)
                self._running[child] = status
                self._requests.sendall(f"{child}\n".encode())

    def kill_all(self) -> None:
        """Kill the programs that still run."""
        for child in self._running:
            os.kill(child, signal.SIGKILL)

    def _read(self) -> tuple[bytes, list[int]]:
        line, descriptors, _, _ = socket.recv_fds(self._requests, _LARGEST, 4)
        while line and not line.endswith(b"\n"):
            line += self._requests.recv(_LARGEST)
        return line, descriptors

    def _report(self) -> None:
        """Write the exit status of each process that has ended; a negative one is that of a signal."""
        while self._running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            pipe = self._running.pop(child)
            with suppress(BrokenPipeError):  # if nothing waits for it
                os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)

    def _become(self, descriptors: list[int]) -> None:
        """Take the streams of the program, and drop what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._requests, self._woken, self._waker):
            one.close()
        for number, stream in enumerate(descriptors[:3]):
            os.dup2(stream, number)
        for descriptor in (*descriptors, *self._running.values()):
            os.close(descriptor)


def _on_child(number: int, frame: FrameType | None) -> None:
    """Handle the signal: without a handler, nothing is written to the wake-up descriptor."""


def main() -> None:
    """Run until the socket is closed; in a forked process, run its program."""
    forker = ProcessForker(socket.socket(fileno=int(sys.argv[1])))
    for module in sys.argv[2:]:
        with suppress(ImportError):  # of a package that is not installed
            import_module(module)
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()
    request = forker.serve()
    if request is None:
        forker.kill_all()
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[1:] = request["arguments"]
    # Exceptions, exit codes and the end of the interpreter are those of a program.
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
