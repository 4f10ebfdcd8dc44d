"""The step that assigns timestamps to records and emits watermarks.

Rule: the watermark that a record meets downstream is the one that the *preceding* records have earned, however they are
batched. So a batch is cut before a record that is behind the watermark of the batch so far, and that watermark is sent
in between; a batch without such a record is emitted whole, followed by the watermark. So only the order of the records
determines which are late, and a replay with other batches has the same result (docs/decisions/002). If a trigger
downstream fires at multiples of a period, a batch is also cut where the watermark passes one of them
(docs/decisions/010). If a step downstream has event timers, the batch carries the watermark that each record meets
(docs/decisions/045).

Each split of a source has its own generator and its own idleness; the ``SplitMultiplexer`` combines them. Downstream of
an exchange there are no splits, and one generator follows the mixed stream.

If the restored state has the end of a backfill, the step takes records from that time on (``handover.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Idleness,
    WatermarkGenerator,
)
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.machines.watermarks.silence import SilentAdvance
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, Timestamp
from aflow.operators.alignment import Alignment, AlignmentMember
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.earned_watermarks import Cut, cuts_of, met_by, scan
from aflow.operators.first_call import FirstCall
from aflow.operators.handover import SKIPPED, TimeBounds, divided, watermark_before
from aflow.operators.split_watermarks import MIXED, STATE, RestoredWatermarks, stored_watermarks
from aflow.operators.stamped import Stamped, stamped
from aflow.operators.time_strategy import PERIOD, SplitTime, TimeStrategy
from aflow.state.snapshot import Captured, OperatorSnapshot, Ready


class EventTimeOperator(Operator):
    """Assigns timestamps to records and sends watermarks between them.

    ``time`` returns the timestamp of a value; None: the records have timestamps already. Watermarks from upstream are
    dropped, except the last one, which ends event time. ``watermark`` is the last one that was sent.

    The runtime sets ``aligned``, the membership in an alignment group, after ``open``.
    """

    def __init__(self, time: Callable[[Any], Instant] | None, strategy: TimeStrategy) -> None:
        self._time: Callable[[Any], Instant] | None = time and FirstCall(
            self, "_time", time, "event_time()"
        )
        self._strategy = strategy
        self._combined = SplitMultiplexer()
        self._splits: dict[str, SplitTime] = {}
        #: The split of the current batches; None before the first.
        self._current: SplitTime | None = None
        #: True while the output is idle.
        self._idle = False
        self._next_period: Timestamp | None = None
        self._period: Final = PERIOD if strategy.period is None else strategy.period
        self._restored = RestoredWatermarks()
        #: True while the watermarks of restored splits that have begun are still to be sent: none may be sent before
        #: all splits that continue in this subtask have begun.
        self._recalled = False
        self._bounds: Final = TimeBounds()
        #: True once a split has begun; from then on snapshots of this subtask omit restored watermarks of other splits.
        self._begun = False
        #: Periods (ms) of triggers downstream: a watermark is sent at each multiple of each of them.
        self.periods: tuple[int, ...] = ()
        #: True if batches carry the watermark that each record meets: a step downstream needs it.
        self.sends_met = False
        #: Event time of a silent input; None if it does not advance.
        self._silence = SilentAdvance(self._period) if strategy.advance_when_idle else None
        #: The last watermark that the clock has earned.
        self._advanced: Timestamp = MIN_TIMESTAMP
        #: The membership in the group of ``alignment``; None without one.
        self.aligned: AlignmentMember | None = None

    @property
    def alignment(self) -> Alignment | None:
        """The alignment group of this step."""
        return self._strategy.align

    @property
    def from_source(self) -> bool:
        """True if the source emits the watermarks."""
        return self._strategy.from_source

    @property
    def lag(self) -> int | None:
        """Distance (ms) of the watermark from the newest timestamp; None if something else decides the watermark."""
        if self.from_source:
            return None
        generator = self._strategy.generator()
        return generator.lag if isinstance(generator, BoundedOutOfOrderness) else None

    @property
    def idle_after(self) -> int | None:
        """Milliseconds without a record after which a split is idle; None: never."""
        return self._strategy.idle_after

    @property
    def advances_when_idle(self) -> bool:
        """True if event time advances by the clock while all splits are idle."""
        return self._strategy.advance_when_idle

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if self.from_source:
            return
        if not isinstance(self._generator(), BoundedOutOfOrderness):
            self._next_period = context.clock.now() + self._period
            self._arm()
        elif self._strategy.period is not None:
            raise OperatorError(
                f"step {self.name!r} has a watermark_interval, and its generator emits a watermark after each batch; "
                f"omit watermark_interval, or use a generator that emits in on_periodic",
                operator=self.name,
            )

    def on_start(self) -> None:
        # A restored split may have no record for long, and readers wait for its watermark.
        if self._recalled:
            self._send_recalled()

    def process(self, batch: Batch[Any]) -> None:
        split = self._current or self._begin(MIXED)
        self._current = split
        if self._recalled:
            self._send_recalled()
        batch, times, failure = self.stamped(batch)
        if split.idle or split.idleness is not None:
            self._wake(split)
        if times:
            self._process_stamped(split, batch, times)
        if failure is not None:
            raise failure

    def _process_stamped(self, split: SplitTime, batch: Batch[Any], times: list[Timestamp]) -> None:
        begins = self._bounds.begins
        if begins is not None and min(times) < begins:
            batch = self._without_past(batch, times, begins)
            if not batch.values:
                return
            times = batch.timestamps or []
        generator = split.generator
        if isinstance(generator, BoundedOutOfOrderness):
            self._bounded(split.id, generator, batch, times)
        elif self.from_source:
            self._bounds.saw(self.check_range(batch, times))
            self._emit(Batch(batch.values, times), ())
        else:
            cuts = self._punctuated(split, batch, times)
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
                self.aligned.on_idle()
            if self._silence is not None:
                # A source that waits for a split is idle at once, others after the timeout.
                delay = 0 if self._combined.idle else self._strategy.idle_after or 0
                self._silence.begin(self.context.clock.now() + delay, self.watermark)
                self._arm()

    def on_active(self) -> None:
        if not self._combined.idle:
            self._activate()

    def on_split_start(self, split: str) -> None:
        self._begin(split)

    def on_split(self, split: str) -> None:
        if MIXED in self._splits:
            # Restored from a job with an exchange upstream of this step. Its records in flight precede all records of
            # splits, so the mixed stream has ended.
            self.on_split_end(MIXED)
        self._current = self._splits[split]

    def on_split_watermark(self, split: str, timestamp: Timestamp) -> None:
        if not self.from_source:
            return
        if self._recalled:
            self._send_recalled()
        self._wake(self._splits[split])
        self._settle(self._combined.on_watermark(split, timestamp, immediate=True))

    def on_split_idle(self, split: str) -> None:
        if self._recalled:
            self._send_recalled()
        if self.context.has_queued(split):
            return  # its next records have arrived: this task is slow
        time = self._splits[split]
        time.idle = time.silent = True
        self._settle(self._combined.on_idle(split))
        self._arm()

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
        if self._silence is not None:
            self._silence.pause(now) if blocked else self._silence.resume(now)
        self._arm()

    def on_processing_time(self, now: Timestamp) -> None:
        if self._recalled:
            self._send_recalled()
        if self._next_period is not None and self._next_period <= now:
            self._next_period = now + self._period
            for split in self._splits.values():
                self._poll(split)
        for split in self._splits.values():
            if split.idleness is not None and not split.idle and split.idleness.is_idle(now):
                self._on_timeout(split, split.idleness, now)
        self._settle(self._combined.on_periodic())
        if self._silence is not None and self._idle:
            self._advance_silently(self._silence, now)
        self._arm()

    def capture(self, *, changes: bool) -> Captured:
        """Return the watermarks of the splits of this subtask, or of the mixed stream.

        A restore must do the following, since splits move between subtasks:

        - *Union redistribution*: every subtask gets the parts of all former ones, as ``state.snapshot.merge`` joins
          them. (A part that was assigned to one subtask would not find its split.)
        - ``on_split_start`` of every split that was being read, in the subtask that continues it, after ``restore`` and
          before the first batch, alarm or snapshot; also if the source reads fewer at a time. A split that began later
          would find the watermark of the others, and its records would be late.

        Until a split begins, the snapshot is the restored one. Afterwards it has the splits of this subtask only.
        """
        known, silent = self._restored.splits, set[str]()
        if self._begun:
            # No split continues behind a watermark of the clock that was sent.
            known = {
                split: max(self._combined.watermark_of(split), self._advanced)
                for split in self._splits
            }
            silent = {split for split, time in self._splits.items() if time.silent}
            # Other splits may have advanced the watermark beyond that of an idle one.
            known.update((split, max(known[split], self.watermark)) for split in silent)
        operator = {STATE: stored_watermarks(known, silent, self._here), **self._bounds.stored()}
        return Ready(OperatorSnapshot(operator=operator))

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Restore the watermarks of splits, for when they begin again. Generators of users start anew: they are
        code."""
        self._bounds.restore(snapshot, self.name)
        self._restored.read(snapshot, self.name, self._here)
        if MIXED in self._restored.splits:
            self._current = self._begin(MIXED)
        return iter(())

    @property
    def _here(self) -> tuple[int, int]:
        return self.context.subtask, self.context.parallelism

    def _advance_silently(self, silence: SilentAdvance, now: Timestamp) -> None:
        """Send the watermark of the clock. The stream is idle before and after it, so no reader waits for it."""
        if any(self.context.has_queued(split) for split in self._splits):
            silence.begin(now, self.watermark)  # the records are not late: this task is slow
            return
        watermark = silence.watermark(now)
        if watermark is not None and watermark > self.watermark:
            self.output.active()
            self._advanced = watermark
            self._send(watermark)
            self.output.idle()

    def _on_timeout(self, split: SplitTime, idleness: Idleness, now: Timestamp) -> None:
        """Make ``split`` idle after its timeout, unless records of it are queued and this task is slow."""
        if self.context.has_queued(split.id):
            idleness.active(now)
        else:
            split.idle = True
            self._combined.on_idle(split.id, immediate=False)

    def _begin(self, split: str) -> SplitTime:
        idle_after = self._strategy.idle_after
        idleness = None if idle_after is None else Idleness(idle_after)
        self._begun = True
        made = self._splits[split] = SplitTime(split, self._generator(), idleness)
        self._combined.add(split)
        self._recall(made)
        if idleness is not None:
            idleness.is_idle(self.context.clock.now())  # starts its clock
            self._arm()
        self._activate()
        return made

    def _generator(self) -> WatermarkGenerator[Any]:
        try:
            return self._strategy.generator()
        except RAISED as exc:
            raise OperatorError.of(self.name, exc) from exc

    def _recall(self, split: SplitTime) -> None:
        known, split.silent = self._restored.pop(split.id)
        if (begins := self._bounds.begins) is not None:
            # Readers have this watermark: a split that begins now has it too.
            known = max(watermark_before(begins), MIN_TIMESTAMP if known is None else known)
        if known is not None:
            if isinstance(split.generator, BoundedOutOfOrderness):
                split.generator.watermark = known
            self._combined.on_watermark(split.id, known, immediate=False)
            self._recalled = True

    def _send_recalled(self) -> None:
        """Send the watermark and the idleness of the restored splits; all that continue in this subtask have begun."""
        self._recalled = False
        self._settle(self._combined.on_periodic())
        silent = [split for split in self._splits.values() if split.silent]
        for split in silent:
            split.idle = True
            self._combined.on_idle(split.id, immediate=False)
        if silent:
            self._settle(self._combined.on_periodic())
            self._arm()

    def _without_past(
        self, batch: Batch[Any], times: list[Timestamp], begins: Timestamp
    ) -> Batch[Any]:
        """Return the records from ``begins`` on; emit the others to a side output, which counts them."""
        self.check_range(batch, times)
        skipped, taken = divided(batch, times, begins)
        self.output.side(SKIPPED, skipped)
        return taken

    def stamped(self, batch: Batch[Any]) -> Stamped:
        """Assign timestamps. Warns if the first one of the step is clearly in another unit."""
        stamped = self._stamped(batch)
        if not self._strategy.unit.done and stamped.times:
            self._strategy.unit.check(self.name, stamped.batch.values[0], stamped.times[0])
        return stamped

    def _stamped(self, batch: Batch[Any]) -> Stamped:
        time = self._time
        if time is None:
            if batch.timestamps is None:
                raise OperatorError(
                    f"step {self.name!r} has no function for the timestamps, and the records of its source have no "
                    f"timestamps; write .event_time(lambda record: …)",
                    operator=self.name,
                    record=batch.values[0],
                )
            return Stamped(batch, batch.timestamps)
        return stamped(self, time, batch)

    def check_range(self, batch: Batch[Any], times: Sequence[Timestamp]) -> Timestamp:
        """Return the newest timestamp. Raises ``OperatorError`` for a record with one of more than 64 bits."""
        newest = max(times)
        if newest <= MAX_TIMESTAMP and min(times) >= MIN_TIMESTAMP:
            return newest
        index = next(i for i, at in enumerate(times) if not MIN_TIMESTAMP <= at <= MAX_TIMESTAMP)
        beyond = FlowDefinitionError(
            f"event time {shown(times[index])} is outside of the 64 bits of epoch milliseconds; "
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
        earned, behind = generator.watermark, generator.lag
        others = self._combined.others(split)
        newest, in_order = scan(times, earned + behind, behind)
        cuts: Sequence[Cut] = ()
        if newest > MAX_TIMESTAMP or not in_order or self.periods:
            self.check_range(batch, times)
            cuts = cuts_of(times, earned, behind, others, self.watermark, self.periods)
        self._bounds.saw(newest)
        met: list[Timestamp] | None = None
        if self.sends_met:
            met = met_by(times, earned, behind, others, self.watermark)
        generator.on_batch((newest,))
        advanced = self._combined.on_watermark(split, generator.watermark, immediate=True)
        self._emit(Batch(batch.values, times, None, met), cuts)
        self._settle(advanced)

    def _punctuated(
        self, split: SplitTime, batch: Batch[Any], times: Sequence[Timestamp]
    ) -> list[Cut]:
        """Return a cut after each record for which the generator of the user emitted a watermark."""
        self._bounds.saw(self.check_range(batch, times))
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

    def _poll(self, split: SplitTime) -> None:
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
                self._emit_slice(batch, start, index)
            self._send(watermark)
            start = index
        if start == 0:
            self.output.emit(batch)
        elif start < len(batch):
            self._emit_slice(batch, start, len(batch))

    def _emit_slice(self, batch: Batch[Any], start: int, stop: int) -> None:
        part = batch.slice(start, stop)
        if part.watermarks is not None and part.watermarks[-1] <= self.watermark:
            part = part.without_watermarks()
        self.output.emit(part)

    def _settle(self, advanced: Timestamp | None) -> None:
        """Send the combined watermark if it advanced, and idleness if all splits are idle."""
        if advanced is not None:
            self._send(advanced)
        if self._combined.idle:
            self.on_idle()

    def _activate(self) -> None:
        """Send that the stream is active, if it was idle."""
        if self._idle:
            self._idle = False
            if self._silence is not None:
                self._silence.end()
            self.output.active()
            if self.aligned is not None:
                self.aligned.on_active()

    def _send(self, watermark: Timestamp) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self.output.watermark(watermark)
            if self.aligned is not None:
                self.aligned.on_watermark(watermark)

    def _wake(self, split: SplitTime) -> None:
        if split.idleness is not None:
            split.idleness.active(self.context.clock.now())
        if split.idle:
            split.idle = split.silent = False
            self._settle(self._combined.on_active(split.id))
            self.on_active()
            self._arm()

    def _arm(self) -> None:
        """Set the alarm to the next time at which a split may be idle, or a periodic generator is due."""
        awake = [
            split.idleness for split in self._splits.values() if split.idleness and not split.idle
        ]
        dues = [idleness.due for idleness in awake]
        silent = None if self._silence is None else self._silence.due(self.context.clock.now())
        moments = [at for at in (*dues, self._next_period, silent) if at is not None]
        self.context.alarm.set(min(moments, default=None))
