"""The base of harnesses: one step under test, without an event loop.

A harness replaces the runtime: it makes the operator with a context, calls it one step at a time and records its
output. The test advances its clock, which fires the timers of the operator on the way. The subclasses define
the inputs: ``OperatorHarness`` has one, ``TwoInputHarness`` two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Marker, Watermark
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, ranges, subtask_of
from aflow.model.tags import Tag
from aflow.model.time import (
    MIN_TIMESTAMP,
    Instant,
    Timestamp,
    to_millis,
    to_timestamp,
)
from aflow.operators.base import Operator, OperatorContext, StateSize
from aflow.state.backend_choice import InMemory, StateBackend
from aflow.state.snapshot import Captured, OperatorSnapshot, merge, replay
from aflow.testing.records import At

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
O = TypeVar("O", bound=Operator)  # noqa: E741 - the operator

#: Firings of the alarm at one time after which the operator counts as endless.
_MOST_FIRINGS: Final = 1000

Element: TypeAlias = At[U] | Watermark | Idle | Active
"""Output of a step: a record with its timestamp, or an element between records."""

Emitted: TypeAlias = Batch[Any] | Watermark | Idle | Active
"""The same as the step emitted it, in batches."""


class Mode(Enum):
    """Modes of a harness: ``@pytest.mark.parametrize("mode", Mode)`` runs a test in all of them."""

    STRAIGHT = "straight"
    """One operator from the first step to the last."""
    RESTORING = "restoring"
    """After each step a new operator is restored from the snapshot of the old one. Results must be the same, except for
    the order of keys if several have results at once: a snapshot does not keep it."""
    INCREMENTAL = "incremental"
    """After each step the changes are captured, as for a checkpoint, and encoded one step later. Every second time a
    new operator is restored from all captures. Results must be the same as with ``RESTORING``."""


class StepHarness(Generic[O, U]):
    """Drive one step with results ``U`` in one subtask; the subclasses define its inputs.

    ``factory`` makes the operator. The clock starts at ``start``. With a ``parallelism`` above 1 the step is subtask
    ``subtask`` of as many, owns its share of the ``key_groups``, and rejects keys of the others. ``backend`` is where
    its state is kept; default: in memory. Errors of the step are raised by the call.
    """

    def __init__(
        self,
        factory: Callable[[], O],
        *,
        mode: Mode = Mode.STRAIGHT,
        name: str = "step",
        start: Instant = 0,
        subtask: int = 0,
        parallelism: int = 1,
        key_groups: int = DEFAULT_KEY_GROUPS,
        backend: StateBackend | None = None,
    ) -> None:
        shares = ranges(key_groups, parallelism)
        if not 0 <= subtask < parallelism:
            raise FlowDefinitionError(f"there is no subtask {subtask} of {parallelism}")
        self._factory = factory
        self._mode = mode
        self._recorder = RecordingOutput()
        self._time = ManualTime(to_timestamp(start, what="start"))
        self._context = OperatorContext(
            name=name,
            output=self._recorder,
            clock=self._time,
            alarm=self._time,
            subtask=subtask,
            parallelism=parallelism,
            key_groups=shares[subtask],
            key_group_count=key_groups,
            backend=InMemory() if backend is None else backend,
        )
        self._chain = _CaptureChain()
        #: The number of elements that ``take`` has returned.
        self._taken = 0
        self._used = False
        self._ended = False
        self._closed = False
        #: The current operator; a new one after each restart.
        self.operator = self._new()

    def advance_processing_time(self, to: Instant | timedelta) -> None:
        """Advance the clock to a time, or by a ``timedelta``; timers fire on the way, each at its time.

        Raises ``FlowDefinitionError`` if that is in the past.
        """
        self._check_running()
        now = self._time.at
        if isinstance(to, timedelta):
            until = now + to_millis(to, what="the step of the clock")
        else:
            until = to_timestamp(to, what="the new time of the clock")
        if until < now:
            raise FlowDefinitionError(f"the clock is at {now} and cannot be set back to {until}")
        self._used = True
        self._fire_until(until)
        self._time.at = until

    # ------------------------------------------------------------------------- state and life cycle

    @property
    def now(self) -> Timestamp:
        """The time of the clock (epoch ms)."""
        return self._time.at

    @property
    def size(self) -> StateSize:
        """The current size of the step's state: ``size.entries`` and its registered timers."""
        return self.operator.size()

    def snapshot(self) -> OperatorSnapshot | None:
        """Return the step's state as data; None if it has none."""
        return self.operator.snapshot()

    def restore(self, *snapshots: OperatorSnapshot) -> None:
        """Restore ``snapshots``: one, or those of all subtasks of the step at any parallelism.

        Raises ``RestoreError`` if they do not fit, and ``FlowDefinitionError`` once something was pushed.
        """
        if self._used:
            raise FlowDefinitionError("restore() must be the first call; make a new harness")
        self._used = True
        snapshot = merge(snapshots)
        self._chain.begin(snapshot)
        self.operator.restore(snapshot)

    def restart(self) -> None:
        """Replace the operator as after a failure: snapshot, close, make a new one, restore. The clock keeps its time.

        The new one has received no watermark, as in a restored job. Without a snapshot it starts with empty state.
        """
        self._check_running()
        snapshot = self.operator.snapshot()
        self._chain.begin(snapshot)
        self._replace(snapshot)

    def close(self) -> None:
        """Close the operator, as the end of a ``with`` block does. Idempotent."""
        if not self._closed:
            self._closed = True
            self.operator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------- output

    @property
    def output(self) -> list[Element[U]]:
        """Everything emitted so far, in order: ``At(value, timestamp)``, ``Watermark``, ``Idle`` and ``Active``."""
        return [
            element
            for one in self._recorder.emitted
            for element in (_records(one) if isinstance(one, Batch) else (one,))
        ]

    @property
    def values(self) -> list[U]:
        """The values of all emitted records."""
        return [one.value for one in self.output if isinstance(one, At)]

    def take(self) -> list[Element[U]]:
        """Return the elements emitted since the last call (``output`` and ``values`` keep them)."""
        taken = self.output[self._taken :]
        self._taken += len(taken)
        return taken

    def side(self, tag: Tag[S]) -> list[At[S]]:
        """Everything sent to side output ``tag`` so far; late records of windows are in ``Tag("late")``."""
        return [
            record for batch in self._recorder.sides.get(tag.name, ()) for record in _records(batch)
        ]

    # --------------------------------------------------------------------------------------- inside

    def _new(self) -> O:
        operator = self._factory()
        operator.open(self._context)
        return operator

    def _replace(self, snapshot: OperatorSnapshot | None) -> None:
        """Continue with a new operator, restored from ``snapshot``."""
        self.operator.close()
        self._time.alarm = None
        self._recorder.restarted()
        self.operator = self._new()
        if snapshot is not None:
            self.operator.restore(snapshot)

    def _step(self, act: Callable[[], None]) -> None:
        self._check_running()
        self._used = True
        act()
        self._stepped()
        self._fire_until(self._time.at)

    def _stepped(self) -> None:
        if self._mode is Mode.RESTORING:
            self.restart()
        elif self._mode is Mode.INCREMENTAL:
            self._chain.add(self.operator.checkpoint(changes=True))
            if self._chain.captures % 2 == 0:
                self._replace(self._chain.replayed())

    def _fire_until(self, until: Timestamp) -> None:
        """Fire the alarm whenever it is due up to ``until``; an alarm in the past fires now."""
        time = self._time
        firings = 0
        while time.alarm is not None and time.alarm <= until:
            firings = firings + 1 if time.alarm <= time.at else 1
            if firings > _MOST_FIRINGS:
                raise AssertionError(
                    f"step {self._context.name!r} set its alarm {_MOST_FIRINGS:,} times to a time that is not in the "
                    f"future ({time.at}); a timer that registers itself again must register a later time"
                )
            time.at = max(time.at, time.alarm)
            time.alarm = None
            self.operator.on_processing_time(time.at)
            self._stepped()

    def _check_running(self) -> None:
        if self._ended or self._closed:
            what = "closed" if self._closed else "ended"
            raise JobStopped(f"this harness was {what}; make a new one")

    def _batch(
        self,
        values: Sequence[T],
        timestamps: Sequence[Instant] | None,
        key: Callable[[T], Hashable] | None,
    ) -> Batch[T]:
        """Return the batch that the runtime would pass. Raises ``FlowDefinitionError`` for an invalid one."""
        if not values or (timestamps is not None and len(timestamps) != len(values)):
            count = "no" if timestamps is None else len(timestamps)
            raise FlowDefinitionError(
                f"a batch has at least one value and a timestamp for each or for none, not {len(values)} values "
                f"and {count} timestamps"
            )
        times = None if timestamps is None else [to_timestamp(at) for at in timestamps]
        keys = None if key is None else [key(value) for value in values]
        if keys is not None and self._context.parallelism > 1:
            self._check_owned(keys)
        return Batch(list(values), times, keys)

    def _check_owned(self, keys: Sequence[Hashable]) -> None:
        context = self._context
        for key in keys:
            group = key_group(key, context.key_group_count)
            if group not in context.key_groups:
                owner = subtask_of(group, context.key_group_count, context.parallelism)
                raise FlowDefinitionError(
                    f"key {shown(key)} is never sent to subtask {context.subtask}: it belongs to subtask {owner}"
                )


