"""window_operator.json: whole window steps, as `window_operator` chooses their operators."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.trigger import Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    Count,
    EventTime,
    ProcessingTime,
    Purging,
)
from aflow.model.codecs import PLAIN, Codec
from aflow.model.elements import Watermark
from aflow.model.tags import Tag
from aflow.model.time import MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.factory import check_logic, window_operator
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_snapshots import WINDOW_ROWS
from aflow.state.layouts import Many
from aflow.testing import At, OperatorHarness
from aflow.testing.harness import Element
from tests.conformance.driver import Driver, call
from tests.conformance.scenarios import Json, UnknownWord

Record = tuple[str, int]
"""Key and value."""

_END_OF_WINDOW: Final = "max timestamp of the window of the element"

_SUM: Final = Accumulation(
    lambda record: record[1],
    lambda total, record: total + record[1],
    merge=lambda one, other: one + other,
)


class PointSessions(WindowAssigner[Record]):
    """Sessions of 3 s, but for those of value 33, which are no longer than a moment."""

    def __init__(self, gap: int, rule: str) -> None:
        if not rule.startswith("value 33 gets the window [ts, ts]; other values [ts, ts+gap]"):
            raise UnknownWord(f"what are sessions by the rule {rule!r}?")
        self._gap = gap

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: Record, timestamp: Timestamp) -> Sequence[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + (0 if value[1] == 33 else self._gap))]


def _gap_of(gap: str) -> DynamicSessionWindows[Record]:
    """Dynamic sessions with the only gaps that the scenarios have."""
    if gap != "key1: 3000; key2 with value 10: 1000; key2 otherwise: 2000":
        raise UnknownWord(f"what is a gap of {gap!r}?")

    def gap_of(record: Record) -> int:
        key, value = record
        return 3000 if key == "key1" else 1000 if value == 10 else 2000

    return DynamicSessionWindows(gap_of)


def _gap_of_clock(gap: str) -> DynamicSessionWindows[Record]:
    return replace(_gap_of(gap), domain=TimeDomain.PROCESSING)


class FiresAlways(Trigger[Record]):
    """Fires on every element and at the window's end, and never purges."""

    def on_element(
        self, value: Record, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.set_event_timer(window.max_timestamp)
        return TriggerResult.FIRE

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        at_end = at == window.max_timestamp
        return TriggerResult.FIRE if at_end else TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_timer(window.max_timestamp)


class OwnCleanup(Trigger[Record]):
    """The default trigger, with a timer of its own at the clean-up time."""

    def __init__(self, lateness: int) -> None:
        self._inner = EventTime[Record]()
        self._lateness = lateness

    def on_element(
        self, value: Record, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.set_event_timer(window.max_timestamp + self._lateness)
        return self._inner.on_element(value, timestamp, window, ctx)

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self._inner.on_event_time(at, window, ctx)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self._inner.clear(window, ctx)
        ctx.delete_event_timer(window.max_timestamp + self._lateness)


class PassThrough(WindowFunction[str, list[Record], Windowed[str, int]]):
    """Each record as it is."""

    def process(self, value: list[Record], ctx: WindowContext[str]) -> list[Windowed[str, int]]:
        return [Windowed(ctx.key, ctx.window, number) for _, number in value]


class EmitsNothing(WindowFunction[str, list[Record], Windowed[str, int]]):
    """Nothing."""

    def process(self, value: list[Record], ctx: WindowContext[str]) -> None:
        return None


_ASSIGNERS: Final[Mapping[str, Callable[..., WindowAssigner[Any]]]] = {
    "tumbling_event_time": TumblingWindows,
    "tumbling_processing_time": partial(TumblingWindows, domain=TimeDomain.PROCESSING),
    "sliding_event_time": SlidingWindows,
    "sliding_processing_time": partial(SlidingWindows, domain=TimeDomain.PROCESSING),
    "event_time_session": SessionWindows,
    "processing_time_session": partial(SessionWindows, domain=TimeDomain.PROCESSING),
    "dynamic_event_time_session": _gap_of,
    "dynamic_processing_time_session": _gap_of_clock,
    "point_session": PointSessions,
}

_TRIGGERS: Final[Mapping[str, Callable[[Any, int], Trigger[Any]]]] = {
    "event_time": lambda _, lateness: EventTime(),
    "processing_time": lambda _, lateness: ProcessingTime(),
    # At the end of the input the watermark reaches the end of time, and with it the end of a global window.
    "end_of_stream": lambda _, lateness: EventTime(),
    "count": lambda size, lateness: Count(size),
    "continuous_event_time": lambda every, lateness: ContinuousEventTime(
        timedelta(milliseconds=every)
    ),
    "purging": lambda inner, lateness: Purging(trigger_of(inner, lateness)),
    "event_time accumulating; also registers and clears an extra timer at window max timestamp + lateness": (
        lambda _, lateness: OwnCleanup(lateness)
    ),
    "fires on every element and at window end, never purges": lambda _, lateness: FiresAlways(),
}


class WindowOperators(Driver):
    """One window step."""

    def __init__(
        self,
        *,
        assigner: Json | str,
        trigger: Json | str,
        function: str,
        allowed_lateness: int = 0,
        window_state: str = "list",
        late_side_output: bool = False,
        evictor: Evictor[Record] | None = None,
    ) -> None:
        self._assigner = assigner_of(assigner)
        #: The last element and its timestamp.
        self._last: tuple[Record, int] | None = None
        logic = WindowLogic(
            assigner=self._assigner,
            trigger=trigger_of(trigger, allowed_lateness),
            lateness=allowed_lateness,
            evictor=evictor,
            **_function(function, window_state),
        )
        check_logic(logic)
        self._bounds = function == "sum with window bounds"
        self._step: OperatorHarness[Record, Windowed[str, int]] = OperatorHarness(
            lambda: window_operator(logic), key=lambda record: record[0], start=MIN_TIMESTAMP
        )

    def do_element(self, key: str, value: int, ts: int | None = None) -> None:
        if ts is not None:
            self._last = (key, value), ts
        self._step.push((key, value), ts)

    def do_watermark(self, ts: int | str) -> None:
        self._step.watermark(self._moment(ts))

    def do_advance_processing_time(self, to: int) -> None:
        self._step.advance_processing_time(to)

    def do_snapshot_and_restore(self, really: bool) -> None:
        assert really
        self._step.restart()

    def see_new_output(self, expected: list[Json]) -> list[Json]:
        return self._like(expected, self._step.take())

    def see_output(self, expected: list[Json]) -> list[Json]:
        return self._like(expected, self._step.output)

    def see_late_output(self) -> list[Json]:
        late = self._step.side(Tag[Record](LATE))
        return [{"key": one.value[0], "value": one.value[1], "ts": one.timestamp} for one in late]

    def see_window_state_contents(self) -> list[Json]:
        snapshot = self._step.snapshot()
        assert snapshot is not None
        entries = [
            entry for names in snapshot.keyed.values() for entry in names.get(WINDOW_ROWS, ())
        ]
        return [{"key": key, "value": value} for entry in entries for key, value in _records(entry)]

    def _like(
        self, expected: list[Json], elements: Sequence[Element[Windowed[str, int]]]
    ) -> list[Json]:
        """``expected`` itself if ``elements`` are the same, in any order between two watermarks; else the elements."""
        found = [self._shown(element) for element in elements]
        wanted = [
            {
                name: self._moment(part) if name in ("ts", "watermark") else part
                for name, part in each.items()
            }
            for each in expected
        ]
        return expected if _segments(found) == _segments(wanted) else found

    def _moment(self, words: int | str) -> int:
        """A timestamp, which may be that of the end of the window of the last element."""
        if isinstance(words, int):
            return words
        if words != _END_OF_WINDOW:
            raise UnknownWord(f"the moment {words!r}")
        assert self._last is not None
        (window,) = self._assigner.assign(*self._last)
        return window.max_timestamp

    def _shown(self, element: Element[Windowed[str, int]]) -> Json:
        if isinstance(element, Watermark):
            return {"watermark": element.timestamp}
        assert isinstance(element, At)
        result = element.value
        shown = {"key": result.key, "value": result.value, "ts": element.timestamp}
        bounds = {"start": result.window.start, "end": result.window.end}
        return {**shown, **bounds} if self._bounds else shown


def assigner_of(words: Json | str) -> WindowAssigner[Any]:
    """The assigner that a scenario describes."""
    if words == "global":
        return GlobalWindows()
    name, parameters = _name_and_argument(words)
    if name not in _ASSIGNERS:
        raise UnknownWord(f"there are no {name} windows")
    made: WindowAssigner[Any] = call(_ASSIGNERS[name], parameters)
    return made


def trigger_of(words: Json | str, lateness: int = 0) -> Trigger[Any]:
    """The trigger that a scenario describes."""
    name, argument = _name_and_argument(words)
    if name not in _TRIGGERS:
        raise UnknownWord(f"there is no trigger {name!r}")
    return _TRIGGERS[name](argument, lateness)


def _name_and_argument(words: Json | str) -> tuple[str, Any]:
    if isinstance(words, str):
        return words, None
    ((name, argument),) = words.items()
    return name, argument


def _function(name: str, window_state: str) -> dict[str, Any]:
    if window_state not in ("list", "reduce"):
        raise UnknownWord(f"how is {window_state!r} kept?")
    reduced = window_state == "reduce"
    match name:
        case "sum" | "sum with window bounds":
            return {"accumulation": _SUM} if reduced else {"apply": _sum_of}
        case "pass through":
            # A reduced window passes on what it has come to.
            return {"accumulation": _SUM} if reduced else {"function": PassThrough()}
        case "emits nothing" if not reduced:
            return {"function": EmitsNothing()}
        case _:
            raise UnknownWord(f"what does a function do that {name!r}?")


def _sum_of(records: list[Record]) -> int:
    return sum(value for _, value in records)


def _segments(elements: Sequence[Json]) -> list[list[str]]:
    """Records sorted, watermarks in their place."""
    segments: list[list[str]] = [[]]
    for element in elements:
        text = json.dumps(element, sort_keys=True)
        if "watermark" in element:
            segments += [[text], []]
        else:
            insort(segments[-1], text)
    return segments


def _records(entry: tuple[bytes, bytes]) -> list[Record]:
    """Return the state of a key in a window, as `WindowSnapshots` stores it."""
    _, _, _, held = cast("tuple[object, object, object, bytes | None]", PLAIN.decode(entry[1]))
    return [] if held is None else Many(cast("Codec[Record]", PLAIN)).decode(held)
