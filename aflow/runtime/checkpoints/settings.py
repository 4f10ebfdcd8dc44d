"""Settings of checkpoints, as the user chooses them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from os import PathLike, fspath
from typing import TypeAlias

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import positive_millis, to_millis
from aflow.runtime.checkpoints.storage import CheckpointStorage


def check_bool(value: object, name: str) -> None:
    """Refuse a value that is neither True nor False: "no" would count as True. Raises ``FlowDefinitionError``."""
    if not isinstance(value, bool):
        raise FlowDefinitionError(f"{name} takes True or False, not {shown(value)}")


class ProcessingGuarantee(Enum):
    """The number of times that state counts a record after a failure."""

    EXACTLY_ONCE = "exactly once"
    """Exactly once, as if there had been no failure."""
    AT_LEAST_ONCE = "at least once"
    """At least once: some records may be counted twice; in return no channel ever waits for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Barriers keep their order among the records: a task that reads several channels waits for the slowest one.

    With ``timeout``, a checkpoint with older barriers continues as an unaligned one. Raises ``FlowDefinitionError`` if
    it is negative.
    """

    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            to_millis(self.timeout, what="Aligned.timeout")
            if self.timeout < timedelta(0):
                raise FlowDefinitionError(
                    f"Aligned.timeout must not be negative, but is {self.timeout}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaligned:
    """Barriers overtake the records, which become part of the checkpoint: fast even if the sinks are slow.

    Records in flight must be storable: plain values, dataclasses, NamedTuples, Structs, enums. Others need
    ``pickle=True``, which RUNS CODE that the stored bytes choose when a checkpoint is restored. Raises
    ``FlowDefinitionError`` if ``pickle`` is neither True nor False.
    """

    pickle: bool = False

    def __post_init__(self) -> None:
        check_bool(self.pickle, "Unaligned.pickle")


Barriers: TypeAlias = Aligned | Unaligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """Schedule and storage of checkpoints. Raises ``FlowDefinitionError`` for invalid values.

    ``Checkpointing(every=timedelta(seconds=10), storage="state/")``.
    """

    storage: str | PathLike[str] | CheckpointStorage
    """The folder for the checkpoints of this flow, created if it is missing; each flow needs its own. Or a storage
    object of your own."""
    every: timedelta | None = timedelta(seconds=10)
    """From the start of one checkpoint to that of the next; None: only savepoints, and the final one. The first is
    taken after a random delay of at least ``min_pause`` and less than ``every``."""
    barriers: Barriers = field(default_factory=Aligned)
    guarantee: ProcessingGuarantee = ProcessingGuarantee.EXACTLY_ONCE
    min_pause: timedelta = timedelta(0)
    """At least from the end of one checkpoint to the start of the next periodic one."""
    timeout: timedelta = timedelta(minutes=10)
    """A checkpoint that takes longer fails."""
    max_concurrent: int = 1
    """The most periodic checkpoints under way at a time."""
    tolerable_failures: int | None = None
    """The most failures of checkpoints in a row before the job fails; None: any number."""
    keep: int = 2
    """Completed checkpoints that are kept; savepoints are not counted and never removed."""
    incremental: bool = True
    """False makes every checkpoint complete in itself: larger, and faster to read."""
    independent_every: int | None = None
    """After so many checkpoints all files that the next ones need are written anew, in the background. The last
    checkpoint that shares no file with the newest one is kept in addition to ``keep``. None: kept ones share files."""

    def __post_init__(self) -> None:
        self._check_storage()
        if self.every is not None:
            positive_millis(self.every, what="Checkpointing.every")
        positive_millis(self.timeout, what="Checkpointing.timeout")
        if to_millis(self.min_pause, what="Checkpointing.min_pause") < 0:
            raise FlowDefinitionError(
                f"Checkpointing.min_pause must not be negative, but is {self.min_pause}"
            )
        self._check_whole("max_concurrent", 1)
        self._check_whole("keep", 1)
        if self.independent_every is not None:
            self._check_whole("independent_every", 1)
        if self.tolerable_failures is not None:
            self._check_whole("tolerable_failures", 0)
        check_bool(self.incremental, "Checkpointing.incremental")
        self._check_barriers()

    def _check_storage(self) -> None:
        storage: object = self.storage
        if isinstance(storage, str | PathLike):
            if not fspath(storage):
                raise FlowDefinitionError("Checkpointing.storage needs a folder, not ''")
            if "://" in str(storage):
                raise FlowDefinitionError(
                    f"Checkpointing.storage takes a folder, and {shown(storage)} is a URL: for a bucket pass "
                    f"ObjectStorage(url) of aflow_connectors.s3"
                )
        elif isinstance(storage, type) or _missing(storage):
            detail = "" if isinstance(storage, type) else f", which has no {_missing(storage)[0]}()"
            raise FlowDefinitionError(
                f"Checkpointing.storage takes a folder, or an object with the methods of CheckpointStorage, "
                f"not {shown(storage)}{detail}"
            )

    def _check_whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or value < least:
            raise FlowDefinitionError(
                f"Checkpointing.{name} must be a whole number from {least} on, not {shown(value)}"
            )

    def _check_barriers(self) -> None:
        if not isinstance(self.barriers, Aligned | Unaligned):
            raise FlowDefinitionError(
                f"Checkpointing.barriers takes Aligned() or Unaligned() of aflow.checkpoints, "
                f"not {shown(self.barriers)}"
            )
        if not isinstance(self.guarantee, ProcessingGuarantee):
            raise FlowDefinitionError(
                f"Checkpointing.guarantee takes a member of ProcessingGuarantee, not {shown(self.guarantee)}"
            )
        unaligned = isinstance(self.barriers, Unaligned) or self.barriers.timeout is not None
        if unaligned and self.guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            raise FlowDefinitionError(
                "unaligned barriers, and aligned ones with a timeout, are for exactly once; with AT_LEAST_ONCE no "
                "channel waits anyway: leave barriers out"
            )


def _missing(storage: object) -> list[str]:
    """Return the methods of ``CheckpointStorage`` that ``storage`` lacks."""
    methods = [name for name in vars(CheckpointStorage) if not name.startswith("_")]
    return [name for name in methods if not callable(getattr(storage, name, None))]
