"""A server in a process of its own: in a temporary folder, on free ports of loopback, without privileges."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests import temporary_files

#: Seconds within which a server starts. Long: one that cannot start ends, and the machine may be busy.
_STARTING: Final = 300.0
_PARENT_DEATH_SIGNAL: Final = 1


class ServerProcess:
    """A server that ``command`` starts in ``folder``, and that ``answers`` when it is ready."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, answers: Callable[[], bool]
    ) -> None:
        self._command = command
        self.folder = folder
        self._answers = answers
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server with the data in its folder, and wait until it answers.

        Blocks. For the main thread: the server ends with the thread that started it.
        """
        assert threading.current_thread() is threading.main_thread()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                user=unprivileged_user(),
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for the tests
                preexec_fn=_end_with_parent,
            )
        deadline = time.monotonic() + _STARTING
        while self.process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.01)
        log_text = (self.folder / "log").read_text(errors="replace")
        raise RuntimeError(f"the server does not start: {log_text[-2000:]}")

    def kill(self) -> None:
        """End the server as a crash does."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(_STARTING)

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue after ``pause``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def server_folder() -> Generator[Path]:
    """Create a folder that the user of the server may write to; remove it at the end."""
    memory = temporary_files.is_suitable(temporary_files.MEMORY)
    # The parent must be open to the user of the server.
    parent = temporary_files.MEMORY if memory else Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=f"aflow-tests-{os.getpid()}-", dir=parent))
    try:
        user = unprivileged_user()
        if user is not None:
            os.chown(folder, user, -1)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unprivileged_user() -> int | None:
    """Return a user without privileges if this process is root's."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def program_of(name: str) -> Path | None:
    """Return the path of a server's program, which Debian may have outside of the path of users."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return None if found is None else Path(found)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
