"""Server programs of tests: as a user without privileges, on free ports, ended with the tests."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests import temporary_files

_PARENT_DEATH_SIGNAL: Final = 1


@contextmanager
def server_folder() -> Generator[Path]:
    """A folder that the user of a server may enter, in memory if there is enough. It is removed at the end."""
    memory = temporary_files.is_suitable(temporary_files.MEMORY)
    parent = temporary_files.MEMORY if memory else Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=f"aflow-tests-{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def owned_by_server(folder: Path) -> None:
    """Give ``folder`` and its files to the user of a server."""
    if (user := _user()) is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, -1)


def started(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in ``folder``, with its output in the file ``output``.

    For the main thread: the program ends with the thread that started it.
    """
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=_user(),
            env=None if environment is None else dict(environment),
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for the tests
            preexec_fn=_end_with_parent,
        )


def accepts_in_time(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    """Wait until ``port`` accepts connections. Return False if the process ends, or at ``deadline`` (monotonic)."""
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


def _user() -> int | None:
    """Return a user without privileges if this process is root's."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
