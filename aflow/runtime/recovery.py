"""Recovery of a job: the checkpoint that it starts from, its restarts, and the events that its host is told."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike, fspath
from typing import TypeAlias

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp
from aflow.runtime.calls.reports import CallReport
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.settings import Checkpointing, check_bool
from aflow.runtime.checkpoints.statistics import CheckpointInfo
from aflow.runtime.checkpoints.storage import CheckpointStorage, LocationReader, Restored
from aflow.runtime.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, Restarts


class StartFrom(Enum):
    """The start of a job with checkpoints, other than the path of a checkpoint or savepoint."""

    LATEST = "latest"
    """The newest complete checkpoint in its storage; the beginning if there is none."""
    FRESH = "fresh"
    """The beginning. Checkpoints in the storage are removed once the job has completed some of its own."""


Restore: TypeAlias = StartFrom | str | PathLike[str]
"""A member of ``StartFrom``, ``"latest"``, ``"fresh"``, or the path of a checkpoint or savepoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestarted:
    """Event: a job has failed and is about to be restarted."""

    cause: Exception
    attempt: int
    """The number of restarts, including this one."""
    delay_ms: int
    """From the failure to the restart."""
    failed_at: Timestamp
    """Epoch ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestored:
    """Event: a job continues from a checkpoint."""

    checkpoint: int
    passed_over: tuple[str, ...]
    """Newer checkpoints that could not be read, each with the file and the reason."""
    path: str = ""
    """The path given as ``restore``; '' for a checkpoint in the job's own storage."""


JobEvent: TypeAlias = CheckpointInfo | JobRestarted | JobRestored | CallReport
"""Events for the host: the outcome of a checkpoint, a restart, a restore, a blocked event loop, an abandoned call."""


def start_from(restore: Restore) -> StartFrom | str:
    """Return the choice of the user. Raises ``FlowDefinitionError`` for anything else."""
    if isinstance(restore, StartFrom):
        return restore
    if not isinstance(restore, str | PathLike) or not fspath(restore):
        raise FlowDefinitionError(
            f"restore takes 'latest', 'fresh' or the path of a savepoint, not {shown(restore)}"
        )
    path = fspath(restore)
    known = {one.value: one for one in StartFrom}
    return known.get(path, path)


def check_checkpointing(checkpointing: object, begins: StartFrom | str) -> None:
    """Refuse a value that is no ``Checkpointing``, and None if the job is to start from a savepoint.

    Raises ``FlowDefinitionError``.
    """
    if checkpointing is None and isinstance(begins, str):
        raise FlowDefinitionError(
            f"restore={begins!r} needs checkpointing=Checkpointing(storage=…) as well: a job that continues from a "
            f"savepoint has output that only a checkpoint can make visible"
        )
    if checkpointing is not None and not isinstance(checkpointing, Checkpointing):
        raise FlowDefinitionError(
            f"checkpointing takes Checkpointing(storage=…), not {shown(checkpointing)}"
        )


async def checkpoint_of(start: StartFrom | str, storage: CheckpointStorage) -> Restored | None:
    """Return the checkpoint that an attempt continues from; None if it starts fresh. Raises ``RestoreError``."""
    if isinstance(start, str):
        if isinstance(storage, LocationReader):
            return await storage.read_savepoint(start)
        return await read_checkpoint(start)
    return await storage.latest() if start is StartFrom.LATEST else None


def require_checkpointing(options: RecoveryOptions, what: str) -> None:
    """Raise ``FlowDefinitionError`` if the job takes no checkpoints, which the call ``what`` needs."""
    if options.checkpointing is None:
        raise FlowDefinitionError(
            f"{what} needs a job with checkpointing; start it with checkpointing=Checkpointing(storage=…), "
            f"with every=None if no periodic checkpoints are wanted"
        )


def path_of_savepoint(path: str | PathLike[str], what: str) -> str:
    """Return ``path``, the argument of ``what``. Raises ``FlowDefinitionError`` if it cannot name a folder."""
    place = fspath(path) if isinstance(path, str | PathLike) else ""
    if not isinstance(place, str) or not place:
        raise FlowDefinitionError(f"{what} takes the path of a new folder, not {shown(path)}")
    return place


def new_savepoint(
    options: RecoveryOptions,
    path: str | PathLike[str],
    what: str,
    storage: CheckpointStorage | None,
) -> str:
    """Return the folder of a new savepoint. Raises an error before anything is done, as far as the names tell.

    ``storage`` is that of the job, or None.
    """
    require_checkpointing(options, what)
    place = path_of_savepoint(path, what)
    if isinstance(storage, DirectoryStorage):
        storage.check_savepoint(place)
    return place


def check_restart(restart: object) -> None:
    """Refuse a value that is no restart strategy. Raises ``FlowDefinitionError``."""
    if not isinstance(restart, NoRestart | FixedDelay | ExponentialDelay | FailureRate):
        raise FlowDefinitionError(
            f"restart takes NoRestart(), FixedDelay(…), ExponentialDelay(…) or FailureRate(…) of aflow.restart, "
            f"not {shown(restart)}"
        )


def check_on_event(on_event: object) -> None:
    """Refuse a value that is not callable, and a coroutine function. Raises ``FlowDefinitionError``."""
    if on_event is not None and not callable(on_event):
        raise FlowDefinitionError(f"on_event takes a function, not {shown(on_event)}")
    if inspect.iscoroutinefunction(on_event):
        raise FlowDefinitionError(
            f"on_event takes a plain function, and {shown(on_event)} is a coroutine function, which is not "
            f"awaited: start a task in a plain one, or put events into an asyncio.Queue"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """Recovery of a job from failures. Raises ``FlowDefinitionError`` for invalid arguments."""

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


async def opened_storage(settings: Checkpointing | None, flow: str) -> CheckpointStorage | None:
    """Return the open storage of a flow, to be closed; None in a job without checkpoints."""
    if settings is None:
        return None
    storage = settings.storage
    if isinstance(storage, str | PathLike):
        storage = DirectoryStorage(storage)
    try:
        await storage.open(flow)
    except BaseException:
        await storage.close()
        raise
    return storage
