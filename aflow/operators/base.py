"""What every operator is: a synchronous step that takes batches and pushes batches.

Contract. One operator object belongs to one subtask, and everything in it runs in that subtask's coroutine, so
between the first and the last line of a method nothing else happens. Life cycle: ``open`` once, then any number of
``process``, ``on_watermark``, ``on_processing_time``, ``on_idle``, ``on_active``, ``snapshot``; ``end_input`` once
if the input ended by itself (the final watermark, if any, came before); ``close`` always, exactly once.
``restore`` comes after ``open`` and before everything else.

An operator *pushes* its results into ``self.output`` rather than returning them, because one input batch may become
several batches with watermarks between them (see docs/decisions/001).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aflow.errors import OperatorError
from aflow.machines.calls.rate import SharedBuckets
from aflow.model.batch import Batch
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.model.keys import UnsupportedKey, check_key
from aflow.model.time import MIN_TIMESTAMP, Clock, Timestamp
from aflow.state.backend_choice import InMemory, StateBackend
from aflow.state.snapshot import Captured, OperatorSnapshot

#: What counts as a failure of a user function that is called, not awaited. Nobody can have cancelled such a call, so
#: a ``CancelledError`` out of it is the function's own, and must not end a task as if the job had been cancelled.
RAISED: Final = (Exception, CancelledError)


class Output(Protocol):
    """Where an operator pushes its results: the next operators of its chain, or the channels behind it."""

    def emit(self, batch: Batch[Any]) -> None:
        """Send records on. The batch must not be empty and must not be changed afterwards."""
        ...

    def watermark(self, timestamp: Timestamp) -> None:
        """Send a watermark on; timestamps only grow."""
        ...

    def idle(self) -> None:
        """Say that nothing comes for now, so that readers do not wait for this stream's watermark."""
        ...

    def active(self) -> None:
        """Say that the stream is no longer idle."""
        ...

    def side(self, tag: str, batch: Batch[Any]) -> None:
        """Send records to the side output named ``tag``; they are dropped, and counted, when nobody reads it."""
        ...


def _no_clock() -> float:
    """Stands in where nothing is measured."""
    return 0.0


