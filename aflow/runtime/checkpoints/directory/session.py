"""The time in which one job holds a storage: its lock, its threads, and its knowledge of the files there."""

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

#: The most files that are written or read at a time, so that the host keeps its threads; further ones wait.
THREADS: Final = 8


class StorageSession:
    """Starts before the lock is taken, and ends when the last working thread has finished.

    That thread releases the lock, so another job never meets a writer in the folder.
    """

    def __init__(self, place: Path | str) -> None:
        """``place`` is the location, for messages."""
        self.place: Final = place
        #: Held while manifests change, and while unreferenced parts are removed.
        self.manifests_change: Final = threading.Lock()
        #: Manifests that are there, or may be.
        self.checkpoints: Final[dict[int, Manifest]] = {}
        #: Manifests that cannot be read.
        self.unreadable: Final[set[int]] = set()
        #: Names of all parts that were there or were started. They are never used twice.
        self.names: Final[set[str]] = set()
        #: Of those, parts started in this session for checkpoints whose outcome is unknown.
        self.undecided: Final[set[str]] = set()
        #: Of those, parts that are being written.
        self.writing: Final[set[str]] = set()
        self._lock: HeldLock | None = None
        self._limiter: Final = CapacityLimiter(THREADS)
        self._changed: Final = threading.Condition()
        #: Guarded by ``_changed``, as is the lock.
        self._at_work = 0
        self._over = False

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` in a thread, to its end; a cancellation is raised after that.

        Raises ``CheckpointError`` if the session is over by then.
        """
        return await to_its_end(lambda: self._counted(work), self._limiter)

    def _counted(self, work: Callable[[], T]) -> T:
        with self._changed:
            if self._over:
                raise CheckpointError(f"the storage in {self.place} has been closed")
            self._at_work += 1
        try:
            return work()
        finally:
            with self._changed:
                self._at_work -= 1
                self._release_if_done()
                self._changed.notify_all()

    def locked(self, lock: HeldLock) -> None:
        """Keep the lock of the folder; called in a thread of this session."""
        with self._changed:
            self._lock = lock

    async def end(self) -> None:
        """Refuse new work, and wait for the working threads; without any, return at once."""
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
        """Reserve a name for a part: ``name``, or a similar one if that was used."""
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
        """Record that the outcome of these checkpoints is known: manifests refer to the parts that they need."""
        gone = {name for name in self.undecided if checkpoints(part_number(name) or 0)}
        self.undecided.difference_update(gone)

    def must_stay(self) -> Callable[[str], bool]:
        """Return a predicate for names of parts that must be kept whatever manifests say; any thread may call it."""
        # The parts that an unreadable manifest needs are unknown, except that they are not newer than the manifest.
        newest = max(self.unreadable, default=-1)

        def stays(name: str) -> bool:
            final = name.removesuffix(TEMPORARY)
            number = part_number(final)
            if number is None or (number <= newest and final == name):
                return True
            return final in self.undecided or final in self.writing

        return stays
