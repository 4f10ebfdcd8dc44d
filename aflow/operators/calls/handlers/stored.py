"""Snapshots of handlers that did not take effect: their records, and the epoch of each key.

Theory. A snapshot contains the watermarks between the records, so that timers fire at the right moment. Each subtask
stores the epochs in which it has calls, and all later ones. With each epoch it stores the records, and the keys whose
timer is being handled. The timer itself is stored among the timers. (A processing timer fires again by the clock, but
event timers that are due after it must not wait for another watermark.)

This is operator state, one part for each subtask. A restored subtask takes its own keys of each part. Their epochs are
created again for them, and lead to the first epoch of the restored subtask, which is their home.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, cast

from aflow.errors import RestoreError, UnstorableState
from aflow.machines.calls.call import Call, calls_of
from aflow.model.codecs import PLAIN, RECORDS, CodecError
from aflow.model.key_groups import key_group
from aflow.model.time import MAX_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.async_process import FiredTimer
from aflow.operators.calls.handlers.epochs import Epoch
from aflow.operators.calls.stored import CALLS, StoredCalls
from aflow.state.keyed_entries import CapturedRows
from aflow.state.snapshot import OperatorSnapshot

#: The name of the parts in the operator state of a snapshot.
HANDLERS: Final = "@handlers"


class TimerCall(Call):
    """The handler of a timer: its value is a ``FiredTimer``."""

    is_timer: ClassVar[bool] = True

    @property
    def timer(self) -> FiredTimer:
        return cast("FiredTimer", self.value)  # see above


def timer_call(domain: TimeDomain, at: Timestamp, key: Hashable) -> TimerCall:
    """Return the call of a timer. Results of an event timer have its timestamp, those of a processing timer none."""
    timestamp = at if domain is TimeDomain.EVENT else None
    return TimerCall(FiredTimer(key, at, domain), timestamp, key)


@dataclass(frozen=True, slots=True)
class RunningHandlers:
    """The handlers that one subtask is running at a checkpoint."""

    epochs: list[tuple[Timestamp, Timestamp | None, int | None]]
    """For each epoch the watermark before it, the one that ends it, and the number of the next epoch."""
    records: list[tuple[int, list[Call]]]
    """By number of their epoch, in order of arrival."""
    firing: list[tuple[int, list[Hashable]]]
    """By number of their epoch, the keys whose timer is being handled."""


def running_handlers(calls: Iterable[Call]) -> RunningHandlers:
    """Return the handlers of ``calls``, which were not emitted; calls and epochs may change afterwards."""
    numbers: dict[Epoch, int] = {}
    records: dict[Epoch, list[Call]] = {}
    current: dict[Hashable, Call] = {}
    for call in calls:
        if not isinstance(call, TimerCall):
            records.setdefault(_epoch(call), []).append(call)
        elif call.timer.domain is TimeDomain.EVENT:
            current[call.key] = call  # it runs, even if records arrived before it was due
        current.setdefault(call.key, call)
    firing: dict[Epoch, list[Hashable]] = {}
    for key, call in current.items():
        if isinstance(call, TimerCall):
            firing.setdefault(_epoch(call), []).append(key)
    for found in (*records, *firing):
        following: Epoch | None = found
        while following is not None and following not in numbers:
            numbers[following] = len(numbers)
            following = following.next
    return RunningHandlers(
        [
            (one.before, one.ends, None if one.next is None else numbers[one.next])
            for one in numbers
        ],
        [(numbers[epoch], several) for epoch, several in records.items()],
        [(numbers[epoch], keys) for epoch, keys in firing.items()],
    )


def _epoch(call: Call) -> Epoch:
    return cast("Epoch", call.segment)  # set by the queue of the step


@dataclass(frozen=True, slots=True)
class CapturedHandlers:
    """State, timers and running handlers of one subtask."""

    rows: CapturedRows
    stored: StoredCalls
    subtask: int
    running: RunningHandlers

    def gather(self) -> Iterator[None]:
        return self.rows.gather()

    def encoded(self) -> OperatorSnapshot:
        snapshot = self.rows.encoded()
        part = encoded(self.running, self.stored, self.subtask)
        return replace(snapshot, operator={**snapshot.operator, **part})


def encoded(
    running: RunningHandlers, stored: StoredCalls, subtask: int
) -> dict[str, tuple[bytes, ...]]:
    """Return the operator state of one subtask; empty if no handler was running. Raises ``CheckpointError``."""
    if not running.epochs:
        return {}
    records = [(number, stored.encoded(subtask, calls)) for number, calls in running.records]
    try:
        firing = [(number, RECORDS.encode(keys)) for number, keys in running.firing]
        return {HANDLERS: (PLAIN.encode((running.epochs, records, firing)),)}
    except CodecError as exc:
        raise UnstorableState(
            f"step {stored.step!r} cannot store the keys whose timers are being handled: {exc}"
        ) from exc


@dataclass(frozen=True, slots=True)
class RestoredHandlers:
    """The handlers that a restored subtask has to run."""

    records: list[tuple[Call, Epoch]]
    """In the order in which to put them."""
    firing: list[tuple[Hashable, Epoch]]
    epochs: list[Epoch]
    """The epochs that were created for them, and possibly for others."""


def restored(
    snapshot: OperatorSnapshot,
    stored: StoredCalls,
    context: OperatorContext,
    home: Epoch,
    first: Epoch,
) -> RestoredHandlers:
    """Return the handlers of the subtask of ``context``. Results are emitted with ``home``; keys proceed to ``first``.

    Raises ``RestoreError``.
    """
    own = RestoredHandlers([], [], [])
    for part in snapshot.operator.get(HANDLERS, ()):
        epochs, records, firing = _read(part, stored.step)
        created = _epochs_of(epochs, home, first)
        own.epochs.extend(created)
        for number, parts in records:
            inner = OperatorSnapshot(operator={CALLS: tuple(parts)})
            for batch in stored.restored(inner, context):
                own.records.extend((call, created[number]) for call in calls_of(batch, batch.keys))
        for number, data in firing:
            keys = _keys(data, stored.step)
            own.firing.extend((key, created[number]) for key in keys if _is_own(key, context))
    return own


_Epochs = list[tuple[Timestamp, Timestamp | None, int | None]]
_Parts = list[tuple[int, list[bytes]]]
_Firing = list[tuple[int, bytes]]


def _read(part: bytes, step: str) -> tuple[_Epochs, _Parts, _Firing]:
    try:
        return cast("tuple[_Epochs, _Parts, _Firing]", PLAIN.decode(part))  # written by encoded
    except CodecError as exc:
        raise _unreadable(step, exc) from exc


def _keys(data: bytes, step: str) -> list[Hashable]:
    try:
        return cast("list[Hashable]", RECORDS.decode(data))  # written by encoded
    except CodecError as exc:
        raise _unreadable(step, exc) from exc


def _unreadable(step: str, exc: CodecError) -> RestoreError:
    return RestoreError(f"step {step!r} cannot read its running handlers: {exc}")


def _is_own(key: Hashable, context: OperatorContext) -> bool:
    return key_group(key, context.key_group_count) in context.key_groups


def _epochs_of(epochs: _Epochs, home: Epoch, first: Epoch) -> Sequence[Epoch]:
    created = [Epoch(before, home) for before, _, _ in epochs]
    for epoch, (_, ends, following) in zip(created, epochs, strict=True):
        # At the end of time all timers fire. A job that continues with new input has not reached it.
        epoch.ends = None if ends == MAX_TIMESTAMP else ends
        epoch.next = first if following is None else created[following]
    return created
