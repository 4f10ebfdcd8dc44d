"""A function that returns a coroutine, or forgets to return, fails at its first record with the cure."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Optional

import pytest

import aflow as af
from aflow.operators.accumulation import folding, reducing
from aflow.operators.base import Operator
from aflow.operators.first_call import FirstCall
from aflow.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapBatchOperator,
    MapOperator,
)
from aflow.testing import OperatorHarness
from tests.stable_ids import stable


async def _ask(value: Any, *more: Any) -> Any:
    return value


#: As a function without types: a type checker finds these mistakes before they are made.
ask: Any = _ask
append: Any = list[int].append


def nothing_of(one: int, other: int) -> Any:
    return None


async def refused(value: int) -> int:
    raise ConnectionError(value)


SECOND = timedelta(seconds=1)
WINDOW = af.Tumbling(SECOND)

STEPS: dict[str, tuple[str, Callable[[af.Stream[int]], Any]]] = {
    "map": ("use map_async()", lambda s: s.map(lambda n: ask(n), name="step")),
    "filter": ("use filter_async()", lambda s: s.filter(lambda n: ask(n), name="step")),
    "flat_map": (
        "use flat_map_async()",
        lambda s: s.flat_map(lambda n: ask(n), name="step"),
    ),
    "map_batch": (
        "use map_batch_async()",
        lambda s: s.map_batch(lambda n: ask(n), name="step"),
    ),
    "key_by": (
        "make the call in a map_async() before key_by()",
        lambda s: s.key_by(lambda n: ask(n), name="step").reduce(min, name="min"),
    ),
    "fold": (
        "make the call in a map_async() before fold()",
        lambda s: s.key_by(abs).fold(int, lambda a, n: ask(a, n), name="step"),
    ),
    "reduce": (
        "make the call in a map_async() before reduce()",
        lambda s: s.key_by(abs).reduce(lambda a, n: ask(a, n), name="step"),
    ),
    "fold of windows": (
        "make the call in a map_async() before fold()",
        lambda s: s.key_by(abs).window(WINDOW).fold(int, lambda a, n: ask(a, n), name="step"),
    ),
    "reduce of windows": (
        "make the call in a map_async() before reduce()",
        lambda s: s.key_by(abs).window(WINDOW).reduce(lambda a, n: ask(a, n), name="step"),
    ),
    "top": (
        "make the call in a map_async() before top()",
        lambda s: s.key_by(abs).top(1, by=lambda n: ask(n), name="step"),
    ),
    "apply": (
        "make the call in a map_async() after the window",
        lambda s: s.key_by(abs).window(WINDOW).apply(lambda ns: ask(ns), name="step"),
    ),
    "apply with a trigger": (
        "make the call in a map_async() after the window",
        lambda s: (
            s.key_by(abs)
            .window(WINDOW, trigger=af.triggers.Count(2))
            .apply(lambda ns: ask(ns), name="step")
        ),
    ),
    "apply of sessions": (
        "make the call in a map_async() after the window",
        lambda s: s.key_by(abs).window(af.Session(SECOND)).apply(lambda ns: ask(ns), name="step"),
    ),
    "interval_join": (
        "make the call in a map_async() after the join",
        lambda s: (
            s.key_by(abs)
            .interval_join(s.key_by(abs), between=(-SECOND, SECOND))
            .inner(lambda a, b: ask(a, b), name="step")
        ),
    ),
    "as_of_join": (
        "make the call in a map_async() after the join",
        lambda s: (
            s.key_by(abs).as_of_join(s.key_by(abs)).inner(lambda a, b: ask(a, b), name="step")
        ),
    ),
    "window_join": (
        "make the call in a map_async() after the join",
        lambda s: (
            s.key_by(abs)
            .window_join(s.key_by(abs), WINDOW)
            .inner(lambda a, b: ask(a, b), name="step")
        ),
    ),
    "co_group": (
        "make the call in a map_async() after the window",
        lambda s: s.key_by(abs).co_group(
            s.key_by(abs), WINDOW, into=lambda a, b: ask(a, b), name="step"
        ),
    ),
    "event_time": (
        "make the call in a map_async() before event_time()",
        lambda s: s.event_time(lambda n: ask(n), name="step"),
    ),
    "into of map_async": (
        "make the call in a map_async() after this step",
        lambda s: s.map_async(ask, into=lambda n, result: ask(n), name="step"),
    ),
    "Fallback": (
        "make the call in the function of the step",
        lambda s: s.map_async(
            refused, on_error=af.calls.Fallback(lambda n, error: ask(n)), name="step"
        ),
    ),
    "key of a Cache": (
        "return the key itself",
        lambda s: s.map_async(
            ask, cache=af.calls.Cache(9, ttl=SECOND, key=lambda n: ask(n)), name="step"
        ),
    ),
}


def none_yet() -> int | None:
    return None


def failure(build: Callable[[af.Stream[int]], Any], *, chaining: bool = True) -> af.OperatorError:
    """Return the failure of a job over the records 7, 7, … of event time."""
    flow = af.Flow("mistake")
    build(flow.source([7] * 5).event_time(lambda n: n, name="time")).to(af.CollectSink())
    with pytest.raises(af.OperatorError) as caught:
        asyncio.run(flow.run(options=af.Options(chaining=chaining)))
    return caught.value


@pytest.mark.parametrize("step", STEPS)
def test_a_plain_function_that_returns_a_coroutine_fails_with_the_cure(step: str) -> None:
    cure, build = STEPS[step]

    said = str(failure(build))

    assert said.startswith("step 'step' failed")
    assert "returned a coroutine" in said
    assert cure in said


@pytest.mark.parametrize("chaining", [True, False])
def test_of_steps_that_run_as_one_the_one_that_returns_it_is_named(chaining: bool) -> None:
    def build(stream: af.Stream[int]) -> af.Stream[int]:
        fused = stream.map(lambda n: n + 1, name="before").map(lambda n: ask(n), name="step")
        return fused.map(lambda coroutine: coroutine.value, name="behind")

    error = failure(build, chaining=chaining)

    assert str(error).startswith("step 'step' failed on record ")
    assert error.operator == "step"


def test_a_step_that_its_first_record_reaches_in_a_later_batch_is_checked_there() -> None:
    flow, sink = af.Flow("late"), af.CollectSink[Any]()
    numbers = flow.source([0, 0, 0, 1])
    numbers.filter(bool, name="keep").map(lambda n: ask(n), name="step").to(sink)

    with pytest.raises(af.OperatorError, match=r"'step' failed on record 1: .* use map_async"):
        asyncio.run(flow.run(options=af.Options(batch_records=1)))


@pytest.mark.parametrize("joined", [False, True], ids=["apply", "window_join"])
def test_the_check_of_a_window_function_is_dropped_after_its_first_call(joined: bool) -> None:
    callers: list[str] = []

    def note(*_: object) -> None:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        callers.append(type(frame.f_back.f_locals.get("self")).__name__)

    flow = af.Flow("windows")
    numbers = flow.source([7, 7, 8, 8]).event_time(lambda n: n, name="time").key_by(abs)
    if joined:
        numbers.window_join(numbers, WINDOW).inner(note, name="step").to(af.CollectSink())
    else:
        trigger = af.triggers.Count(2)
        numbers.window(WINDOW, trigger=trigger).apply(note, name="step").to(af.CollectSink())
    asyncio.run(flow.run())

    assert callers[0] == "FirstCall"
    assert callers[-1] != "FirstCall"


@pytest.mark.parametrize("windowed", [False, True], ids=["running", "in windows"])
def test_a_fold_that_changes_its_accumulator_and_returns_nothing_fails_with_the_cure(
    windowed: bool,
) -> None:
    def build(stream: af.Stream[int]) -> Any:
        keyed: Any = stream.key_by(abs)
        return (keyed.window(WINDOW) if windowed else keyed).fold(list[int], append, name="step")

    said = str(failure(build))

    assert "step 'step' failed on record 7, key 7" in said
    assert "the function given to fold() returned None and got [7]: it must return the" in said
    assert "begin with None" in said


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        (append, "the function given to merge= returned None and got [7, [8]]"),
        (ask, "which merge= does not await: make the call in a map_async() before or after"),
    ],
    ids=["nothing", "a coroutine"],
)
def test_a_merge_that_returns_no_accumulator_fails_with_the_cure(merge: Any, message: str) -> None:
    fold = folding(list[int], lambda a, n: [*a, n], merge)
    assert fold.merge is not None

    with pytest.raises(TypeError, match=re.escape(message)):
        fold.merge([7], [8])


def test_a_reduce_that_returns_nothing_fails_with_the_cure() -> None:
    said = str(failure(lambda s: s.key_by(abs).reduce(nothing_of, name="step")))

    assert "the function given to reduce() returned None and got 7" in said


class Appending(af.Aggregate[int, list[int], int]):
    def create(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int) -> Any:
        acc.append(value)

    def result(self, acc: list[int]) -> int:
        return len(acc)

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return a + b


def test_an_aggregate_whose_add_returns_nothing_fails_with_the_cure() -> None:
    said = str(failure(lambda s: s.key_by(abs).window(WINDOW).aggregate(Appending(), name="step")))

    assert "step 'step' failed on record 7, key 7" in said
    assert "Appending.add() returned None and got [7]: it must return the accumulator" in said


class ForgetfulEvictor(af.evictors.Evictor[int]):
    def before(self, elements: Any, window: Any, ctx: Any) -> Any:
        return None


def test_an_evictor_that_returns_nothing_fails_with_the_cure() -> None:
    def build(stream: af.Stream[int]) -> Any:
        windows = stream.key_by(abs).window(WINDOW, evictor=ForgetfulEvictor())
        return windows.fold(int, max, name="step")

    said = str(failure(build))

    assert "before() of the evictor returned None: it must return the elements to keep" in said


def test_a_fold_that_begins_with_none_may_return_it() -> None:
    flow, sink = af.Flow("optional"), af.CollectSink[int | None]()
    keyed = flow.source([0, 3, 0]).key_by(lambda n: "all")
    keyed.fold(none_yet, lambda held, n: n or held, name="latest").to(sink)

    asyncio.run(flow.run())

    assert sink.values == [None, 3, 3]


def unless_four(held: int | None, n: int) -> int | None:
    return None if n == 4 else n


def optional(held: Optional[int], n: int) -> Optional[int]:  # noqa: UP045
    return unless_four(held, n)


@pytest.mark.parametrize("fn", [unless_four, optional], ids=stable)
@pytest.mark.parametrize("windowed", [False, True], ids=["running", "in windows"])
@pytest.mark.parametrize("folds", [False, True], ids=["reduce", "fold"])
def test_a_function_whose_annotation_admits_none_may_return_it(
    fn: Any, windowed: bool, folds: bool
) -> None:
    flow, sink = af.Flow("optional"), af.CollectSink[Any]()
    keyed: Any = flow.source([4, 4, 4]).key_by(lambda n: "all")
    steps = keyed.window(af.Count(3)) if windowed else keyed
    made = steps.fold(int, fn, name="step") if folds else steps.reduce(fn, name="step")

    made.to(sink)
    asyncio.run(flow.run())

    assert (sink.values[-1].value if windowed else sink.values[-1]) is None


@pytest.mark.parametrize(
    ("make", "attribute"),
    [
        pytest.param(lambda: MapOperator(abs), "function", id="map"),
        pytest.param(lambda: FilterOperator(abs), "function", id="filter"),
        pytest.param(lambda: FlatMapOperator(lambda n: [n]), "_fn", id="flat_map"),
        pytest.param(lambda: MapBatchOperator(lambda values: values), "_fn", id="map_batch"),
        pytest.param(lambda: KeyByOperator(abs), "_key", id="key_by"),
    ],
)
def test_after_the_first_record_a_step_calls_the_function_itself(
    make: Callable[[], Operator], attribute: str
) -> None:
    harness = OperatorHarness[int, Any](make)
    assert isinstance(getattr(harness.operator, attribute), FirstCall)

    harness.push(1)

    assert not isinstance(getattr(harness.operator, attribute), FirstCall)


def test_after_its_first_result_a_reduce_adds_by_the_function_itself() -> None:
    accumulation = reducing(max)

    accumulation.add(1, 2)

    assert accumulation.add is max
