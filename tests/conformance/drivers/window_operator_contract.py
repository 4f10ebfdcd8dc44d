"""window_operator_contract.json: calls of the operator to a scripted assigner and trigger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.merging_window_set import Merged
from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.model.tags import Tag
from aflow.model.time import MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.specs import ValueState
from aflow.testing import At, OperatorHarness
from tests.conformance.driver import NOTHING, Driver, Outcome, call, number
from tests.conformance.scenarios import Json, UnknownWord

Record = tuple[int, int]
"""Key and value."""

_SIDES: Final = (Tag[int]("one"), Tag[int]("other"))

_FIRE_AT_0: Final = "fire for timestamp 0, continue otherwise"

_ON_MERGE: Final = ("", "registers timer 0 and sets trigger state")
_FUNCTIONS: Final = (
    "",
    "emits the value to two side outputs",
    "sets per-window value state on process, clears it on clear",
    "emits Hallo then Ciao",
    "touches per-window state",
)


@dataclass
class Scripted(WindowAssigner[Record]):
    """Assigns what the scenario says next."""

    of_domain: TimeDomain
    merges: bool
    calls: int = 0
    windows: list[TimeWindow] = field(default_factory=list[TimeWindow])
    merged: list[Merged] = field(default_factory=list[Merged])
    asked: list[Sequence[TimeWindow]] = field(default_factory=list[Sequence[TimeWindow]])

    @property
    def domain(self) -> TimeDomain:
        return self.of_domain

    @property
    def merging(self) -> bool:
        return self.merges

    def merge(self, windows: Sequence[TimeWindow]) -> Sequence[Merged]:
        self.asked.append(windows)
        return self.merged

    def assign(self, value: Record, timestamp: Timestamp) -> Sequence[TimeWindow]:
        self.calls += 1
        return self.windows


@dataclass
class Obedient(Trigger[Record]):
    """A trigger that returns results, and registers and deletes timers, as scripted; it records its calls."""

    domain: TimeDomain
    merging: str
    clears_timer: int | None
    element: dict[str, Any] = field(default_factory=lambda: {"returns": "continue"})
    time: dict[str, Any] = field(default_factory=lambda: {"returns": "continue"})
    elements: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    times: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    on_merges: list[list[int]] = field(default_factory=list[list[int]])
    clears: int = 0

    @property
    def merges(self) -> bool:
        return True

    def on_element(
        self, value: Record, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        self.elements.append({"value": value[1], "ts": timestamp, "window": _pair(window)})
        return self._do(window, ctx, **self.element)

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self._on_time(TimeDomain.EVENT, at, window, ctx)

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self._on_time(TimeDomain.PROCESSING, at, window, ctx)

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        self.on_merges.append(_pair(window))
        if self.merging:
            self._set(ctx, 0)
            ctx.put("state", "hello")

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self.clears += 1
        if self.clears_timer is not None:
            self._delete(ctx, self.clears_timer)
            ctx.drop("state")

    def _on_time(
        self, domain: TimeDomain, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        assert domain is self.domain, "a timer of the other domain"
        self.times.append({"ts": at, "window": _pair(window)})
        does = dict(self.time)
        if does.pop("fires_at", None) == at:
            does["returns"] = "fire"
        return self._do(window, ctx, **does)

    def _do(
        self,
        window: TimeWindow,
        ctx: TriggerContext,
        *,
        returns: str,
        register_timer: int | str | None = None,
        delete_timer: int | None = None,
        sets_trigger_state: bool = False,
    ) -> TriggerResult:
        if register_timer is not None:
            self._set(ctx, window.end if register_timer == "window end" else number(register_timer))
        if delete_timer is not None:
            self._delete(ctx, delete_timer)
        if sets_trigger_state:
            ctx.put("state", "hello")
        return TriggerResult[returns.upper()]

    def _set(self, ctx: TriggerContext, at: Timestamp) -> None:
        event = self.domain is TimeDomain.EVENT
        (ctx.set_event_timer if event else ctx.set_processing_timer)(at)

    def _delete(self, ctx: TriggerContext, at: Timestamp) -> None:
        event = self.domain is TimeDomain.EVENT
        (ctx.delete_event_timer if event else ctx.delete_processing_timer)(at)


class Recording(WindowFunction[int, list[Record], str]):
    """Writes down what it is called with, and does what the scenario's function does."""

    state = ValueState("state", of=str)

    def __init__(self, what: str, calls: list[dict[str, object]]) -> None:
        self._what = what
        self._calls = calls

    def process(self, value: list[Record], ctx: WindowContext[int]) -> Iterable[str]:
        elements = [element for _, element in value]
        self._calls.append({"key": ctx.key, "window": _pair(ctx.window), "elements": elements})
        if self._what == "emits the value to two side outputs":
            for tag in _SIDES:
                for element in elements:
                    ctx.side(tag, element)
        elif self._what == "sets per-window value state on process, clears it on clear":
            ctx.window_state(self.state).set("hello")
        elif self._what == "touches per-window state":
            ctx.window_state(self.state)
        elif self._what == "emits Hallo then Ciao":
            return ["Hallo", "Ciao"]
        return []

    def on_clear(self, ctx: WindowContext[int]) -> None:
        if self._what == "sets per-window value state on process, clears it on clear":
            ctx.window_state(self.state).clear()


