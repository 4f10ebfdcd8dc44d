"""Windows of every kind: any assigner, also of windows that merge, any trigger, evictors, functions of all records.

What happens, in order. A record is put into each of its windows that is not gone, the trigger is asked, and what it
says is done: a firing before a purge. When a timer is due, the trigger is asked in the same way, and if it is the
clean-up timer, everything about the window goes after that: contents, the trigger's memory, the function's state. A
timer of a window that was purged asks the trigger, but no function is called without contents; a timer of a window
that is gone does nothing.

In windows of processing time the time of a record is that of the clock when its batch is processed. Such a window ends
when the clock reaches its end. A window that has not fired when the input ends does not fire: only the clock ends it,
while the end of the input ends all event time.

A window that never goes (a global one) begins anew when its contents are purged: results are counted from 1 again,
and nothing stays behind for a key of which the trigger remembers nothing and for which no timer is set.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from aflow.errors import InternalError, OperatorError, readable, shown
from aflow.machines.windows.assigners import GlobalWindows
from aflow.machines.windows.trigger import TriggerResult
from aflow.model.batch import BATCH_RECORDS, Batch, in_batches
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW
from aflow.operators.base import RAISED, OperatorContext, StateSize
from aflow.operators.changed_keys import ChangedKeys, too_many
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.handler_results import TAKEN, iterable
from aflow.operators.keyed_state import memory_backend, touch
from aflow.operators.process import ProcessFunctionOperator
from aflow.operators.windows.contents import EMPTY, KeyWindow, contents_for
from aflow.operators.windows.contexts import (
    AsWindowed,
    FiringContext,
    KeyWindowContext,
    window_text,
)
from aflow.operators.windows.domain_timers import TIMER_NAMES, DomainTimers
from aflow.operators.windows.function import WindowFunction
from aflow.operators.windows.lateness import LATE, Horizon
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.merging_windows import MergingWindows
from aflow.operators.windows.separate_windows import Place, SeparateWindows
from aflow.operators.windows.staggers import staggers_of, stored_staggers
from aflow.operators.windows.window_snapshots import WindowSnapshots
from aflow.operators.windows.window_state import WindowState, of_keys
from aflow.state.keyed_entries import CapturedRows, KeyedRows, merge_keyed, merge_rows
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import declared_states


class WindowOperator(ProcessFunctionOperator[WindowFunction[Any, Any, Any]]):
    """Does what ``logic`` says, one key and window after the other; ``check_logic`` says what it takes."""

    def __init__(self, logic: WindowLogic) -> None:
        super().__init__(AsWindowed(logic.apply) if logic.function is None else logic.function)
        self._logic = logic
        self._contents = contents_for(logic)

    def open(self, context: OperatorContext) -> None:
        logic = self._logic
        merging = logic.assigner.merging
        specs = declared_states(self._function)
        #: Whether the function has state of its own.
        self._stateful = bool(specs)
        self._changed = ChangedKeys()
        self._horizon = Horizon(logic.assigner.domain, logic.lateness)
        #: The watermarks of key groups that were restored from a subtask which was ahead of this one.
        self._ahead = no_group_ahead(context)
        self._timers = DomainTimers(context.alarm)
        self._asked = KeyWindowContext(
            self._horizon, context.clock, self._timers, clocked=context.clocked
        )
        self._staggers = staggers_of(logic.assigner, context)
        self._windows = self._kept_windows()
        self._backend = memory_backend(context, logic.key_type)
        self._window_state = None if merging else WindowState(context, logic.key_type, specs)
        self._filed = WindowSnapshots(
            self._backend.key_codec, self._contents, self._windows, self._timers
        )
        #: Results that were not emitted yet, and their timestamps.
        self._values: list[Any] = []
        self._times: list[Timestamp] = []
        super().open(context)
        self._firing: FiringContext[Any] = FiringContext(
            context,
            horizon=self._horizon,
            sides=self._sides,
            backend=self._backend,
            specs=specs,
            window_state=self._window_state,
        )

    def process(self, batch: Batch[Any]) -> None:
        keys = batch.keys
        if keys is None:
            raise InternalError(f"step {self.name!r} is keyed and got a batch without keys")
        if self._stateful:
            touch(self, self._backend, batch)
        self._sides.begin()
        if self._ahead:
            self._add_restored(batch, keys)
        else:
            self._add(batch, keys, self._windows.place)
        self._changed.add(keys)
        self._handled()

    def _add_restored(self, batch: Batch[Any], keys: Sequence[Hashable]) -> None:
        """Add records one by one, each at the watermark of its key."""
        horizon = self._horizon
        try:
            for index, key in enumerate(keys):
                horizon.watermark = self._ahead.of(key, self.watermark)
                one = batch.pick([index])
                self._add(one, (key,), self._windows.place_alone)
        finally:
            horizon.watermark = self.watermark

    def _add(self, batch: Batch[Any], keys: Sequence[Hashable], place: Place) -> None:
        """Put records into their windows, and do what the trigger says."""
        # Hot path: nothing is made for a record but the list of where it belongs.
        add, ask = self._contents.add, self._logic.trigger.on_element
        asked, late_until = self._asked, self._horizon.late
        go_on = TriggerResult.CONTINUE
        moments = self._moments(batch)
        late: list[int] = []
        one: KeyWindow | None = None
        left = iter(batch.values)
        try:
            for value, key, time in zip(left, keys, moments, strict=False):
                one = None
                for one in place(key, value, time):
                    asked.at = one
                    one.held = add(one.held, value, time)
                    said = ask(value, time, one.window, asked)
                    if said is not go_on:
                        self._obey(said, one)
                        if one.cleanup is None:
                            self._windows.settle(one)
                if one is None and time <= late_until:
                    late.append(len(batch) - length_hint(left) - 1)
        except RAISED as exc:
            index = len(batch) - length_hint(left) - 1
            raise self._failed_on(exc, batch, index, one) from exc
        self._emit_late(batch, late)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        self._ring(TimeDomain.EVENT, timestamp, timestamp)
        if timestamp == MAX_TIMESTAMP and self._horizon.domain is TimeDomain.EVENT:
            self._clean_kept()
        self._ahead = self._ahead.after(timestamp)
        super().on_watermark(timestamp)

    def on_processing_time(self, now: Timestamp) -> None:
        self._timers.rang()
        self._ring(TimeDomain.PROCESSING, now, self.watermark)

    def snapshot(self) -> OperatorSnapshot:
        """Raises ``CheckpointError`` for what cannot be encoded: a key, contents, what a trigger remembers, state."""
        keyed = merge_keyed(self._backend.snapshot(), self._filed.snapshot())
        if self._window_state is not None:
            keyed = merge_keyed(keyed, self._window_state.snapshot())
        return OperatorSnapshot(keyed, self._known(), members=frozenset(TIMER_NAMES.values()))

    def capture(self, *, changes: bool) -> CapturedRows:
        """Raises ``CheckpointError`` for what cannot be encoded: contents, what a trigger remembers, state."""
        rows = self._captured_rows(self._changed.take(changes=changes))
        timers = self._timers.capture(changes=rows.keys is not None)
        if timers is None or not self._changed.trusted(rows):
            return self.capture(changes=False)
        key_codec = (
            self._backend.key_codec if self._window_state is None else self._window_state.key_codec
        )
        return CapturedRows(key_codec, rows, timers, self._known())

    def _captured_rows(self, keys: set[Hashable] | None) -> KeyedRows:
        """What ``keys``, or all keys, have; all if changes are no less."""
        states = self._captured_states(changes=keys is not None)
        if any(part.keys is None for part in states):
            keys = None
        if keys is None:
            if any(part.keys is not None for part in states):
                states = self._captured_states(changes=False)
            return merge_rows([KeyedRows(self._filed.capture(self._windows)), *states])
        for part in states:
            keys.update(part.keys or ())  # state of a key may have gone out of date by itself
        found = list(self._windows.of(keys))
        if too_many(keys, len(found), len(self._windows)):
            return self._captured_rows(None)
        return merge_rows([KeyedRows(self._filed.capture(found), keys), *states])

    def _captured_states(self, *, changes: bool) -> list[KeyedRows]:
        """What the function has stored for keys and for windows."""
        if not self._stateful:
            return []
        states = [self._backend.capture(changes=changes)]
        if self._window_state is not None:
            states.append(self._window_state.capture(changes=changes))
        return states

    def _known(self) -> Mapping[str, tuple[bytes, ...]]:
        """What is stored as operator state."""
        outlived = len(self._windows) > 0 and not isinstance(self._logic.assigner, GlobalWindows)
        groups = self.context.key_groups
        watermark = self._ahead.stored(self.watermark, groups, outlived=outlived)
        return {**watermark, **stored_staggers(self._staggers), **self._filed.kind()}

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Continue with the smallest watermark of the former subtasks."""
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        self._horizon.watermark = self.watermark
        if self._staggers is not None:
            self._staggers.restore(snapshot)
        self._backend.restore(of_keys(snapshot.keyed))
        if self._window_state is not None:
            self._window_state.restore(snapshot.keyed)
        self._filed.restore(snapshot)
        self._changed.begin([one.key for one in self._windows])

    def size(self) -> StateSize:
        windows = sum(one.entries for one in self._windows)
        return StateSize(
            entries=windows + self._windows.entries + self._firing.entries,
            event_timers=len(self._timers.event),
            processing_timers=len(self._timers.processing),
        )

    def _kept_windows(self) -> SeparateWindows | MergingWindows:
        logic, horizon = self._logic, self._horizon
        timers = self._timers.of(horizon.domain)
        if not logic.assigner.merging:
            return SeparateWindows(logic.assigner, horizon, timers, self._staggers)
        return MergingWindows(
            logic.assigner, horizon, timers, logic.trigger, self._asked, self._contents.merge
        )

    def _moments(self, batch: Batch[Any]) -> Iterable[Timestamp]:
        """The time of each record, as windows and triggers see it."""
        if self._horizon.domain is TimeDomain.PROCESSING:
            return repeat(self.context.clock.now())
        if batch.timestamps is not None:
            return batch.timestamps
        if isinstance(self._logic.assigner, GlobalWindows):
            return repeat(MIN_TIMESTAMP)  # there is but one window, whatever the time
        raise OperatorError(
            f"step {self.name!r} needs event time, but its records have no timestamps; "
            f"call .event_time(…) before .key_by(…)",
            operator=self.name,
            record=batch.values[0],
        )

    def _ring(self, domain: TimeDomain, now: Timestamp, watermark: Timestamp) -> None:
        """Ask the trigger for each timer that is due, and clean up the windows whose time has come."""
        trigger, asked = self._logic.trigger, self._asked
        horizon, ahead = self._horizon, self._ahead
        horizon.watermark = watermark
        ask = trigger.on_event_time if domain is TimeDomain.EVENT else trigger.on_processing_time
        own = domain is self._horizon.domain
        self._sides.begin()
        for at, window, keys in self._timers.due(domain, now):
            for one in self._touched(self._windows.find(window, keys)):
                asked.at = one
                if ahead:
                    horizon.watermark = max(watermark, ahead.of(one.key, watermark))
                cleanup = own and one.cleanup == at
                one.timers -= not cleanup
                try:
                    said = ask(at, window, asked)
                    if said is not TriggerResult.CONTINUE:
                        self._obey(said, one, last=cleanup)
                    if cleanup:
                        self._clean(one)
                except RAISED as exc:
                    raise self._failed_at(exc, f"{domain.value} timer", at, one) from exc
                if one.cleanup is None:
                    self._windows.settle(one)
                if len(self._values) >= BATCH_RECORDS:
                    self._flush()
        horizon.watermark = watermark
        self._handled()

    def _touched(self, found: list[KeyWindow]) -> Iterator[KeyWindow]:
        """Those whose timers ring, a batch at a time, after it was noted that their keys come up."""
        if not self._stateful and not self._changed.noted:
            yield from found
            return
        for start in range(0, len(found), BATCH_RECORDS):
            some = found[start : start + BATCH_RECORDS]
            keys = [one.key for one in some]
            self._changed.add(keys)
            if self._stateful:
                self._backend.touch(keys)
            yield from some

    def _obey(self, said: TriggerResult, one: KeyWindow, *, last: bool = False) -> None:
        """Do what the trigger said about ``one``; ``last`` if that goes then."""
        if not isinstance(said, TriggerResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{type(self._logic.trigger).__name__} answered {shown(said)}, not a TriggerResult"
            )
        if said.fires and one.held is not EMPTY:
            self._fire(one, last=last or said.purges)
        if said.purges:
            one.held = EMPTY
        if one.cleanup is None and one.held is EMPTY:
            one.firing = 0

    def _fire(self, one: KeyWindow, *, last: bool) -> None:
        one.held = self._contents.fire(one.held, one.window, self._call, self._asked, last=last)

    def _call(self, value: Any) -> None:
        """Let the function make the results of a firing, for whom the trigger was just asked."""
        one = self._asked.at
        one.firing += 1
        self._firing.enter(one)
        results = self._function.process(value, self._firing)
        if results is not None:
            self._values.extend(results if type(results) in TAKEN else iterable(results))
            missing = len(self._values) - len(self._times)
            self._times.extend([one.window.max_timestamp] * missing)
        self._firing.leave()

    def _clean(self, one: KeyWindow) -> None:
        """All about ``one`` goes."""
        self._logic.trigger.clear(one.window, self._asked)
        self._firing.enter(one)
        self._function.on_clear(self._firing)
        self._firing.leave()
        if self._window_state is not None:
            self._window_state.clear(one.key, one.window)
        self._windows.remove(one)

    def _clean_kept(self) -> None:
        """Clean up the windows that were to be kept beyond the end of event time; global ones stay."""
        kept = [one for one in self._windows if one.window != GLOBAL_WINDOW]
        self._sides.begin()
        for one in self._touched(kept):
            self._asked.at = one
            try:
                self._clean(one)
            except RAISED as exc:
                raise self._failed_at(exc, "end of event time", MAX_TIMESTAMP, one) from exc
        self._handled()

    def _emit_late(self, batch: Batch[Any], late: list[int]) -> None:
        if late:
            self.output.side(LATE, batch.pick(late))

    def _handled(self) -> None:
        self._timers.arm()
        self._flush()
        self._sides.emit(self.output)

    def _flush(self) -> None:
        values, times = self._values, self._times
        self._values, self._times = [], []
        for batch in in_batches(values, times):
            self.output.emit(batch)

    def _failed_on(
        self, cause: BaseException, batch: Batch[Any], index: int, one: KeyWindow | None
    ) -> OperatorError:
        error = self.failure_at(cause, batch, index)
        if one is None:
            return error
        return OperatorError(
            f"{error}; in the {window_text(one.window)}",
            operator=self.name,
            record=error.record,
            key=error.key,
            timestamp=error.timestamp,
        )

    def _failed_at(
        self, cause: BaseException, timer: str, at: Timestamp, one: KeyWindow
    ) -> OperatorError:
        return OperatorError(
            f"step {self.name!r} failed in the {timer} at {at} ({readable(at)}) of key {shown(one.key)} in the "
            f"{window_text(one.window)}: {type(cause).__name__}: {cause}",
            operator=self.name,
            key=one.key,
            timestamp=at,
        )