class Alarm(Protocol):
    """The one processing-time alarm that an operator has on the clock of its task."""

    def set(self, at: Timestamp | None) -> None:
        """Have ``on_processing_time`` called once the clock has reached ``at``; replaces what was set; None: never."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """Where an operator object stands in its job, and what it may use there."""

    name: str
    output: Output
    clock: Clock
    alarm: Alarm
    clocked: bool = True
    """False over history, where nothing happens by the clock: users' code is refused timers on it."""
    has_queued: Callable[[str], bool] = lambda split: False
    """Whether records of a split (of any, for ``""``) have arrived and wait to be processed."""
    subtask: int = 0
    parallelism: int = 1
    key_groups: KeyGroupRange = field(default_factory=lambda: KeyGroupRange(0, DEFAULT_KEY_GROUPS))
    """The key groups whose keys come to this subtask."""
    key_group_count: int = DEFAULT_KEY_GROUPS
    backend: StateBackend = field(default_factory=InMemory)
    """Where state that belongs to keys is kept."""
    resource: object = None
    """What was opened for the calls of this subtask; None for a step without a resource."""
    buckets: SharedBuckets = field(default_factory=SharedBuckets)
    """The rate limits that steps of the job share."""
    steady: Callable[[], float] = _no_clock
    """A clock that never goes back (s), for measuring how long something took."""
    random: Callable[[], float] = lambda: 0.5
    """Numbers from 0 to 1, at random."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """How much an operator holds now, in one subtask. What only grows while keys come and go is a leak."""

    entries: int = 0
    """What it remembers: one for each key (and window, and name) that has something."""
    event_timers: int = 0
    """Timers that wait for the watermark. One timer may serve many keys."""
    processing_timers: int = 0
    """Timers that wait for the clock."""


class Operator(ABC):
    """One step of a pipeline, in one subtask. The contract is in the module's comment."""

    context: OperatorContext
    output: Output

    #: True if a snapshot was taken after the last checkpoint.
    _snapshot_taken = False

    #: The last watermark that came in (epoch ms).
    watermark: Timestamp = MIN_TIMESTAMP

    @property
    def name(self) -> str:
        """The step's name, as the user gave it or as the plan made it."""
        return self.context.name

    def open(self, context: OperatorContext) -> None:
        """Get ready to process; overriders call ``super().open(context)`` first."""
        self.context = context
        self.output = context.output

    def process(self, batch: Batch[Any]) -> None:
        """Handle a batch, pushing what comes of it into ``self.output``."""
        raise TypeError(f"{type(self).__name__} takes no batches")

    def on_watermark(self, timestamp: Timestamp) -> None:
        """Event time has advanced: push what that sets free, then the watermark."""
        self.watermark = timestamp
        self.output.watermark(timestamp)

    def on_processing_time(self, now: Timestamp) -> None:
        """The alarm rang: ``now`` (epoch ms) is at or after the time it was set to."""

    def on_start(self) -> None:
        """The task starts: all that was restored is here, and what was in flight in the chain is processed."""

    def on_idle(self) -> None:
        """The input is idle."""
        self.output.idle()

    def on_active(self) -> None:
        """The input is active again."""
        self.output.active()

    def on_split_start(self, split: str) -> None:
        """The source in this chain begins to read ``split``: batches of it will come."""

    def on_split(self, split: str) -> None:
        """The batches from now on come from ``split`` of the source in this chain."""

    def on_split_end(self, split: str) -> None:
        """No batch of ``split`` comes any more."""

    def on_backpressure(self, blocked: bool, now: Timestamp) -> None:
        """The task stops (True) or goes on (False) for want of room, or ahead of its group; ``now`` in epoch ms."""

    def end_input(self) -> None:
        """No batch comes any more: push what is still held back."""

    def close(self) -> None:
        """Give back what ``open`` took. No output is possible any more."""

    def declares(self) -> Mapping[str, bytes] | None:
        """How its states are going to be stored, by name, in the form that a snapshot has; also before ``open``.

        None, which is the default, does not tell: what is stored is compared when the operator is restored.
        """
        return None

    def capture(self, *, changes: bool) -> Captured | None:
        """Capture the state in the task, to be encoded later; None for an operator without state.

        With ``changes`` the operator may capture only what has changed since the last ``capture`` or ``restore``, if it
        keeps track of changes. The next ``capture`` counts from this one, even if this one is discarded. Raises
        ``CheckpointError``.
        """
        return None

    def checkpoint(self, *, changes: bool) -> Captured | None:
        """Capture the next link of a chain of captures: as ``capture``, and complete after a ``snapshot``."""
        changes = changes and not self._snapshot_taken
        self._snapshot_taken = False
        return self.capture(changes=changes)

    def snapshot(self) -> OperatorSnapshot | None:
        """Return the complete state as data; None for an operator without state.

        The changes up to now are not captured again: the next ``checkpoint`` is complete. Raises ``CheckpointError``.
        """
        self._snapshot_taken = True
        captured = self.capture(changes=False)
        return None if captured is None else captured.encoded()

    def size(self) -> StateSize:
        """How much the operator holds now. May look at all of it."""
        return StateSize()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Continue from ``snapshot``. Raises ``RestoreError`` if it does not fit."""

    def failure(
        self, cause: BaseException, batch: Batch[Any], values: Iterator[object]
    ) -> OperatorError:
        """Describe ``cause``, raised by a user function for the record that iterator ``values`` handed out last.

        ``values`` must be the list iterator over ``batch.values`` that the failed loop used: how much of it is
        left tells which record it was, so that the hot loops need no counter.
        """
        index = len(batch) - _left(values) - 1
        return self.failure_at(cause, batch, index)

    def failure_at(self, cause: BaseException, batch: Batch[Any], index: int) -> OperatorError:
        """Describe ``cause``, raised by a user function for record ``index`` of ``batch``."""
        key: Hashable = None if batch.keys is None else batch.keys[index]
        if batch.keys is not None and isinstance(cause, TypeError):
            cause = unsupported(key) or cause
        return OperatorError.of(
            self.name,
            cause,
            record=batch.values[index],
            key=key,
            timestamp=None if batch.timestamps is None else batch.timestamps[index],
        )


class TwoInputOperator(Operator):
    """One step that reads two streams; the edges of its node are the left input and the right one.

    Its batches come through ``process_left`` and ``process_right``, in whatever order they arrive. Time is common:
    ``on_watermark`` gets the smaller watermark of the two inputs, ``on_idle`` comes when both are idle. So a watermark
    says of both inputs that they have come that far, and what must not depend on the order of arrival waits for it.
    """

    @abstractmethod
    def process_left(self, batch: Batch[Any]) -> None:
        """Handle a batch of the left input."""

    @abstractmethod
    def process_right(self, batch: Batch[Any]) -> None:
        """Handle a batch of the right input."""


def unsupported(key: Hashable) -> Exception | None:
    """Why ``key`` cannot be one, said better than by the dict that it was looked up in."""
    try:
        check_key(key)
    except UnsupportedKey as exc:
        return exc
    return None


def _left(values: Iterator[object]) -> int:
    """How many items a list iterator still has."""
    hint = getattr(values, "__length_hint__", None)
    if hint is None:
        raise TypeError(f"need an iterator over a list, not {type(values).__name__}")
    return int(hint())