class WindowOperatorContract(Driver):
    """One operator, whose windows and firings the scenario defines."""

    BESIDE = frozenset({"assigned_windows", "merge", "new_trigger"})

    def __init__(
        self,
        *,
        allowed_lateness: int,
        time_domain: str = "event",
        merging: bool = False,
        assigner: str = "scripted",
        late_side_output: bool = True,
        function: str = "",
        trigger_on_merge: str = "",
        trigger_clear: str = "",
    ) -> None:
        if assigner not in ("scripted", "global"):
            raise UnknownWord(f"there is no {assigner} assigner")
        if trigger_on_merge not in _ON_MERGE or function not in _FUNCTIONS or not late_side_output:
            raise UnknownWord(f"what do {trigger_on_merge!r} and {function!r} do?")
        self._global = assigner == "global"
        self._domain = TimeDomain[time_domain.upper()]
        self._assigner = Scripted(self._domain, merging)
        self._trigger = Obedient(self._domain, trigger_on_merge, _cleared(trigger_clear))
        self._calls: list[dict[str, object]] = []
        logic = WindowLogic(
            assigner=self._assigner,
            trigger=self._trigger,
            lateness=allowed_lateness,
            function=Recording(function, self._calls),
        )
        self._step: OperatorHarness[Record, str] = OperatorHarness(
            lambda: WindowOperator(logic), key=lambda record: record[0], start=MIN_TIMESTAMP
        )

    def do_snapshot_and_restore(
        self, snapshot_and_restore: bool, new_trigger: Mapping[str, str]
    ) -> None:
        """The trigger is another one from then on, which was not asked anything."""
        assert snapshot_and_restore
        if set(new_trigger) != {"on_time", "clear"} or new_trigger["on_time"] != _FIRE_AT_0:
            raise UnknownWord(f"what does a trigger that is {new_trigger!r} do?")
        trigger = self._trigger
        trigger.clears_timer = _cleared(new_trigger["clear"])
        trigger.time = {"returns": "continue", "fires_at": 0}
        trigger.element = {"returns": "continue"}
        trigger.clears, trigger.times, trigger.elements = 0, [], []
        self._step.restart()

    def do_watermark(self, ts: int) -> None:
        self._step.watermark(ts)

    def do_advance_time(self, to: int | str) -> None:
        if self._domain is TimeDomain.EVENT:
            self._step.watermark(number(to))
        else:
            self._step.advance_processing_time(number(to))

    def do_trigger_on_element(self, **does: Any) -> None:
        self._trigger.element = does

    def do_trigger_on_time(self, **does: Any) -> None:
        self._trigger.time = does

    def do_element(
        self,
        key: int,
        value: int,
        ts: int,
        *,
        assigned_windows: list[list[int]],
        merge: Json | None = None,
    ) -> Outcome:
        windows = [TimeWindow(start, end) for start, end in assigned_windows]
        self._assigner.windows = [GLOBAL_WINDOW] if self._global else windows
        self._assigner.merged = [] if merge is None else [call(_merged, merge)]
        try:
            self._step.push((key, value), ts)
        except OperatorError as exc:
            if isinstance(exc.__cause__, FlowDefinitionError):
                return {"raises": "unsupported"}
            raise
        return NOTHING

    def see_late_output(self) -> list[Json]:
        late = self._step.side(Tag[Record](LATE))
        return [{"value": record.value[1], "ts": record.timestamp} for record in late]

    def see_side_outputs(self) -> list[Json]:
        sides = [record for tag in _SIDES for record in self._step.side(tag)]
        return [{"value": record.value, "ts": record.timestamp} for record in sides]

    def see_output(self) -> list[Json]:
        records = [one for one in self._step.output if isinstance(one, At)]
        return [{"value": record.value, "ts": record.timestamp} for record in records]

    def see_assigner_merge_calls(self) -> int:
        return len(self._assigner.asked)

    def see_first_merge_argument(self) -> list[list[int]]:
        return [_pair(window) for window in self._assigner.asked[0]]

    def see_assigner_calls(self) -> int:
        return self._assigner.calls

    def see_function_calls(self, expected: object) -> object:
        return len(self._calls) if isinstance(expected, int) else self._calls

    def see_trigger_on_element_calls(self) -> list[dict[str, object]]:
        return self._trigger.elements

    def see_trigger_on_time(self, expected: Sequence[Json]) -> list[dict[str, object]]:
        """With the members that are expected."""
        words = {word for each in expected for word in each} or {"ts", "window"}
        return [{word: each[word] for word in words} for each in self._trigger.times]

    def see_trigger_on_time_calls(self) -> int:
        return len(self._trigger.times)

    def see_trigger_on_merge(self) -> list[list[int]]:
        return self._trigger.on_merges

    def see_trigger_clear_calls(self) -> int:
        return self._trigger.clears

    def see_keyed_state_entries(self) -> int:
        return self._step.size.entries

    def see_timers(self) -> int:
        event = self._domain is TimeDomain.EVENT
        return self.see_event_time_timers() if event else self.see_processing_time_timers()

    def see_timers_other_domain(self) -> int:
        event = self._domain is TimeDomain.EVENT
        return self.see_processing_time_timers() if event else self.see_event_time_timers()

    def see_event_time_timers(self) -> int:
        return self._step.size.event_timers

    def see_processing_time_timers(self) -> int:
        return self._step.size.processing_timers


def _pair(window: TimeWindow) -> list[int]:
    return [window.start, window.end]


def _merged(windows: list[list[int]], into: list[int]) -> Merged:
    return Merged(TimeWindow(*into), [TimeWindow(*window) for window in windows])


def _cleared(what: str) -> int | None:
    """The timer that the trigger's ``clear`` deletes, with its state; None if it does nothing."""
    if not what:
        return None
    found = re.fullmatch(r"deletes timer (\d+) and trigger state", what)
    if found is None:
        raise UnknownWord(f"what does a trigger clear that {what!r}?")
    return int(found[1])
