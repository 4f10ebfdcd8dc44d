"""What the checkpoint coordinator is told and what it answers.

The coordinator knows tasks by name only (``"sums[0]"``, one for each subtask). It numbers checkpoints from
``first_id`` on, and requests by the numbers that the shell gives them.
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
    """The tasks run, and checkpoints may be taken from now on."""


@dataclass(frozen=True, slots=True)
class Requested:
    """Somebody wants a checkpoint now: a savepoint, the final one, or a periodic one out of turn."""

    request: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A task has done its part, and what it remembers is stored."""

    task: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Declined:
    """A task cannot take part, or could not store what it remembers."""

    task: str
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The checkpoint as a whole is on disk: it can be restored from now on."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class NotStored:
    """The parts are there, but the checkpoint as a whole could not be stored."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class RemovalsCounted:
    """So many checkpoints are being removed from storage right now. Whoever never says so says 0.

    While they are more than ``max_concurrent`` no periodic checkpoint begins: what is removed more slowly than it
    is made would fill the disk.
    """

    under_way: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The tasks do not run any more: nothing that is pending will come about."""

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
    """Have the sources begin checkpoint ``checkpoint``."""

    checkpoint: int
    kind: CheckpointKind
    created_at: Timestamp


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """All tasks have done their part: make the checkpoint restorable, then say ``Stored`` or ``NotStored``."""

    checkpoint: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell all tasks that the checkpoint is complete: sinks commit."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell all tasks to forget the checkpoint, and remove what they stored for it."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a completed checkpoint that newer ones have made superfluous."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: the checkpoint that it led to."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Why a request leads to nothing."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailJob:
    """Too many checkpoints have failed in a row."""

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
    """Numbers by which the coordinator decides; times in milliseconds."""

    every: int | None = None
    """From the begin of one periodic checkpoint to that of the next; None: only those that are asked for."""
    first_delay: int = 0
    """From ``Started`` to the first periodic one: see ``first_delay``."""
    min_pause: int = 0
    """From the end of one checkpoint to the begin of the next periodic one."""
    timeout: int = 600_000
    """A checkpoint that takes longer has failed."""
    max_concurrent: int = 1
    """Checkpoints under way at a time; savepoints are counted, but not held back by it."""
    tolerable_failures: int = 0
    """Checkpoints in a row that may fail before the job does."""
    keep: int = 1
    """Completed periodic checkpoints that are kept; savepoints are kept for ever and not counted."""


def first_delay(every: int, min_pause: int, random: float) -> int:
    """Return the delay (ms) of the first periodic checkpoint: a random one in [``min_pause``, ``every``).

    It is ``min_pause`` if that is not below ``every``. ``random`` is from 0 to below 1. The delay is random so that
    jobs that are started together do not write their checkpoints together. After Flink's ``CheckpointCoordinator``.
    """
    return min_pause + int(max(0, every - min_pause) * random)
