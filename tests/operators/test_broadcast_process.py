"""A function of a stream and of the control records that every subtask gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError, OperatorError, RestoreError
from aflow.model.key_groups import key_group, subtask_of
from aflow.model.tags import Tag
from aflow.operators.base import StateSize
from aflow.operators.broadcast_process import (
    BroadcastContext,
    BroadcastProcess,
    BroadcastProcessOperator,
    ControlContext,
    check_broadcast_process,
)
from aflow.operators.keyed_function import KeyedProcess, check_keyed_process
from aflow.operators.process import check_process_function
from aflow.state.broadcast import BroadcastState, BroadcastView
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.state.specs import ValueState
from aflow.testing import At, Mode, TwoInputHarness, Watermark

REMOVED: Tag[str] = Tag("removed")


@dataclass(frozen=True)
class Rule:
    """``most`` is the limit of a name; None removes it."""

    name: str
    most: int | None


class Limits(BroadcastProcess[str, str, Rule, str]):
    """Emits a key with more records than its rule allows, and 10 ms later the number of its records."""

    rules = BroadcastState("rules", key=str, of=Rule)
    count = ValueState("count", of=int)

    def process(self, value: str, ctx: BroadcastContext[str]) -> Iterable[str]:
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        rule = ctx.state(self.rules).get(value)
        if rule is None or rule.most is None or count.get(0) <= rule.most:
            return []
        ctx.set_event_timer((ctx.timestamp or 0) + 10)
        return [f"{value} over {rule.most}"]

    def process_broadcast(self, value: Rule, ctx: ControlContext) -> Iterable[str] | None:
        rules = ctx.state(self.rules)
        if value.most is not None:
            rules.put(value.name, value)
        elif rules.remove(value.name):
            ctx.side(REMOVED, value.name)
        return [f"{len(rules)} rules"]

    def on_timer(self, at: int, ctx: BroadcastContext[str]) -> Iterable[str]:
        known = "known" if ctx.key in ctx.state(self.rules) else "unknown"
        yield f"{known} {ctx.key} came {ctx.state(self.count).get()} times"


Harness = TwoInputHarness[str, Rule, str]


def limits(mode: Mode = Mode.STRAIGHT, **place: Any) -> Harness:
    return TwoInputHarness(
        lambda: BroadcastProcessOperator(Limits()), left_key=str, mode=mode, **place
    )


@pytest.mark.parametrize("mode", Mode)
def test_records_are_processed_by_the_rules_of_control_records(mode: Mode) -> None:
    harness = limits(mode)

    harness.left("a", 1)
    harness.right(Rule("a", 1), 2)
    harness.left_batch(["a", "b"], [3, 4])
    harness.right(Rule("a", 5), 5)
    harness.left("a", 6)

    assert harness.output == [At("1 rules", 2), At("a over 1", 3), At("1 rules", 5)]
    assert harness.size == StateSize(entries=3, event_timers=1)


@pytest.mark.parametrize("mode", Mode)
def test_timers_fire_for_their_key_and_read_the_broadcast_state(mode: Mode) -> None:
    harness = limits(mode)

    harness.right_batch([Rule("a", 0), Rule("b", 0)])
    harness.left_batch(["a", "b"], [1, 2])
    harness.right(Rule("b", None), 3)
    harness.watermark(20)

    assert harness.values == [
        *("1 rules", "2 rules", "a over 0", "b over 0", "1 rules"),
        *("known a came 1 times", "unknown b came 1 times"),
    ]
    assert harness.side(REMOVED) == [At("b", 3)]


def test_a_silent_control_stream_holds_time_back_unless_it_is_idle() -> None:
    harness = limits()

    harness.left_watermark(10)
    waiting = harness.take()
    harness.right_idle()

    assert waiting == []
    assert harness.take() == [Watermark(10)]


def test_both_contexts_have_the_common_watermark() -> None:
    class Tell(BroadcastProcess[str, str, str, str]):
        def process(self, value: str, ctx: BroadcastContext[str]) -> list[str]:
            return [f"left {ctx.watermark}"]

        def process_broadcast(self, value: str, ctx: ControlContext) -> list[str]:
            return [f"right {ctx.watermark} {ctx.timestamp} {ctx.processing_time}"]

    first, second = (TwoInputHarness.of(Tell(), left_key=str, start=7) for _ in range(2))
    first.left_watermark(10)
    first.right_watermark(5)
    first.left("a")
    first.right("c", 3)
    snapshot = first.snapshot()
    assert snapshot is not None
    second.restore(snapshot)
    second.right("c")
    second.watermark(4)
    second.right("c")

    assert first.values == ["left 5", "right 5 3 7"]
    assert second.values == ["right 5 None 7", "right 5 None 7"]


# ---------------------------------------------------------------------- snapshots, other parallelism


def _of(name: str, harnesses: list[Harness]) -> Harness:
    return harnesses[subtask_of(key_group(name), 128, len(harnesses))]


def _subtasks(count: int) -> list[Harness]:
    return [limits(subtask=index, parallelism=count) for index in range(count)]


def _snapshots(harnesses: list[Harness]) -> list[OperatorSnapshot]:
    return [snapshot for one in harnesses if (snapshot := one.snapshot()) is not None]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 1), (3, 2)])
def test_every_subtask_of_another_parallelism_has_all_rules(before: int, after: int) -> None:
    names = [f"name {number}" for number in range(30)]
    old, new = _subtasks(before), _subtasks(after)
    for harness in old:
        harness.right_batch([Rule(name, 1) for name in names])
    for name in names:
        _of(name, old).left(name)
    snapshots = _snapshots(old)

    for harness in new:
        harness.restore(*snapshots)
    for name in names:
        _of(name, new).left(name)
    for harness in new:
        harness.right(Rule("another", 1))

    told = sorted(value for one in new for value in one.values)
    assert told == sorted([f"{name} over 1" for name in names] + ["31 rules"] * after)


def test_equal_copies_are_kept_once() -> None:
    old = _subtasks(3)
    for harness in old:
        harness.right(Rule("a", 1))

    merged = merge(_snapshots(old))

    assert len(merged.broadcast["rules"]) == 1


def test_of_copies_that_differ_all_subtasks_take_the_same() -> None:
    old, new = _subtasks(2), _subtasks(2)
    old[0].right(Rule("a", 1))
    old[1].right_batch([Rule("b", 1), Rule("c", 1)])
    snapshots = _snapshots(old)

    for harness in new:
        harness.restore(*snapshots)
        harness.right(Rule("a", 2))

    assert [harness.values for harness in new] == [["1 rules"], ["1 rules"]]


def _with_copies(*copies: bytes) -> OperatorSnapshot:
    harness = limits()
    harness.right(Rule("a", 1))
    (snapshot,) = _snapshots([harness])
    good = snapshot.broadcast["rules"]
    return replace(snapshot, broadcast={"rules": copies or good})


def test_a_copy_that_cannot_be_read_is_passed_over() -> None:
    good = _with_copies().broadcast["rules"]
    harness = limits()

    harness.restore(_with_copies(b"", b"\xc1 no copy", *good))
    harness.right(Rule("b", 1))

    assert harness.values == ["2 rules"]


def test_when_no_copy_can_be_read_the_restore_fails() -> None:
    with pytest.raises(
        RestoreError, match=r"broadcast state 'rules' of step 'step' .* any of its 2 copies"
    ):
        limits().restore(_with_copies(b"", b"\xc1 no copy"))


def test_rules_of_a_state_that_was_renamed_are_not_forgotten_silently() -> None:
    snapshot = replace(_with_copies(), broadcast={"laws": _with_copies().broadcast["rules"]})

    with pytest.raises(RestoreError, match=r"holds broadcast state 'laws', .* declared: 'rules'"):
        limits().restore(snapshot)


def test_a_snapshot_without_rules_restores_into_a_step_without_rules() -> None:
    harness = limits()
    harness.left("a")
    (snapshot,) = _snapshots([harness])

    after = limits()
    after.restore(snapshot)
    after.right(Rule("a", 1))

    assert snapshot.broadcast == {}
    assert after.values == ["1 rules"]


# -------------------------------------------------------------------------------- streams without keys


class Prices(BroadcastProcess[None, str, tuple[str, int], int | None]):
    prices = BroadcastState("prices", key=str, of=int)

    def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[int | None]:
        return [ctx.state(self.prices).get(value)]

    def process_broadcast(self, value: tuple[str, int], ctx: ControlContext) -> None:
        ctx.state(self.prices).put(*value)


@pytest.mark.parametrize("mode", Mode)
def test_a_stream_without_keys_reads_broadcast_state_too(mode: Mode) -> None:
    harness = TwoInputHarness.of(Prices(), mode=mode)

    harness.left("apple", 1)
    harness.right(("apple", 5))
    harness.left_batch(["apple", "pear"], [2, 3])
    harness.watermark(5)

    assert harness.output == [At(None, 1), At(5, 2), At(None, 3), Watermark(5)]


def _asks_for_key(ctx: BroadcastContext[None]) -> None:
    assert ctx.key is None


def _sets_event_timer(ctx: BroadcastContext[None]) -> None:
    ctx.set_event_timer(10)


def _sets_processing_timer(ctx: BroadcastContext[None]) -> None:
    ctx.set_processing_timer(10)


@pytest.mark.parametrize("ask", [_asks_for_key, _sets_event_timer, _sets_processing_timer])
def test_a_stream_without_keys_has_no_key_and_no_timers(
    ask: Callable[[BroadcastContext[None]], None],
) -> None:
    class Asking(Prices):
        def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[int | None]:
            ask(ctx)
            return []

    harness = TwoInputHarness.of(Asking())

    with pytest.raises(OperatorError, match=r"its stream has no keys; call \.key_by\(…\) before"):
        harness.left("apple")


def test_keyed_state_is_refused_for_a_stream_without_keys() -> None:
    check_broadcast_process(Prices(), keyed=False)

    with pytest.raises(FlowDefinitionError, match="Limits keeps state 'count' for each key, and"):
        check_broadcast_process(Limits(), keyed=False)


# ---------------------------------------------------------------------------------- refusals


class Keeping(Prices):
    """Keeps a context that only ``process_broadcast`` may use."""

    def open(self) -> None:
        self.kept: ControlContext | None = None

    def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[int | None]:
        assert self.kept is not None
        prices = self.kept.state(self.prices)
        {"put": lambda: prices.put("a", 1), "clear": prices.clear}.get(
            value, lambda: prices.remove("a")
        )()
        return []

    def process_broadcast(self, value: tuple[str, int], ctx: ControlContext) -> None:
        self.kept = ctx
        super().process_broadcast(value, ctx)


@pytest.mark.parametrize("how", ["put", "clear", "remove"])
def test_only_control_records_write_broadcast_state(how: str) -> None:
    harness = TwoInputHarness.of(Keeping())
    harness.right(("a", 1))

    with pytest.raises(OperatorError, match="wrote broadcast state outside of process_broadcast"):
        harness.left(how)


def test_a_control_record_has_no_keyed_state() -> None:
    class Confused(Limits):
        def process_broadcast(self, value: Rule, ctx: ControlContext) -> None:
            ctx.state(cast("BroadcastState[str, int]", self.count))

    harness = TwoInputHarness.of(Confused(), left_key=str)

    with pytest.raises(OperatorError, match="'count' is kept for each key, and a control"):
        harness.right(Rule("a", 1))


def test_a_state_that_is_no_attribute_is_refused() -> None:
    class Undeclared(Prices):
        def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[int | None]:
            return [len(ctx.state(BroadcastState[str, int]("prices", key=str, of=int)))]

    harness = TwoInputHarness.of(Undeclared())

    with pytest.raises(OperatorError, match="is not declared; make it an attribute"):
        harness.left("apple")


def test_an_error_of_a_control_handler_names_the_step_and_the_record() -> None:
    class Dividing(Prices):
        def process_broadcast(self, value: tuple[str, int], ctx: ControlContext) -> None:
            ctx.state(self.prices).put(value[0], 1 // value[1])

    harness = TwoInputHarness.of(Dividing())

    with pytest.raises(OperatorError) as e:
        harness.right_batch([("a", 1), ("b", 0)], [10, 20])

    assert (e.value.record, e.value.key, e.value.timestamp) == (("b", 0), None, 20)


class AsyncControl(Prices):
    async def process_broadcast(self, value: tuple[str, int], ctx: ControlContext) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class OneNameForBoth(Limits):
    again = ValueState("rules", of=int)


class OneNameTwice(Prices):
    again = BroadcastState("prices", key=str, of=int)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(AsyncControl(), "process_broadcast is a coroutine function", id="async"),
        pytest.param(OneNameForBoth(), "another state of OneNameForBoth is named 'rules'", id="b"),
        pytest.param(OneNameTwice(), "another state of OneNameTwice is named 'prices'", id="twice"),
        pytest.param(Limits, r"write Limits\(\)", id="class"),
        pytest.param(5, "a BroadcastProcess is needed, not 5", id="no function"),
    ],
)
def test_an_invalid_function_is_refused(function: object, reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        check_broadcast_process(function)


def test_broadcast_state_of_a_function_without_control_stream_is_refused() -> None:
    class Alone(KeyedProcess[str, str, str]):
        rules = BroadcastState("rules", key=str, of=int)

        def process(self, value: str, ctx: Any) -> None: ...

    with pytest.raises(FlowDefinitionError, match=r"Alone\.rules: broadcast state 'rules' is writ"):
        check_keyed_process(Alone())


def test_a_message_names_the_call_that_takes_it() -> None:
    with pytest.raises(FlowDefinitionError, match=r"call \.connect_broadcast\(control\) before"):
        check_process_function(Limits())


def test_a_view_has_no_way_to_write() -> None:
    views: list[BroadcastView[str, int]] = []

    class Looking(Prices):
        def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[int | None]:
            views.append(ctx.state(self.prices))
            return []

    harness = TwoInputHarness.of(Looking())
    harness.right(("a", 1))
    harness.right(("b", 2))
    harness.left("a")
    (view,) = views

    assert [hasattr(view, name) for name in ("put", "remove", "clear")] == [False] * 3
    assert (view.items(), view.keys(), view.values()) == ([("a", 1), ("b", 2)], ["a", "b"], [1, 2])
    assert (list(view), len(view), "a" in view, "c" in view) == (["a", "b"], 2, True, False)
    assert (view.get("a"), view.get("c"), view.get("c", 0)) == (1, None, 0)
