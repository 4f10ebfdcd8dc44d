"""The manifest of a checkpoint: the files that hold the state of each step.

Theory. A checkpoint is a *manifest* and the files that it references. Each subtask writes one file for each checkpoint,
its *part*, with the snapshots of all its steps. The state of a step that stores changes is a *chain* of parts, from a
complete snapshot to the newest changes, which the manifest lists. Parts are immutable and may be in the chains of
several checkpoints. They are removed when no retained manifest references them.

Committables of sinks, positions of sources and records in flight are operator state of their step, under names that
begin with ``@``. Storage does not distinguish them from other state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp

#: Format of parts and manifests. A reader refuses newer ones.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FileRef:
    """An immutable file of a checkpoint; ``path`` is relative to the folder of the storage."""

    path: str
    size: int
    """In bytes."""
    checksum: str
    """CRC-32 of the content as eight hexadecimal digits, or a stronger one with its name as prefix: ``sha256:…``."""


@dataclass(frozen=True, slots=True)
class Link:
    """A part in a chain, used for the key groups from ``first`` up to ``stop`` (exclusive)."""

    file: FileRef
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state of one step in one subtask: its chain, oldest part first."""

    subtask: int
    chain: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of one step."""

    name: str
    what: str
    """The method that made the step (``process``, ``window.fold`` …)."""
    parallelism: int
    subtasks: tuple[SubtaskState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A completed checkpoint."""

    id: int
    kind: CheckpointKind
    flow: str
    key_groups: int
    created_at: Timestamp
    """Time of the trigger (epoch ms)."""
    completed_at: Timestamp
    steps: tuple[StepState, ...]
    aflow: str = ""
    """The version of aflow that wrote it."""
    format: int = FORMAT

    @property
    def files(self) -> frozenset[FileRef]:
        """All files of the checkpoint."""
        return frozenset(
            link.file for step in self.steps for one in step.subtasks for link in one.chain
        )
