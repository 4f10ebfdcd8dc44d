"""The contract of checkpoint storage. ``DirectoryStorage`` implements it with a folder.

One storage object belongs to one job at a time, and all its methods are called on the job's event loop; they wait
without blocking it. Parts are written by many subtasks at once, manifests by the coordinator alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from aflow.errors import StorageTaken
from aflow.model.key_groups import KeyGroupRange
from aflow.state.manifest import FileRef, Link, Manifest
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class Restored:
    """A complete checkpoint that was read back."""

    manifest: Manifest
    states: Mapping[str, OperatorSnapshot]
    """The state of each step, by its name: that of all its subtasks together, complete."""
    passed_over: tuple[str, ...] = ()
    """Newer checkpoints that could not be read, each with the file and the reason."""


@runtime_checkable
class StepReader(Protocol):
    """An optional part of a storage: it reads the state of one step without that of the others.

    ``job.state(…)`` uses it for reads of the last checkpoint. Without it such a read calls ``latest``, also in a
    subclass that overrides ``latest`` only.
    """

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        """As ``CheckpointStorage.latest``, with the state of ``step`` only, and at least that of key groups ``groups``.

        ``Restored.states`` is empty if the checkpoint has no such step.
        """
        ...


def is_permanent(failure: Exception) -> bool:
    """Return True if no later checkpoint can succeed after this failure of a storage."""
    return isinstance(failure, StorageTaken)


@runtime_checkable
class LocationReader(Protocol):
    """An optional part of a storage: it reads savepoints from locations that are no folders, such as its bucket."""

    async def read_savepoint(self, path: str) -> Restored:
        """Return the savepoint, or the newest checkpoint, at ``path``, without a claim.

        ``path`` is the ``restore`` of a job, and may be a folder too. Raises ``RestoreError``.
        """
        ...


@runtime_checkable
class ClaimWatcher(Protocol):
    """An optional part of a storage: it notices by itself that another job has claimed it."""

    async def watch_claim(self) -> None:
        """Wait until another job has claimed the open storage; then raise ``StorageTaken``.

        Called by a running job, which cancels the call when it ends.
        """
        ...


async def watch_claim(storage: CheckpointStorage) -> None:
    """Raise ``StorageTaken`` once another job has claimed ``storage``; return if that cannot be noticed."""
    if isinstance(storage, ClaimWatcher):
        await storage.watch_claim()


class CheckpointStorage(Protocol):
    """Stores the checkpoints of one flow."""

    async def open(self, flow: str) -> None:
        """Claim the storage for one live job; called before everything else.

        Raises ``CheckpointError`` if another live job has it (naming its process if that is known), if it belongs to a
        flow of another name, or if it cannot be written.
        """
        ...

    async def close(self) -> None:
        """Release the storage. Harmless if it was not opened."""
        ...

    async def latest(self) -> Restored | None:
        """Return the newest complete checkpoint; None if there never was one.

        Also called while other methods run, for reads of the last checkpoint by the host. One whose files are removed
        meanwhile is skipped as any other that cannot be read: the caller asks again if a newer one was completed.

        One that is corrupt, truncated or misses a file is skipped and named in ``passed_over``. Raises ``RestoreError``
        naming all of them if none is complete. Raises ``CheckpointError`` if a checkpoint cannot be read for a reason
        that may pass, such as an unreachable server: no older one is returned in place of it.
        """
        ...

    async def kept(self) -> list[int]:
        """Return the numbers of the completed checkpoints, ascending."""
        ...

    async def next_id(self) -> int:
        """Return a number for the next checkpoint that no file has, not even one that a crash left incomplete."""
        ...

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        """Store the state of the steps of one subtask, durably, as one file. Raises ``CheckpointError``."""
        ...

    async def complete(self, manifest: Manifest) -> None:
        """Make the checkpoint restorable, durably, by storing its manifest. Raises ``CheckpointError``."""
        ...

    async def discard(self, checkpoint: int) -> None:
        """Remove the manifest of a checkpoint; the next ``sweep`` removes its parts."""
        ...

    async def sweep(self, keep: Collection[FileRef]) -> None:
        """Remove all parts that neither ``keep`` nor a manifest refers to. A failure does no harm."""
        ...

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        """Store the chain of one step as one complete part with the same state. Raises ``CheckpointError``."""
        ...

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        """Write the checkpoint as a savepoint into the folder ``path``, which needs no other file.

        Raises ``CheckpointError`` if ``path`` exists already, or cannot be written.
        """
        ...
