"""Windows of every kind: any assigner, also of windows that merge, any trigger, evictor and window function.

Order of effects. A record is added to each of its windows that has not been cleaned up, the trigger is called, and its
result is applied: a firing before a purge. When a timer fires, the trigger is called in the same way. If it is the
clean-up timer, all state of the window is cleared after that: contents, the trigger's memory, the function's state. A
timer of a purged window calls the trigger, but no function is called without contents. A timer of a window that has
been cleaned up has no effect.

In windows of processing time the time of a record is that of the clock when its batch is processed. Such a window ends
when the clock reaches its end. A window that has not fired when the input ends does not fire: only the clock ends it,
while the end of the input ends all event time.

A window without clean-up time (a global one) is a new window after its contents were purged: firings are counted from 1
again, and nothing is kept for a key without trigger memory and timers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import repeat
from typing import Any, Final

from aflow.errors import OperatorError, readable, shown
from aflow.machines.calls.on_error import Fail
from aflow.machines.windows.assigners import GlobalWindows
from aflow.machines.windows.trigger import TriggerResult
from aflow.machines.windows.window_timers import WindowTimers
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import Windowed
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize, is_of_record
from aflow.operators.changed_keys import ChangedKeys, save_keys
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.handler_results import TAKEN, iterable
from aflow.operators.key_timers import DomainTimers
from aflow.operators.keyed_state import key_group_codec
from aflow.operators.process import ProcessFunctionOperator
from aflow.operators.windows.contexts import (
    AsWindowed,
    WindowFunctionContext,
    WindowTriggerContext,
)
from aflow.operators.windows.disk_windows import DiskWindows, disk_windows
from aflow.operators.windows.failures import contents_failure, in_window, timer_failure
from aflow.operators.windows.function import WindowFunction
from aflow.operators.windows.lateness import LATE, WindowLifetime
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.merging_windows import MergingWindows
from aflow.operators.windows.open_windows import LiveEntries, OpenWindows, stored_windows
from aflow.operators.windows.row_times import window_times
from aflow.operators.windows.separate_windows import RecordWindows, SeparateWindows
from aflow.operators.windows.staggers import staggers_of, stored_staggers
from aflow.operators.windows.window_contents import (
    EMPTY,
    FailedResult,
    KeyWindow,
    NotAdded,
    contents_for,
    distinguished,
)
from aflow.operators.windows.window_snapshots import WINDOW_ROWS, WindowSnapshots, timer_row
from aflow.operators.windows.window_state import FunctionStates
from aflow.state.backend import WindowTimerQueue
from aflow.state.gradual_capture import GradualCaptures
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import CapturedRows, KeyedRows, merge_rows
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import declared_states


class WindowOperator(ProcessFunctionOperator[WindowFunction[Any, Any, Any]]):
    """Executes a ``WindowLogic`` that ``check_logic`` accepts, one key and window after the other."""

    def __init__(self, logic: WindowLogic) -> None:
        super().__init__(AsWindowed(logic.apply) if logic.function is None else logic.function)
        self._logic = logic
        self.on_error = logic.on_error
        self._contents = contents_for(logic)
        self._to_close: Final = ExitStack()
        #: The windows with ``OnDisk``; None: all are in memory.
        self._disk: DiskWindows | None = None
        self._gradual = GradualCaptures()

    def open(self, context: OperatorContext) -> None:
        logic = self._logic
        specs = declared_states(self._function)
        self._changed = ChangedKeys()
        self._lifetime = WindowLifetime(logic.assigner.domain, logic.lateness)
        #: The watermarks of key groups that a restore found ahead of this subtask.
        self._ahead = no_group_ahead(context)
        kinds = self._changed.kinds
        self._disk = disk_windows(context, logic, kinds, self._contents, self._lifetime)
        if self._disk is not None:
            self._to_close.callback(self._disk.rows.close)
        create = _in_memory if self._disk is None else self._disk.timers
        self._timers = DomainTimers[WindowTimerQueue](context.alarm, create, timer_row)
        self._trigger_context = WindowTriggerContext(
            self._lifetime, context.clock, self._timers.queues, clocked=context.clocked
        )
        self._staggers = staggers_of(logic.assigner, context)
        self._windows = self._new_windows()
        self._states = FunctionStates(
            context, logic.key_type, specs, merging=logic.assigner.merging
        )
        self._to_close.callback(self._states.close)
        self._snapshots = WindowSnapshots(
            self._states.backend.key_codec,
            self._contents,
            self._windows,
            self._lifetime,
            self._timers,
            self._gradual,
            kinds,
            self._disk,
        )
        self._to_close.callback(self._gradual.complete)
        #: Buffered results, and their timestamps.
        self._values: list[Any] = []
        self._times: list[Timestamp] = []
        super().open(context)
        self._function_context: WindowFunctionContext[Any] = WindowFunctionContext(
            context,
            lifetime=self._lifetime,
            sides=self._sides,
            backend=self._states.backend,
            specs=specs,
            window_state=self._states.of_windows,
        )

    def process(self, batch: Batch[Any]) -> None:
        keys = self.keys_of(batch)
        if self._gradual:
            save_keys(self._gradual, keys)
        self._states.touch_batch(self, batch)
        if self._disk is not None:
            self._windows.load(keys, self._record_times(batch))
        self._sides.begin()
        try:
            if self._ahead:
                self._add_restored(batch, keys)
            else:
                self._add(batch, keys, self._windows.windows_of)
        finally:
            self._flush_outputs()
        self._changed.add(keys)
        self._windows.evict()

    def close(self) -> None:
        with self._to_close:
            super().close()

    def _add_restored(self, batch: Batch[Any], keys: Sequence[Hashable]) -> None:
        """Add records one by one, each at the watermark of its key."""
        lifetime = self._lifetime
        try:
            for index, key in enumerate(keys):
                lifetime.watermark = self._ahead.of(key, self.watermark)
                one = batch.pick([index])
                self._add(one, (key,), self._windows.windows_at_key_watermark)
        finally:
            lifetime.watermark = self.watermark

    def _add(self, batch: Batch[Any], keys: Sequence[Hashable], windows_of: RecordWindows) -> None:
        """Add records to their windows, and apply the results of the trigger."""
        # Hot path: the list of a record's windows is the only object made for it.
        add, ask = self._contents.add, self._logic.trigger.on_element
        if not isinstance(self.on_error, Fail):
            add = distinguished(add)
        trigger_context, late_until = self._trigger_context, self._lifetime.late
        proceed = TriggerResult.CONTINUE
        moments = self._record_times(batch)
        late: list[int] = []
        one: KeyWindow | None = None
        left = iter(batch.values)
        records = zip(left, keys, moments, strict=False)
        while True:
            try:
                for value, key, time in records:
                    one = None
                    for one in windows_of(key, value, time):
                        trigger_context.at = one
                        one.held = add(one.held, value, time)
                        decision = ask(value, time, one.window, trigger_context)
                        if decision is not proceed:
                            self._apply(decision, one)
                            if one.cleanup is None:
                                self._windows.discard_if_empty(one)
                    if one is None and time <= late_until:
                        late.append(self.index_of(batch, left))
                break
            except NotAdded as exc:
                self.settle(exc.cause, batch, self.index_of(batch, left))
                if one is not None and one.cleanup is None:
                    self._windows.discard_if_empty(one)
            except RAISED as exc:
                raise self._record_failure(exc, batch, self.index_of(batch, left), one) from exc
        self._emit_late(batch, late)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs repeat watermarks
        earliest = self._timers.queues[TimeDomain.EVENT].earliest
        if timestamp == MAX_TIMESTAMP or (earliest is not None and earliest <= timestamp):
            self.pieces.run(self._fire_until(timestamp))
        else:
            self._reach(timestamp)

    def _fire_until(self, timestamp: Timestamp) -> Iterator[int]:
        """Fire all event timers up to the watermark ``timestamp``, in pieces, and emit it."""
        yield from self._fire_timers(TimeDomain.EVENT, timestamp, timestamp)
        if timestamp == MAX_TIMESTAMP and self._lifetime.domain is TimeDomain.EVENT:
            yield from self._clean_up_kept()
        self._reach(timestamp)

    def _reach(self, timestamp: Timestamp) -> None:
        """Emit the watermark ``timestamp``."""
        self._lifetime.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)
        super().on_watermark(timestamp)

    def on_processing_time(self, now: Timestamp) -> None:
        self._timers.on_alarm()
        self.pieces.run(self._fire_timers(TimeDomain.PROCESSING, now, self.watermark))

    def capture(self, *, changes: bool) -> CapturedRows:
        """Return all state or the changes. Raises ``CheckpointError`` for values that cannot be encoded."""
        self._gradual.complete()
        rows = self._captured_rows(self._changed.take(changes=changes))
        timers = self._timers.capture(changes=rows.keys is not None)
        if timers is None or not self._changed.trusted(rows):
            del rows  # otherwise it would be completed at once
            return self.capture(changes=False)
        return CapturedRows(
            self._states.key_codec,
            rows,
            timers,
            self._operator_state(),
            more=self._timers.gather,
        )

    def _captured_rows(self, keys: set[Hashable] | None) -> KeyedRows:
        """Return the rows of ``keys``, or of all keys if there are as many changes."""
        states = self._states.capture(changes=keys is not None)
        if any(part.keys is None for part in states):
            keys = None
        if keys is not None and states:
            # State of a key may have expired. The second part has other keys: pairs of key and window.
            keys.update(states[0].keys or ())
        windows = self._snapshots.capture(keys)
        if windows.keys is None and any(part.keys is not None for part in states):
            states = []  # otherwise it would be completed at once
            states = self._states.capture(changes=False)
        return merge_rows([windows, *states])

    def _operator_state(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the operator state."""
        outlived = len(self._windows) > 0 and not isinstance(self._logic.assigner, GlobalWindows)
        groups = self.context.key_groups
        watermark = self._ahead.stored(self.watermark, groups, outlived=outlived)
        return {**watermark, **stored_staggers(self._staggers), **self._snapshots.kind()}

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Continue with the smallest watermark of the former subtasks."""
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        self._lifetime.watermark = self.watermark
        if self._staggers is not None:
            self._staggers.restore(snapshot)
        yield from self._states.restore_in_pieces(snapshot.keyed)
        for keys in self._snapshots.restore_in_pieces(snapshot):
            self._changed.observe(keys)
            self._windows.evict()
            yield
        self._changed.begin()

    def readable_state(self) -> ReadableState:
        key_codec = self._states.backend.key_codec
        return OpenWindows(LiveEntries(self._windows), key_codec, self._contents.seen)

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        key_codec = key_group_codec(context, self._logic.key_type)
        return stored_windows(snapshot.keyed, WINDOW_ROWS, key_codec, self._contents)

    def row_times(self) -> RowTimes | None:
        has_states = bool(declared_states(self._function))
        return window_times(self._lifetime, WINDOW_ROWS, has_states=has_states)

    def size(self) -> StateSize:
        windows = sum(one.entries for one in self._windows)
        return StateSize(
            entries=windows + self._windows.entries + self._function_context.entries,
            event_timers=len(self._timers.queues[TimeDomain.EVENT]),
            processing_timers=len(self._timers.queues[TimeDomain.PROCESSING]),
        )

    def _new_windows(self) -> SeparateWindows | MergingWindows:
        logic, lifetime = self._logic, self._lifetime
        timers = self._timers.queues[lifetime.domain]
        if not logic.assigner.merging:
            return SeparateWindows(logic.assigner, lifetime, timers, self._staggers, self._disk)
        return MergingWindows(
            logic.assigner,
            lifetime,
            timers,
            logic.trigger,
            self._trigger_context,
            self._contents.merge,
            self._disk,
        )

    def _record_times(self, batch: Batch[Any]) -> Iterable[Timestamp]:
        """Return the time of each record for windows and triggers."""
        if self._lifetime.domain is TimeDomain.PROCESSING:
            return repeat(self.context.clock.now())
        if batch.timestamps is None and isinstance(self._logic.assigner, GlobalWindows):
            return repeat(MIN_TIMESTAMP)  # all times are in the same window
        return self.event_times_of(batch)

    def _fire_timers(
        self, domain: TimeDomain, now: Timestamp, watermark: Timestamp
    ) -> Iterator[int]:
        """Call the trigger for each due timer, and clean up the windows at their clean-up time, in pieces."""
        yield from self._timers.gather_slices()
        lifetime, ahead = self._lifetime, self._ahead
        lifetime.watermark = watermark
        self._sides.begin()
        fired, limit = 0, self.pieces.limit  # of this piece
        for at, some in self._take_due(domain, now):
            if not some:
                yield 0
                continue
            self._mark_changed(some)
            for one in some:
                if ahead:
                    lifetime.watermark = max(watermark, ahead.of(one.key, watermark))
                self._fire_timer(domain, at, one)
                fired += 1
                if fired >= limit:
                    self._flush()
                    self._sides.emit(self.output)
                    yield fired
                    self._sides.begin()
                    fired, limit = 0, self.pieces.limit
        lifetime.watermark = watermark
        self._flush_outputs()

    def _take_due(
        self, domain: TimeDomain, now: Timestamp
    ) -> Iterator[tuple[Timestamp, list[KeyWindow]]]:
        """Take the due timers, and yield their time and some of their windows; no windows while a list is prepared."""
        for at, window, keys in self._timers.queues[domain].due(now):
            if keys is not None:
                yield at, self._windows.find(window, keys)
                self._windows.evict()
                continue
            for some in self._windows.slices_in(window):
                yield at, some

    def _fire_timer(self, domain: TimeDomain, at: Timestamp, one: KeyWindow) -> None:
        """Call the trigger for a timer of ``one``, and clean up the window if that is its clean-up time."""
        trigger, trigger_context = self._logic.trigger, self._trigger_context
        ask = trigger.on_event_time if domain is TimeDomain.EVENT else trigger.on_processing_time
        trigger_context.at = one
        cleanup = domain is self._lifetime.domain and one.cleanup == at
        one.timers -= not cleanup
        try:
            decision = ask(at, one.window, trigger_context)
            if decision is not TriggerResult.CONTINUE:
                self._apply(decision, one, last=cleanup)
            if cleanup:
                self._clean_up(one)
        except RAISED as exc:
            raise self._timer_failure(exc, f"{domain.value} timer", at, one) from exc
        if one.cleanup is None:
            self._windows.discard_if_empty(one)

    def _mark_changed(self, some: list[KeyWindow]) -> None:
        """Record that the keys of windows whose timers fire change."""
        if self._changed.noted or self._gradual:
            keys = [one.key for one in some]
            self._gradual.save(keys)
            self._changed.add(keys)
        self._states.touch(some)

    def _apply(self, decision: TriggerResult, one: KeyWindow, *, last: bool = False) -> None:
        """Apply the trigger's result to ``one``; ``last`` if the window is cleaned up next."""
        if not isinstance(decision, TriggerResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{type(self._logic.trigger).__name__} returned {shown(decision)}, not a TriggerResult"
            )
        if decision.fires and one.held is not EMPTY:
            last = last or decision.purges
            try:
                self._contents.fire(one, self._call_function, self._trigger_context, last=last)
            except FailedResult as exc:
                self._function_context.enter(one)
                one.firing += 1
                self._settle_firing(exc.cause, exc.contents, one)
                self._function_context.leave()
        if decision.purges:
            one.held = EMPTY
        if one.cleanup is None and one.held is EMPTY:
            one.firing = 0

    def _call_function(self, value: Any) -> None:
        """Call the window function for the key and window of the trigger context."""
        one = self._trigger_context.at
        one.firing += 1
        self._function_context.enter(one)
        mark = self._sides.mark()
        try:
            self._take(self._function.process(value, self._function_context), one)
        except RAISED as exc:
            del self._values[len(self._times) :]
            self._sides.retract_to(mark)
            self._settle_firing(exc, value, one)
        self._function_context.leave()

    def _take(self, results: Iterable[Any] | None, one: KeyWindow) -> None:
        """Buffer the results of a firing of ``one``."""
        if results is None:
            return
        self._values.extend(results if type(results) in TAKEN else iterable(results))
        missing = len(self._values) - len(self._times)
        self._times.extend([one.window.max_timestamp] * missing)

    def _settle_firing(self, cause: BaseException, contents: object, one: KeyWindow) -> None:
        """Apply ``on_error`` to a ``Windowed`` with the contents on which a function raised ``cause``.

        Raises ``cause`` if no policy applies: the caller describes it.
        """
        if isinstance(self.on_error, Fail) or not is_of_record(cause):
            raise cause
        failed = Windowed(one.key, one.window, contents, one.firing)
        at = one.window.max_timestamp
        error = contents_failure(self.name, cause, one.key, one.window)
        for replaced in self.settle_record(cause, error, failed, at):
            if isinstance(self._function, AsWindowed):
                self._take((Windowed(one.key, one.window, replaced, one.firing),), one)
            else:
                self._take(replaced, one)

    def _clean_up(self, one: KeyWindow) -> None:
        """Clear all state of ``one``."""
        self._logic.trigger.clear(one.window, self._trigger_context)
        self._function_context.enter(one)
        self._function.on_clear(self._function_context)
        self._function_context.leave()
        if self._states.of_windows is not None:
            self._states.of_windows.clear(one.key, one.window)
        self._windows.remove(one)

    def _clean_up_kept(self) -> Iterator[int]:
        """Clean up the windows that were kept beyond the end of event time, except global ones, in pieces."""
        for some in self._windows.kept():
            if not some:
                yield 0
                continue
            self._sides.begin()
            self._mark_changed(some)
            for one in some:
                self._trigger_context.at = one
                try:
                    self._clean_up(one)
                except RAISED as exc:
                    raise self._timer_failure(exc, "end of event time", MAX_TIMESTAMP, one) from exc
            self._flush_outputs()
            yield 0

    def _emit_late(self, batch: Batch[Any], late: list[int]) -> None:
        self.emit_side(LATE, batch, late)

    def _flush_outputs(self) -> None:
        self._timers.arm()
        self._flush()
        self._sides.emit(self.output)

    def _flush(self) -> None:
        values, times = self._values, self._times
        self._values, self._times = [], []
        self.emit_all(values, times)

    def _record_failure(
        self, cause: BaseException, batch: Batch[Any], index: int, one: KeyWindow | None
    ) -> OperatorError:
        error = self.failure_at(cause, batch, index)
        return error if one is None else in_window(error, one)

    def _timer_failure(
        self, cause: BaseException, timer: str, at: Timestamp, one: KeyWindow
    ) -> OperatorError:
        return timer_failure(self.name, cause, f"{timer} at {at} ({readable(at)})", at, one)


def _in_memory(domain: TimeDomain, kinds: KeyKinds) -> WindowTimerQueue:
    return WindowTimers[Hashable]()