class _CaptureChain:
    """The captures of an operator: a full one, and the changes since. Each is encoded when the next one is added."""

    def __init__(self) -> None:
        self._snapshots: list[OperatorSnapshot] = []
        #: The last capture, until it is encoded.
        self._captured: Captured | None = None
        self.captures = 0

    def begin(self, snapshot: OperatorSnapshot | None) -> None:
        """Start a chain; later captures are changes of ``snapshot``."""
        self._snapshots = [] if snapshot is None else [snapshot]
        self._captured = None

    def add(self, captured: Captured | None) -> None:
        """Add the last capture."""
        self._encode()
        self._captured = captured
        self.captures += 1

    def replayed(self) -> OperatorSnapshot | None:
        """Return the chain as one complete snapshot; None if there are no captures."""
        self._encode()
        return replay(self._snapshots) if self._snapshots else None

    def _encode(self) -> None:
        if self._captured is not None:
            snapshot = self._captured.encoded()
            if snapshot.complete:
                self._snapshots.clear()
            self._snapshots.append(snapshot)
            self._captured = None


@dataclass
class ManualTime:
    """A clock and the alarm on it; a harness moves both."""

    at: Timestamp = 0
    alarm: Timestamp | None = None

    def now(self) -> Timestamp:
        return self.at

    def set(self, at: Timestamp | None) -> None:
        self.alarm = at


