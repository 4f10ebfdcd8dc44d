"""Handlers that have not taken effect, in snapshots: the records they are for, and where each key stands.

Theory. A snapshot has to tell of each record between which watermarks it is, or its key would not ring its timers at
the right moment. So each subtask stores the stages in which it has calls, with those that follow them up to the last
one, and with each stage its records, and the keys for which a timer is being handled: that timer is among the timers,
and all that is to be known of it is that its key has come so far. (A processing timer rings again by the clock; but
event timers that are due behind it must not wait for another watermark.)

It is operator state, one part for each subtask, and of each part a restored subtask takes the keys that are its own.
Their stages are made again for them; what these lead to, and their home, is the first stage of the restored subtask.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, cast

from aflow.errors import CheckpointError, RestoreError
from aflow.machines.calls.call import Call, calls_of
from aflow.model.codecs import PLAIN, RECORDS, CodecError
from aflow.model.key_groups import key_group
from aflow.model.time import MAX_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.async_process import FiredTimer
from aflow.operators.calls.handlers.epochs import Stage
from aflow.operators.calls.stored import CALLS, StoredCalls
from aflow.state.keyed_entries import CapturedRows
from aflow.state.snapshot import OperatorSnapshot

#: Under which name of a snapshot's operator state the parts are.
HANDLERS: Final = "@handlers"


class TimerCall(Call):
    """The handler of a timer: its value is a ``FiredTimer``."""

    is_timer: ClassVar[bool] = True

    @property
    def timer(self) -> FiredTimer:
        return cast("FiredTimer", self.value)  # see above


def timer_call(domain: TimeDomain, at: Timestamp, key: Hashable) -> TimerCall:
    """Its results have the timestamp of an event timer, and none if it was a processing timer."""
    timestamp = at if domain is TimeDomain.EVENT else None
    return TimerCall(FiredTimer(key, at, domain), timestamp, key)


@dataclass(frozen=True, slots=True)
class Standing:
    """What one subtask had under way at one moment."""

    stages: list[tuple[Timestamp, Timestamp | None, int | None]]
    """Of each stage the watermark in front of it, the one that ends it, and the number of the next stage."""
    records: list[tuple[int, list[Call]]]
    """By number of their stage, in the order in which they came."""
    ringing: list[tuple[int, list[Hashable]]]
    """By number of their stage, the keys that stand at a timer."""


def standing(calls: Iterable[Call]) -> Standing:
    """Note where ``calls`` are, all that have not left; they and their stages may go on."""
    numbers: dict[Stage, int] = {}
    records: dict[Stage, list[Call]] = {}
    foremost: dict[Hashable, Call] = {}
    for call in calls:
        if not isinstance(call, TimerCall):
            records.setdefault(_stage(call), []).append(call)
        elif call.timer.domain is TimeDomain.EVENT:
            foremost[call.key] = (
                call  # it is being handled, though others may have come before it was due
            )
        foremost.setdefault(call.key, call)
    ringing: dict[Stage, list[Hashable]] = {}
    for key, call in foremost.items():
        if isinstance(call, TimerCall):
            ringing.setdefault(_stage(call), []).append(key)
    for found in (*records, *ringing):
        on_the_way: Stage | None = found
        while on_the_way is not None and on_the_way not in numbers:
            numbers[on_the_way] = len(numbers)
            on_the_way = on_the_way.next
    return Standing(
        [
            (one.before, one.ends, None if one.next is None else numbers[one.next])
            for one in numbers
        ],
        [(numbers[stage], several) for stage, several in records.items()],
        [(numbers[stage], keys) for stage, keys in ringing.items()],
    )


def _stage(call: Call) -> Stage:
    return cast("Stage", call.segment)  # as the queue of the step has put it


@dataclass(frozen=True, slots=True)
class CapturedHandlers:
    """State and timers of one subtask, and what it had under way."""

    rows: CapturedRows
    stored: StoredCalls
    subtask: int
    standing: Standing

    def encoded(self) -> OperatorSnapshot:
        snapshot = self.rows.encoded()
        part = encoded(self.standing, self.stored, self.subtask)
        return replace(snapshot, operator={**snapshot.operator, **part})


def encoded(standing: Standing, stored: StoredCalls, subtask: int) -> dict[str, tuple[bytes, ...]]:
    """Operator state of one subtask; none if nothing was under way. Raises ``CheckpointError``."""
    if not standing.stages:
        return {}
    records = [(number, stored.encoded(subtask, calls)) for number, calls in standing.records]
    try:
        ringing = [(number, RECORDS.encode(keys)) for number, keys in standing.ringing]
        return {HANDLERS: (PLAIN.encode((standing.stages, records, ringing)),)}
    except CodecError as exc:
        raise CheckpointError(
            f"step {stored.step!r} cannot store the keys whose timers are being handled: {exc}"
        ) from exc


@dataclass(frozen=True, slots=True)
class Restored:
    """What a subtask has to go on with."""

    records: list[tuple[Call, Stage]]
    """In the order in which they are to be put."""
    ringing: list[tuple[Hashable, Stage]]
    stages: list[Stage]
    """Those that were made for them, and may be for others."""


def restored(
    snapshot: OperatorSnapshot,
    stored: StoredCalls,
    context: OperatorContext,
    home: Stage,
    first: Stage,
) -> Restored:
    """What of a snapshot belongs to the subtask of ``context``: results leave with ``home``, keys go on to ``first``.

    Raises ``RestoreError``.
    """
    own = Restored([], [], [])
    for part in snapshot.operator.get(HANDLERS, ()):
        stages, records, ringing = _read(part, stored.step)
        made = _made(stages, home, first)
        own.stages.extend(made)
        for number, parts in records:
            inner = OperatorSnapshot(operator={CALLS: tuple(parts)})
            for batch in stored.restored(inner, context):
                own.records.extend((call, made[number]) for call in calls_of(batch, batch.keys))
        for number, data in ringing:
            keys = _keys(data, stored.step)
            own.ringing.extend((key, made[number]) for key in keys if _is_own(key, context))
    return own


_Stages = list[tuple[Timestamp, Timestamp | None, int | None]]
_Parts = list[tuple[int, list[bytes]]]
_Ringing = list[tuple[int, bytes]]


def _read(part: bytes, step: str) -> tuple[_Stages, _Parts, _Ringing]:
    try:
        return cast("tuple[_Stages, _Parts, _Ringing]", PLAIN.decode(part))  # written by encoded
    except CodecError as exc:
        raise _unreadable(step, exc) from exc


def _keys(data: bytes, step: str) -> list[Hashable]:
    try:
        return cast("list[Hashable]", RECORDS.decode(data))  # written by encoded
    except CodecError as exc:
        raise _unreadable(step, exc) from exc


def _unreadable(step: str, exc: CodecError) -> RestoreError:
    return RestoreError(f"step {step!r} cannot read what its handlers were at: {exc}")


def _is_own(key: Hashable, context: OperatorContext) -> bool:
    return key_group(key, context.key_group_count) in context.key_groups


def _made(stages: _Stages, home: Stage, first: Stage) -> Sequence[Stage]:
    made = [Stage(before, home) for before, _, _ in stages]
    for stage, (_, ends, following) in zip(made, stages, strict=True):
        # At the end of time everything rings; if the job goes on behind it, with new input, that has not come yet.
        stage.ends = None if ends == MAX_TIMESTAMP else ends
        stage.next = first if following is None else made[following]
    return made
