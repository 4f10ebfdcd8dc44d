"""Events and instructions of the checkpoint coordinator.

Tasks are identified by name (``"sums[0]"``, one for each subtask), checkpoints by numbers
from ``first_id`` on, requests by numbers that the shell assigns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from aflow.machines.alarm import AlarmFired as AlarmFired
from aflow.machines.alarm import CancelAlarm as CancelAlarm
from aflow.machines.alarm import SetAlarm as SetAlarm
from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp

# ---------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Started:
    """The tasks run: checkpoints may be triggered."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A checkpoint is requested: a savepoint, the final one, or an additional periodic one."""

    request: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A task has taken part in the checkpoint, and its snapshot is stored."""

    task: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Declined:
    """A task cannot take part, or could not store its snapshot."""

    task: str
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The checkpoint as a whole is stored: it can be restored."""

    checkpoint: int
    independent: bool = False
    """True if it shares no file with earlier ones, and the last one before it is to be kept therefore."""


@dataclass(frozen=True, slots=True)
class NotStored:
    """All tasks have acknowledged, but the checkpoint as a whole could not be stored."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class RemovalsCounted:
    """Number of checkpoints that are being removed from storage; 0 until the first such event.

    While it is above ``max_concurrent`` no periodic checkpoint begins: checkpoints that are removed more slowly than
    they are taken would fill the disk.
    """

    under_way: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The tasks no longer run: pending checkpoints are aborted."""

    reason: str


Event: TypeAlias = (
    Started
    | AlarmFired
    | Requested
    | Acknowledged
    | Declined
    | Stored
    | NotStored
    | RemovalsCounted
    | Stopped
)

# ---------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class TriggerTasks:
    """Trigger the checkpoint in the sources."""

    checkpoint: int
    kind: CheckpointKind
    created_at: Timestamp


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """All tasks have acknowledged: make the checkpoint restorable, then report ``Stored`` or ``NotStored``."""

    checkpoint: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Notify all tasks that the checkpoint is complete: sinks commit."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Notify all tasks that the checkpoint is aborted, and remove what they stored for it."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a completed checkpoint that is superfluous."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request with its checkpoint."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a request."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailJob:
    """Fail the job: too many checkpoints have failed in a row."""

    reason: str


Instruction: TypeAlias = (
    TriggerTasks
    | StoreCheckpoint
    | NotifyComplete
    | NotifyAborted
    | Discard
    | Answer
    | Refuse
    | FailJob
    | SetAlarm
    | CancelAlarm
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of the coordinator; times in milliseconds."""

    every: int | None = None
    """From the start of one periodic checkpoint to that of the next; None: requested checkpoints only."""
    first_delay: int = 0
    """From ``Started`` to the first periodic one: see ``first_delay``."""
    min_pause: int = 0
    """From the end of one checkpoint to the start of the next periodic one."""
    timeout: int = 600_000
    """A checkpoint that takes longer fails."""
    max_concurrent: int = 1
    """Maximum of pending checkpoints; savepoints are counted, but do not wait for it."""
    tolerable_failures: int = 0
    """Checkpoints that may fail in a row before the job fails."""
    keep: int = 1
    """Completed periodic checkpoints that are kept; savepoints are always kept and not counted."""


def first_delay(every: int, min_pause: int, random: float) -> int:
    """Return the delay (ms) of the first periodic checkpoint: a random one in [``min_pause``, ``every``).

    It is ``min_pause`` if that is not below ``every``. ``random`` is from 0 to below 1. The delay is random so that
    jobs that are started together do not write their checkpoints together. After Flink's ``CheckpointCoordinator``.
    """
    return min_pause + int(max(0, every - min_pause) * random)