@dataclass
class RecordingOutput:
    """An ``Output`` that records what is emitted. Raises ``AssertionError`` if that breaks the contract."""

    emitted: list[Emitted] = field(default_factory=list[Emitted])
    #: Batches of each side output, by tag.
    sides: dict[str, list[Batch[Any]]] = field(default_factory=dict[str, list[Batch[Any]]])
    #: The last watermark that was emitted since the operator was made.
    _watermark: Timestamp = MIN_TIMESTAMP

    def emit(self, batch: Batch[Any]) -> None:
        self.emitted.append(_checked(batch))

    def watermark(self, timestamp: Timestamp) -> None:
        if timestamp < self._watermark:
            raise AssertionError(
                f"the step emitted watermark {timestamp} after {self._watermark}; watermarks only grow"
            )
        self._watermark = timestamp
        self.emitted.append(Watermark(timestamp))

    def idle(self) -> None:
        self.emitted.append(IDLE)

    def active(self) -> None:
        self.emitted.append(ACTIVE)

    def marker(self, marker: Marker) -> None:
        """Ignore a marker, which changes nothing."""

    def side(self, tag: str, batch: Batch[Any]) -> None:
        self.sides.setdefault(tag, []).append(_checked(batch))

    def restarted(self) -> None:
        """Accept smaller watermarks from now on, as in a job that was restored."""
        self._watermark = MIN_TIMESTAMP


def _records(batch: Batch[Any]) -> list[At[Any]]:
    times = batch.timestamps or repeat(None)
    return [At(value, at) for value, at in zip(batch.values, times, strict=False)]


def _checked(batch: Batch[Any]) -> Batch[Any]:
    if not batch.values:
        raise AssertionError("the step emitted an empty batch; emit nothing instead")
    times = batch.timestamps
    if times is not None and len(times) != len(batch):
        raise AssertionError(f"the step emitted {len(batch)} values with {len(times)} timestamps")
    return batch
