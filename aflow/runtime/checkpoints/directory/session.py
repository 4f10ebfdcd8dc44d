"""The time in which one job holds a folder: its lock, its threads, and what it knows of the files there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

from aflow.errors import CheckpointError
from aflow.runtime.checkpoints.directory.files import HeldLock
from aflow.runtime.checkpoints.directory.names import TEMPORARY, part_number
from aflow.runtime.checkpoints.directory.threads import to_its_end
from aflow.state.manifest import Manifest

T = TypeVar("T")

#: Files that are written or read at a time; further ones wait, and leave the threads of the host alone.
THREADS: Final = 8


class Session:
    """Begins before the lock is taken, and ends when the last thread at work has finished.

    The lock is given back by that thread, so nobody else ever meets a writer in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.flow = ""
        #: Held while manifests change, and while parts are removed for want of one that points to them.
        self.manifests_change: Final = threading.Lock()
        #: Those that are there, or may be.
        self.checkpoints: Final[dict[int, Manifest]] = {}
        #: Those whose manifests cannot be read.
        self.unreadable: Final[set[int]] = set()
        #: Names of all parts that were there or were begun. They are never given twice.
        self.names: Final[set[str]] = set()
        #: Of those, the ones begun in this session for checkpoints of which nobody knows what becomes of them.
        self.undecided: Final[set[str]] = set()
        #: Of those, the ones that are being written.
        self.writing: Final[set[str]] = set()
        self._lock: HeldLock | None = None
        self._limiter: Final = CapacityLimiter(THREADS)
        self._changed: Final = threading.Condition()
        #: Guarded by ``_changed``, as is the lock.
        self._at_work = 0
        self._over = False

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` in a thread, to its end: a cancellation goes on after that.

        Raises ``CheckpointError`` if the session is over by then.
        """
        return await to_its_end(lambda: self._counted(work), self._limiter)

    def _counted(self, work: Callable[[], T]) -> T:
        with self._changed:
            if self._over:
                raise CheckpointError(f"the storage in {self.folder} has been closed")
            self._at_work += 1
        try:
            return work()
        finally:
            with self._changed:
                self._at_work -= 1
                self._release_if_done()
                self._changed.notify_all()

    def locked(self, lock: HeldLock) -> None:
        """The folder is ours; called in a thread of this session."""
        with self._changed:
            self._lock = lock

    async def end(self) -> None:
        """Let nothing new begin, and wait for the threads at work; without any, it is done at once."""
        with self._changed:
            self._over = True
            self._release_if_done()
            if not self._at_work:
                return
        await to_thread.run_sync(self._wait)

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._at_work)

    def _release_if_done(self) -> None:
        if self._over and not self._at_work and self._lock is not None:
            self._lock.release()
            self._lock = None

    def begin_part(self, name: str) -> str:
        """Reserve a name for a part: ``name``, or one like it if that has been given."""
        stem, dot, ending = name.rpartition(".")
        chosen, number = name, 1
        while chosen in self.names:
            number += 1
            chosen = f"{stem}-{number}{dot}{ending}"
        self.names.add(chosen)
        self.undecided.add(chosen)
        self.writing.add(chosen)
        return chosen

    def decided(self, checkpoints: Callable[[int], bool]) -> None:
        """What becomes of these checkpoints is known: of their parts, those that are needed are pointed to."""
        gone = {name for name in self.undecided if checkpoints(part_number(name) or 0)}
        self.undecided.difference_update(gone)

    def must_stay(self) -> Callable[[str], bool]:
        """Which parts must stay whatever manifests say, by their names; may be asked in any thread."""
        # What an unreadable manifest needs is not known, except that it is not newer than the manifest.
        newest = max(self.unreadable, default=-1)

        def stays(name: str) -> bool:
            final = name.removesuffix(TEMPORARY)
            number = part_number(final)
            if number is None or (number <= newest and final == name):
                return True
            return final in self.undecided or final in self.writing

        return stays
