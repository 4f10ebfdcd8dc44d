"""Where checkpoints are kept: the contract. ``DirectoryStorage`` keeps them in a folder.

One storage object belongs to one job at a time, and all its methods are called on the job's event loop; they wait
without blocking it. Parts are written by many subtasks at once, manifests by the coordinator alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aflow.errors import AflowError
from aflow.state.manifest import FileRef, Link, Manifest
from aflow.state.snapshot import OperatorSnapshot


def complaint(error: Exception) -> str:
    """What a storage says went wrong, with the kind of an error that is none of aflow's."""
    return str(error) if isinstance(error, AflowError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint that was read back, whole."""

    manifest: Manifest
    states: Mapping[str, OperatorSnapshot]
    """What each step remembered, by its name: that of all its subtasks together, complete."""
    passed_over: tuple[str, ...] = ()
    """Newer checkpoints that could not be read, each with the file and the reason, for a person."""


class CheckpointStorage(Protocol):
    """Keeps the checkpoints of one flow."""

    async def open(self, flow: str) -> None:
        """Claim the place for one live job; before everything else.

        Raises ``CheckpointError`` if another live job has it (naming its process where that is known), if it is the
        place of a flow of another name, or if it cannot be written.
        """
        ...

    async def close(self) -> None:
        """Give the place back. Harmless when it was not opened."""
        ...

    async def latest(self) -> Restored | None:
        """The newest completed checkpoint that is whole; None if there never was one.

        One that is corrupt, truncated or misses a file is passed over and named in ``passed_over``. Raises
        ``RestoreError`` naming all of them if none is whole.
        """
        ...

    async def kept(self) -> list[int]:
        """The numbers of the completed checkpoints that are here, ascending."""
        ...

    async def next_id(self) -> int:
        """A number for the next checkpoint that nothing in this place has, not even what a crash left half-written."""
        ...

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        """Store what the steps of one subtask remember, durably, as one file. Raises ``CheckpointError``."""
        ...

    async def complete(self, manifest: Manifest) -> None:
        """Make the checkpoint restorable, durably: the manifest is what makes it one. Raises ``CheckpointError``."""
        ...

    async def discard(self, checkpoint: int) -> None:
        """Remove the manifest of a checkpoint; its parts go with the next ``sweep``."""
        ...

    async def sweep(self, keep: Collection[FileRef]) -> None:
        """Remove all parts that neither ``keep`` nor a manifest that is there points to. Failing does no harm."""
        ...

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        """Store the chain of one step as one complete part, whose result is the same. Raises ``CheckpointError``."""
        ...

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        """Write the checkpoint once more as a savepoint into the folder ``path``, which needs no other file.

        Raises ``CheckpointError`` if there is something at ``path`` already, or it cannot be written.
        """
        ...
