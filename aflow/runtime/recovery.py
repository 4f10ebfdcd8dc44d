"""What a job does about its failures: where it begins, and whether it is started again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike, fspath
from typing import TypeAlias

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp
from aflow.runtime.calls.reporting import CallReport
from aflow.runtime.checkpoints.settings import Checkpointing, check_bool
from aflow.runtime.checkpoints.statistics import CheckpointInfo
from aflow.runtime.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, Restarts


class StartFrom(Enum):
    """Where a job with checkpoints begins, if not at the checkpoint or savepoint of a given path."""

    LATEST = "latest"
    """At the newest checkpoint in its storage that is whole; at the beginning if there is none."""
    FRESH = "fresh"
    """At the beginning. Checkpoints that are there are removed once the job has some of its own."""


Restore: TypeAlias = StartFrom | str | PathLike[str]
"""A member of ``StartFrom``, ``"latest"``, ``"fresh"``, or the path of a checkpoint or savepoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestarted:
    """A job that has failed and is about to be started again."""

    cause: Exception
    attempt: int
    """How many restarts there have been, this one included."""
    delay_ms: int
    """From the failure to the restart."""
    failed_at: Timestamp
    """Epoch ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestored:
    """A job goes on from a checkpoint."""

    checkpoint: int
    passed_over: tuple[str, ...]
    """Newer checkpoints that could not be read, each with the file and the reason."""
    path: str = ""
    """Where it is, if ``restore`` has named it; '' for one in the job's own storage."""


JobEvent: TypeAlias = CheckpointInfo | JobRestarted | JobRestored | CallReport
"""What happens to a job that its host may want to know: what became of a checkpoint, a restart, where it goes on, what
blocks the event loop, and what did not end when it was to."""


def start_from(restore: Restore) -> StartFrom | str:
    """What the user has chosen. Raises ``FlowDefinitionError`` for what is no choice."""
    if isinstance(restore, StartFrom):
        return restore
    if not isinstance(restore, str | PathLike) or not fspath(restore):
        raise FlowDefinitionError(
            f"restore takes 'latest', 'nothing' or the path of a savepoint, not {shown(restore)}"
        )
    path = fspath(restore)
    known = {one.value: one for one in StartFrom}
    return known.get(path, path)


def check_checkpointing(checkpointing: object, begins: StartFrom | str) -> None:
    """Refuse what is no ``Checkpointing``, and none where the job is to begin at a savepoint.

    Raises ``FlowDefinitionError``.
    """
    if checkpointing is None and isinstance(begins, str):
        raise FlowDefinitionError(
            f"restore={begins!r} needs checkpointing=Checkpointing(storage=…) as well: a job that goes on from a "
            f"savepoint has output that only a checkpoint can make visible"
        )
    if checkpointing is not None and not isinstance(checkpointing, Checkpointing):
        raise FlowDefinitionError(
            f"checkpointing takes Checkpointing(storage=…), not {shown(checkpointing)}"
        )


def path_of_savepoint(path: str | PathLike[str], what: str) -> str:
    """``path`` as ``what`` was given it. Raises ``FlowDefinitionError`` for what is no path of a new folder."""
    place = fspath(path) if isinstance(path, str | PathLike) else ""
    if not isinstance(place, str) or not place:
        raise FlowDefinitionError(f"{what} takes the path of a new folder, not {shown(path)}")
    return place


def check_restart(restart: object) -> None:
    """Refuse what is no restart strategy. Raises ``FlowDefinitionError``."""
    if not isinstance(restart, NoRestart | FixedDelay | ExponentialDelay | FailureRate):
        raise FlowDefinitionError(
            f"restart takes NoRestart(), FixedDelay(…), ExponentialDelay(…) or FailureRate(…), "
            f"not {shown(restart)}"
        )


def check_on_event(on_event: object) -> None:
    """Refuse what cannot be called, and what would have to be awaited. Raises ``FlowDefinitionError``."""
    if on_event is not None and not callable(on_event):
        raise FlowDefinitionError(f"on_event takes a function, not {shown(on_event)}")
    if inspect.iscoroutinefunction(on_event):
        raise FlowDefinitionError(
            f"on_event takes a plain function, and {shown(on_event)} is a coroutine function, which nobody would "
            f"await: start a task in a plain one, or put events into an asyncio.Queue"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How a job comes through failures. Raises ``FlowDefinitionError`` for arguments that make no sense."""

    checkpointing: Checkpointing | None = None
    restarts: Restarts = field(default_factory=NoRestart)
    restore: Restore = StartFrom.LATEST
    allow_dropped_state: bool = False
    on_event: Callable[[JobEvent], None] | None = None

    def __post_init__(self) -> None:
        check_checkpointing(self.checkpointing, start_from(self.restore))
        check_restart(self.restarts)
        check_bool(self.allow_dropped_state, "allow_dropped_state")
        check_on_event(self.on_event)
