"""Evictors of the general window operator, and results that share nothing with kept contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
from aflow.machines.windows.triggers import Count, EventTime, Never, Purging
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import folding
from aflow.operators.base import StateSize
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.window_contents import contents_for
from aflow.operators.windows.window_operator import WindowOperator
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import (
    NOTHING,
    SUM,
    Event,
    KeepsLast,
    left,
    logic,
    numbers,
    rows,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_with_an_evictor_records_are_folded_at_each_firing(mode: Mode) -> None:
    harness = step(mode, trigger=Count(2), accumulation=SUM, evictor=KeepsLast(3, 2))

    for number in (1, 2, 4, 8, 16, 32):
        harness.push(("a", number), 1)

    assert rows(harness) == [("a", 0, 3, 1), ("a", 0, 14, 2), ("a", 0, 56, 3)]


@every_way
def test_with_an_evictor_the_declared_type_is_that_of_the_records(mode: Mode) -> None:
    @dataclass(frozen=True)
    class Sale:
        shop: str
        amount: int

    total = folding(int, lambda held, sale: held + sale.amount)
    made = logic(trigger=Count(1), accumulation=total, evictor=KeepsLast(2, 2), of=Sale)
    harness = OperatorHarness[Sale, Any](
        lambda: WindowOperator(made), key=lambda sale: sale.shop, mode=mode
    )

    for amount in (1, 2, 4):
        harness.push(Sale("a", amount), 1)

    assert [one.value for one in harness.values] == [1, 3, 6]


@every_way
def test_an_evictor_gets_the_time_of_each_record(mode: Mode) -> None:
    class Newest(Evictor[Event]):
        def before(
            self, elements: Sequence[Element[Event]], window: TimeWindow, ctx: EvictorContext
        ) -> Sequence[Element[Event]]:
            return [max(elements, key=lambda element: element.timestamp)]

    harness = step(mode, evictor=Newest(), apply=numbers)
    harness.push_batch([("a", 1), ("a", 2), ("a", 3)], [5, 8, 2])

    harness.watermark(9)

    assert rows(harness) == [("a", 0, [2], 1)]
    assert left(harness) == NOTHING


class Fresh(Evictor[Event]):
    """Keeps records younger than the age (ms) in the key: by the watermark, or by the clock."""

    def __init__(self, domain: TimeDomain, *, after: bool) -> None:
        self._domain = domain
        self._after = after

    def before(
        self, elements: Sequence[Element[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Event]]:
        return elements if self._after else self._fresh(elements, ctx)

    def after(
        self, elements: Sequence[Element[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Event]]:
        return self._fresh(elements, ctx) if self._after else elements

    def _fresh(
        self, elements: Sequence[Element[Event]], ctx: EvictorContext
    ) -> list[Element[Event]]:
        event = self._domain is TimeDomain.EVENT
        now = ctx.watermark if event else ctx.processing_time
        assert isinstance(ctx.key, str)
        return [element for element in elements if now - element.timestamp < int(ctx.key)]


@every_way
@pytest.mark.parametrize("domain", TimeDomain)
def test_an_evictor_gets_the_key_and_the_time_at_which_the_window_fires(
    mode: Mode, domain: TimeDomain
) -> None:
    harness = step(
        mode,
        evictor=Fresh(domain, after=False),
        apply=numbers,
    )
    harness.push_batch([("4", 1), ("4", 2), ("7", 1), ("7", 2)], [3, 6, 3, 6])
    harness.advance_processing_time(9)

    harness.watermark(9)

    # Restored windows that are due together fire in any order of their keys.
    assert sorted(rows(harness)) == [("4", 0, [2], 1), ("7", 0, [1, 2], 1)]


@every_way
def test_an_evictor_after_the_function_gets_the_key_and_the_time_too(mode: Mode) -> None:
    harness = step(
        mode, trigger=Count(2), evictor=Fresh(TimeDomain.EVENT, after=True), apply=numbers
    )
    harness.watermark(6)

    harness.push_batch([("3", 1), ("3", 2), ("3", 3), ("3", 4)], [3, 4, 5, 6])

    assert rows(harness) == [("3", 0, [1, 2], 1), ("3", 0, [2, 3, 4], 2)]


@every_way
def test_an_evictor_that_drops_all_records_prevents_the_firing_and_its_count(
    mode: Mode,
) -> None:
    harness = step(mode, trigger=Count(1), evictor=KeepsLast(0, 0), apply=numbers)

    harness.push(("a", 1), 1)
    harness.push(("a", 2), 1)

    assert harness.values == []
    assert harness.size == StateSize(event_timers=1)


@every_way
def test_a_window_is_empty_if_all_its_records_were_dropped_after_a_firing(mode: Mode) -> None:
    harness = step(mode, trigger=Count(2), evictor=KeepsLast(2, 0), apply=numbers)

    for number in range(4):
        harness.push(("a", number), 1)

    assert rows(harness) == [("a", 0, [0, 1], 1), ("a", 0, [2, 3], 2)]
    assert harness.size == StateSize(event_timers=1)


# ------------------------------------------------------------------------------ copies of results


def extended(held: list[int], more: list[int]) -> list[int]:
    held.extend(more)
    return held


#: Lists that grow in place.
GROWING = folding(list[int], lambda held, event: extended(held, [event[1]]), merge=extended)


@every_way
def test_a_result_does_not_change_with_the_accumulator_of_its_window(mode: Mode) -> None:
    harness = step(mode, accumulation=GROWING, trigger=Count(1))

    harness.push_batch([("a", 1), ("a", 2)], [1, 2])

    assert rows(harness) == [("a", 0, [1], 1), ("a", 0, [1, 2], 2)]


@every_way
def test_a_change_that_a_function_makes_to_a_result_is_not_in_a_later_firing(mode: Mode) -> None:
    class Empties(WindowFunction[str, list[int], list[int]]):
        def process(self, value: list[int], ctx: WindowContext[str]) -> list[list[int]]:
            seen = value.copy()
            value.clear()
            return [seen]

    harness = step(mode, accumulation=GROWING, function=Empties(), trigger=Count(1))

    harness.push_batch([("a", 1), ("a", 2)], [1, 2])

    assert harness.values == [[1], [1, 2]]


@pytest.mark.parametrize(
    "stored",
    [[b"", [1]], [b"", [1], [0]], "records"],
    ids=["without numbers", "with numbers apart", "no records"],
)
def test_records_that_were_stored_in_another_format_are_refused(stored: object) -> None:
    contents = contents_for(logic(evictor=KeepsLast(1, 0), apply=numbers))

    with pytest.raises(CodecError, match="stored bytes are not records with timestamps"):
        contents.decode(PLAIN.encode(stored))


def test_nothing_is_copied_for_the_last_result_of_a_window() -> None:
    merges: list[int] = []

    def merged(one: int, other: int) -> int:
        merges.append(other)
        return one + other

    counted = folding(int, lambda n, _: n + 1, merge=merged)
    ending = step(accumulation=counted, trigger=EventTime(early=Never()))
    purging = step(accumulation=counted, trigger=Purging(Count(1)))

    ending.push(("a", 1), 1)
    ending.watermark(9)
    purging.push(("a", 1), 1)

    assert rows(ending) == rows(purging) == [("a", 0, 1, 1)]
    assert merges == []
