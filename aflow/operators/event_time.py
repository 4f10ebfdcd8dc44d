"""Where records get their timestamps and watermarks begin.

Rule: the watermark that a record meets downstream is the one that the records *before* it have earned, whatever
the batches are. A batch is therefore cut in front of a record that is behind the watermark (which the batch so far
has advanced) and the watermark is sent in the gap; a batch without such a record goes out whole, with the
watermark behind it. So what is late depends on the order of the records alone, and a replay with other batches
decides the same (docs/decisions/002). Where a trigger downstream fires at multiples of a period, a batch is also cut
where the watermark passes one of them (docs/decisions/010).

Each split of a source has its own generator and its own idleness; the ``SplitMultiplexer`` combines them. Behind
an exchange there are no splits, and one generator follows the mixed stream.

A step whose restored state says that the past was computed elsewhere begins at that moment (``hand_over.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aflow.errors import FlowDefinitionError, OperatorError, RestoreError, shown
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Idleness,
    WatermarkGenerator,
)
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, Timestamp, to_timestamp
from aflow.operators.alignment import Alignment, AlignmentMember
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.handover import (
    BEGINS,
    SKIPPED,
    begins_at,
    divided,
    handed_over,
    watermark_before,
)
from aflow.operators.time_unit import UnitCheck
from aflow.state.snapshot import Captured, OperatorSnapshot, Ready

#: The split that stands for a stream that comes through an exchange.
_MIXED: Final = ""

#: Default interval of periodic watermarks (ms of processing time).
PERIOD: Final = 200

#: Name of the operator state: for each split, how far event time has come.
_STATE: Final = "watermarks"

Cut = tuple[int, Timestamp]
"""An index in a batch, and the watermark to send in front of the record there."""


@dataclass(frozen=True, slots=True)
class TimeStrategy:
    """How event time advances: a generator for each split, and after how many ms without a record a split is idle.

    ``period`` is the time between two calls of a generator's ``on_periodic`` (ms of processing time); None for
    ``PERIOD``.
    """

    generator: Callable[[], WatermarkGenerator[Any]]
    idle_after: int | None = None
    align: Alignment | None = None
    period: int | None = None
    unit: UnitCheck = field(default_factory=UnitCheck, compare=False)
    """Looks at the first record, in whichever subtask that is."""


@dataclass(slots=True)
class _SplitTime:
    """Event time in one split."""

    id: str
    generator: WatermarkGenerator[Any]
    idleness: Idleness | None
    idle: bool = False
    """True while the others do not wait for this split."""


class EventTimeOperator(Operator):
    """Stamps records and sends watermarks between them.

    ``time`` gives the timestamp of a value; None: the timestamps that came with the records are used. Watermarks
    from upstream end here, except the last one, which ends event time. ``watermark`` is the last one that was sent.

    What aligns it with others is ``aligned``, set from outside behind ``open``; alone, it waits for nobody.
    """

    def __init__(self, time: Callable[[Any], Instant] | None, strategy: TimeStrategy) -> None:
        self._time = time
        self._strategy = strategy
        self._combined = SplitMultiplexer()
        self._splits: dict[str, _SplitTime] = {}
        #: The split of the batches that come now; None before the first.
        self._current: _SplitTime | None = None
        #: True while readers were told that the stream is idle.
        self._idle = False
        self._next_period: Timestamp | None = None
        self._period: Final = PERIOD if strategy.period is None else strategy.period
        #: What a restored snapshot knew of splits that have not begun again yet.
        self._remembered: dict[str, Timestamp] = {}
        #: True while the watermarks of restored splits that have begun are still to be sent: what one of them says must
        #: not go out before the others have begun that go on here.
        self._recalled = False
        #: Records before this moment were taken by whoever computed the past, and are skipped; None: there are none.
        self._begins: Timestamp | None = None
        #: True once a split has begun here; from then on what is remembered of others is in no snapshot of this one.
        self._begun = False
        #: Watermarks are sent at each multiple of each of these periods (ms), which triggers downstream wait for.
        self.periods: tuple[int, ...] = ()
        #: The place in the group of ``alignment``; None without one.
        self.aligned: AlignmentMember | None = None

    @property
    def alignment(self) -> Alignment | None:
        """The group that this step is to be a member of."""
        return self._strategy.align

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if not isinstance(self._generator(), BoundedOutOfOrderness):
            self._next_period = context.clock.now() + self._period
            self._arm()
        elif self._strategy.period is not None:
            raise OperatorError(
                f"step {self.name!r} has a watermark_interval, and its generator emits a watermark after each batch; "
                f"leave watermark_interval out, or use a generator that emits in on_periodic",
                operator=self.name,
            )

    def on_start(self) -> None:
        # A restored split may be silent for long, and readers wait for its watermark.
        if self._recalled:
            self._go_on()

    def process(self, batch: Batch[Any]) -> None:
        split = self._current or self._begin(_MIXED)
        self._current = split
        if self._recalled:
            self._go_on()
        times = self.stamps(batch)
        if split.idleness is not None:
            self._wake(split, split.idleness)
        if self._begins is not None and min(times) < self._begins:
            batch = self._without_past(batch, times, self._begins)
            if not batch.values:
                return
            times = batch.timestamps or []
        generator = split.generator
        if isinstance(generator, BoundedOutOfOrderness):
            self._bounded(split.id, generator, batch, times)
        else:
            cuts = self._spoken(split, batch, times)
            self._emit(Batch(batch.values, times), cuts)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp == MAX_TIMESTAMP:
            super().on_watermark(timestamp)
            if self.aligned is not None:
                self.aligned.leave()

    def on_idle(self) -> None:
        if not self._idle:
            self._idle = True
            self.output.idle()
            if self.aligned is not None:
                self.aligned.silent()

    def on_active(self) -> None:
        if not self._combined.idle:
            self._speak()

    def on_split_start(self, split: str) -> None:
        self._begin(split)

    def on_split(self, split: str) -> None:
        if _MIXED in self._splits:
            # Restored from a job in which an exchange stood before this step. What was in flight there has come, before
            # anything of a split; no record will ever come from there again, and nobody waits for it.
            self.on_split_end(_MIXED)
        self._current = self._splits[split]

    def on_split_end(self, split: str) -> None:
        ended = self._splits.pop(split)
        if self._current is ended:
            self._current = None
        self._combined.remove(split)
        self._settle(self._combined.on_periodic())

    def on_backpressure(self, blocked: bool, now: Timestamp) -> None:
        if self._strategy.idle_after is None:
            return
        for split in self._splits.values():
            if split.idleness is not None:
                split.idleness.pause(now) if blocked else split.idleness.resume(now)
        self._arm()

    def on_processing_time(self, now: Timestamp) -> None:
        if self._recalled:
            self._go_on()
        if self._next_period is not None and self._next_period <= now:
            self._next_period = now + self._period
            for split in self._splits.values():
                self._ask(split)
        for split in self._splits.values():
            if split.idleness is not None and not split.idle and split.idleness.is_idle(now):
                self._note_silence(split, split.idleness, now)
        self._settle(self._combined.on_periodic())
        self._arm()

    def capture(self, *, changes: bool) -> Captured:
        """The watermarks of the splits that are being read here, or of the mixed stream.

        What whoever restores a job owes this step, since splits move between subtasks:

        - *Union redistribution*: every subtask gets the parts of all of them, as ``state.snapshot.merge`` joins them,
          however many there are now. (Dealt out, a part would not find the split that it is about.)
        - ``on_split_start`` of every split that was being read, in the subtask that goes on with it, behind
          ``restore`` and before the first batch, alarm or snapshot; also where the source reads fewer at a time. One
          that began later would find the watermark where the others have left it, and its records late.

        Until a split begins after a restore, the snapshot is what was restored. Afterwards other splits are left to
        the subtasks that read them, and so is forgetting them at their end.
        """
        if not self._begun:
            known = self._remembered
        else:
            known = {split: self._combined.watermark_of(split) for split in self._splits}
        here = (self.context.subtask, self.context.parallelism)
        parts = [(name, at, *here) if name == _MIXED else (name, at) for name, at in known.items()]
        operator = {_STATE: tuple(PLAIN.encode(part) for part in parts)}
        if self._begins is not None:
            operator[BEGINS] = begins_at(self._begins)
        return Ready(OperatorSnapshot(operator=operator))

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Splits go on where they were when they begin again. Generators of the user's start anew: they are code.

        Of a split that several subtasks knew, the latest watermark counts: the others are memories of it. A mixed
        stream goes on where it was; with another parallelism, where the slowest was, since its records are mixed anew.
        """
        self._begins = handed_over(snapshot, self.name)
        mixed: dict[tuple[int, int], Timestamp] = {}
        for part in snapshot.operator.get(_STATE, ()):
            match PLAIN.decode(part):
                case (str(split), int(watermark)):
                    before = self._remembered.get(split, watermark)
                    self._remembered[split] = max(before, watermark)
                case (str(), int(watermark), int(subtask), int(parallelism)):
                    mixed[subtask, parallelism] = watermark
                case other:
                    raise RestoreError(
                        f"step {self.name!r}: {shown(other)} is not a split and its watermark"
                    )
        if mixed:
            here = (self.context.subtask, self.context.parallelism)
            self._remembered[_MIXED] = mixed.get(here, min(mixed.values()))
            self._current = self._begin(_MIXED)

    def _note_silence(self, split: _SplitTime, idleness: Idleness, now: Timestamp) -> None:
        """``split`` gave no record for long enough: it is idle, unless records are here and it is us who are slow."""
        if self.context.has_queued(split.id):
            idleness.active(now)
        else:
            split.idle = True
            self._combined.on_idle(split.id, immediate=False)

    def _begin(self, split: str) -> _SplitTime:
        idle_after = self._strategy.idle_after
        idleness = None if idle_after is None else Idleness(idle_after)
        self._begun = True
        made = self._splits[split] = _SplitTime(split, self._generator(), idleness)
        self._combined.add(split)
        self._recall(made)
        if idleness is not None:
            idleness.is_idle(self.context.clock.now())  # its clock starts with the first question
            self._arm()
        self._speak()
        return made

    def _generator(self) -> WatermarkGenerator[Any]:
        try:
            return self._strategy.generator()
        except RAISED as exc:
            raise OperatorError.of(self.name, exc) from exc

    def _recall(self, split: _SplitTime) -> None:
        known = self._remembered.pop(split.id, None)
        if self._begins is not None:
            # Readers stand there: a split that has just begun knows as much.
            known = max(watermark_before(self._begins), MIN_TIMESTAMP if known is None else known)
        if known is not None:
            if isinstance(split.generator, BoundedOutOfOrderness):
                split.generator.watermark = known
            self._combined.on_watermark(split.id, known, immediate=False)
            self._recalled = True

    def _go_on(self) -> None:
        """Send the watermark that splits had when they were restored; those that go on here have all begun."""
        self._recalled = False
        self._settle(self._combined.on_periodic())

    def _without_past(
        self, batch: Batch[Any], times: list[Timestamp], begins: Timestamp
    ) -> Batch[Any]:
        """The records from ``begins`` on. The others are counted."""
        self.check_range(batch, times)
        skipped, taken = divided(batch, times, begins)
        self.output.side(SKIPPED, skipped)
        return taken

    def stamps(self, batch: Batch[Any]) -> list[Timestamp]:
        """Return the timestamps of ``batch``. Warns if the first one of the step is plainly in another unit."""
        times = self._times(batch)
        if not self._strategy.unit.done:
            self._strategy.unit.check(self.name, batch.values[0], times[0])
        return times

    def _times(self, batch: Batch[Any]) -> list[Timestamp]:
        time = self._time
        if time is None:
            if batch.timestamps is None:
                raise OperatorError(
                    f"step {self.name!r} was given no function that tells the time of a record, and the records of "
                    f"its source carry no timestamps; write .event_time(lambda record: …)",
                    operator=self.name,
                    record=batch.values[0],
                )
            return batch.timestamps
        # Hot path (benchmark `keyed_window`).
        left = iter(batch.values)
        try:
            times = [time(value) for value in left]
            if not _all_ints(times):
                left = iter(batch.values)
                return [to_timestamp(at) for at, _ in zip(times, left, strict=True)]
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        return times  # type: ignore[return-value]  # all are int, as was just seen

    def check_range(self, batch: Batch[Any], times: Sequence[Timestamp]) -> None:
        """Raises ``OperatorError`` for a record whose timestamp has more than 64 bits."""
        if min(times) >= MIN_TIMESTAMP and max(times) <= MAX_TIMESTAMP:
            return
        index = next(i for i, at in enumerate(times) if not MIN_TIMESTAMP <= at <= MAX_TIMESTAMP)
        beyond = FlowDefinitionError(
            f"event time {shown(times[index])} is outside of the 64 bits that epoch milliseconds have; "
            f"is it in another unit?"
        )
        raise self.failure_at(beyond, batch, index) from beyond

    def _bounded(
        self,
        split: str,
        generator: BoundedOutOfOrderness,
        batch: Batch[Any],
        times: list[Timestamp],
    ) -> None:
        earned = generator.watermark
        newest, in_order = _scan(times, earned + generator.lag, generator.lag)
        cuts: Sequence[Cut] = ()
        if newest > MAX_TIMESTAMP or not in_order or self.periods:
            self.check_range(batch, times)
            cuts = self._earned(times, earned, generator.lag, self._combined.others(split))
        generator.on_batch((newest,))
        advanced = self._combined.on_watermark(split, generator.watermark, immediate=True)
        self._emit(Batch(batch.values, times), cuts)
        self._settle(advanced)

    def _earned(
        self, times: Iterable[Timestamp], earned: Timestamp, behind: int, others: Timestamp
    ) -> list[Cut]:
        """Return where a watermark must be sent between records: it was earned by those before and not sent yet.

        The next record is behind it, or it has passed a multiple of one of the periods.
        """
        cuts: list[Cut] = []
        sent = self.watermark
        for index, time in enumerate(times):
            watermark = min(earned, others)
            if sent < watermark and (watermark >= time or self._passes(sent, watermark)):
                cuts.append((index, watermark))
                sent = watermark
            if time - behind > earned:
                earned = time - behind
        return cuts

    def _passes(self, sent: Timestamp, watermark: Timestamp) -> bool:
        """Return True if a multiple of a period is after ``sent`` and not after ``watermark``."""
        return any(sent // period < watermark // period for period in self.periods)

    def _spoken(
        self, split: _SplitTime, batch: Batch[Any], times: Sequence[Timestamp]
    ) -> list[Cut]:
        """Where the user's generator gave a watermark: behind the record that it saw."""
        self.check_range(batch, times)
        cuts: list[Cut] = []
        see = split.generator.on_event
        left = iter(batch.values)
        try:
            for index, (value, time) in enumerate(zip(left, times, strict=False), start=1):
                said = see(value, time)
                if said is not None:
                    combined = self._combined.on_watermark(split.id, said, immediate=True)
                    if combined is not None:
                        cuts.append((index, combined))
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        return cuts

    def _ask(self, split: _SplitTime) -> None:
        try:
            said = split.generator.on_periodic()
        except RAISED as exc:
            raise OperatorError.of(self.name, exc) from exc
        if said is not None:
            self._combined.on_watermark(split.id, said, immediate=False)

    def _emit(self, batch: Batch[Any], cuts: Iterable[Cut]) -> None:
        start = 0
        for index, watermark in cuts:
            if index > start:
                self.output.emit(batch.slice(start, index))
            self._send(watermark)
            start = index
        if start == 0:
            self.output.emit(batch)
        elif start < len(batch):
            self.output.emit(batch.slice(start, len(batch)))

    def _settle(self, advanced: Timestamp | None) -> None:
        """Tell readers what the splits have come to: a new watermark, or that all of them are idle."""
        if advanced is not None:
            self._send(advanced)
        if self._combined.idle:
            self.on_idle()

    def _speak(self) -> None:
        """Tell readers that the stream is active, if they were told otherwise."""
        if self._idle:
            self._idle = False
            self.output.active()
            if self.aligned is not None:
                self.aligned.speaking()

    def _send(self, watermark: Timestamp) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self.output.watermark(watermark)
            if self.aligned is not None:
                self.aligned.advanced(watermark)

    def _wake(self, split: _SplitTime, idleness: Idleness) -> None:
        idleness.active(self.context.clock.now())
        if split.idle:
            split.idle = False
            self._settle(self._combined.on_active(split.id))
            self.on_active()
            self._arm()

    def _arm(self) -> None:
        """Set the alarm to the next moment at which a split may be idle, or a generator is to be asked."""
        awake = [
            split.idleness for split in self._splits.values() if split.idleness and not split.idle
        ]
        dues = [idleness.due for idleness in awake]
        moments = [at for at in (*dues, self._next_period) if at is not None]
        self.context.alarm.set(min(moments, default=None))


def _all_ints(times: Sequence[Any]) -> bool:
    """True if no timestamp needs converting. Adding them up tells it in 7 ns a record, looking at each type in 20.

    A sum of booleans is an int too, but one that no timestamps of this century add up to: then the types are looked at.
    """
    try:
        total = sum(times)
    except TypeError:
        return False
    if type(total) is int and 0 <= total <= len(times):
        return all(type(at) is int for at in times)
    return type(total) is int


def _scan(times: Sequence[Timestamp], newest: Timestamp, behind: int) -> tuple[Timestamp, bool]:
    """The newest timestamp, and whether no record is behind the watermark that the records before it have earned."""
    # Hot path (benchmark `keyed_window`): 28 ns a record, where finding the cuts right away takes 100.
    for time in times:
        if time > newest:
            newest = time
        elif time <= newest - behind:
            return max(newest, max(times)), False
    return newest, True
