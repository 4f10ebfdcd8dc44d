"""Each aggregate has the result of a plain computation over all records, for any parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aflow import aggregates
from tests.state.aggregates.laws import (
    Agg,
    added,
    checked_result,
    image,
    merged_from_the_left,
    merged_from_the_right,
    restored,
)


class Row(NamedTuple):
    n: int
    x: float
    word: str


@dataclass(frozen=True)
class Stored:
    """A value that is not plain: snapshots need its type."""

    n: int
    x: float


@dataclass(frozen=True)
class Totals:
    n: int
    largest: float
    words: list[str]


Rows = Sequence[Row]


@dataclass(frozen=True)
class Case:
    """An aggregate and its expected result for one record or more."""

    aggregate: Callable[[], Agg]
    expected: Callable[[Rows], Any]


def exact_sum(rows: Rows) -> float:
    xs = [row.x for row in rows if not math.isnan(row.x)]
    return math.nan if len(xs) < len(rows) else float(sum(map(Fraction, xs)))


def ranked(rows: Rows, rank: Callable[[Row], float]) -> list[Row]:
    """Sort by rank: greatest first, NaN last, equal ones in their order (``sorted`` is stable)."""
    return sorted(rows, key=lambda row: math.inf if math.isnan(rank(row)) else -rank(row))


def middle(rows: Rows) -> float:
    xs = sorted(row.x for row in rows if not math.isnan(row.x))
    return xs[math.ceil(len(xs) / 2) - 1] if xs else math.nan


def different(values: Sequence[float]) -> int:
    return len({"nan" if value != value else value for value in values})


def as_stored(row: Row) -> Stored:
    return Stored(row.n % 100, row.x)


def totals() -> Agg:
    return aggregates.fields(
        Totals,
        n=aggregates.count(),
        largest=aggregates.max(lambda row: row.x),
        words=aggregates.collect(lambda row: row.word),
    )


CASES = {
    "count": Case(aggregates.count, len),
    "sum of ints": Case(
        lambda: aggregates.sum(lambda row: row.n), lambda rows: sum(row.n for row in rows)
    ),
    "sum of floats": Case(lambda: aggregates.sum(lambda row: row.x), exact_sum),
    "mean of ints": Case(
        lambda: aggregates.mean(lambda row: row.n),
        lambda rows: sum(row.n for row in rows) / len(rows),
    ),
    "mean of floats": Case(
        lambda: aggregates.mean(lambda row: row.x), lambda rows: exact_sum(rows) / len(rows)
    ),
    "max": Case(
        lambda: aggregates.max(lambda row: row.x), lambda rows: ranked(rows, lambda row: row.x)[0].x
    ),
    "min": Case(
        lambda: aggregates.min(lambda row: row.x),
        lambda rows: ranked(rows, lambda row: -row.x)[0].x,
    ),
    "min by": Case(
        lambda: aggregates.min(lambda row: row.word, by=lambda row: row.x),
        lambda rows: ranked(rows, lambda row: -row.x)[0].word,
    ),
    "max by, of a type": Case(
        lambda: aggregates.max(as_stored, by=lambda row: row.x, stored_as=Stored),
        lambda rows: as_stored(ranked(rows, lambda row: row.x)[0]),
    ),
    "top_k": Case(
        lambda: aggregates.top_k(3, by=lambda row: row.x, of=lambda row: row.word),
        lambda rows: [row.word for row in ranked(rows, lambda row: row.x)[:3]],
    ),
    "top_k of values": Case(
        lambda: aggregates.top_k(2, of=lambda row: row.x),
        lambda rows: [row.x for row in ranked(rows, lambda row: row.x)[:2]],
    ),
    "first": Case(lambda: aggregates.first(lambda row: row.word), lambda rows: rows[0].word),
    "last": Case(lambda: aggregates.last(lambda row: row.word), lambda rows: rows[-1].word),
    "last, of a type": Case(
        lambda: aggregates.last(as_stored, stored_as=Stored), lambda rows: as_stored(rows[-1])
    ),
    "collect": Case(
        lambda: aggregates.collect(lambda row: row.word), lambda rows: [row.word for row in rows]
    ),
    "collect, of a type": Case(
        lambda: aggregates.collect(as_stored, stored_as=Stored),
        lambda rows: [as_stored(row) for row in rows],
    ),
    "distinct": Case(
        lambda: aggregates.distinct(lambda row: row.x),
        lambda rows: different([row.x for row in rows]),
    ),
    "distinct, of a type": Case(
        lambda: aggregates.distinct(lambda row: row.word, stored_as=str),
        lambda rows: len({row.word for row in rows}),
    ),
    "fields": Case(
        totals,
        lambda rows: Totals(
            len(rows), ranked(rows, lambda row: row.x)[0].x, [row.word for row in rows]
        ),
    ),
}
#: Sketches of few values are exact; see test_quantiles.py and test_distinct.py for others.
SKETCHES = {
    "quantile": Case(lambda: aggregates.quantile(0.5, lambda row: row.x), middle),
    "distinct, approximately": Case(
        lambda: aggregates.distinct(lambda row: row.x, approximate=True),
        lambda rows: different([row.x for row in rows]),
    ),
}

# Few values, so that there are ties, and a NaN that is not always the same object.
XS = st.one_of(
    st.sampled_from([0.1, 0.5, -0.5, 1e300, 1e-300, 3.0]),
    st.floats(-1e300, 1e300),
    st.builds(lambda: float("nan")),
)
ROWS = st.builds(Row, st.integers(), XS.map(lambda x: x + 0.0), st.text("abc", max_size=2))
PARTS = st.lists(st.lists(ROWS, max_size=12), max_size=5).filter(any)

every_one = pytest.mark.parametrize("name", CASES)
every_sketch = pytest.mark.parametrize("name", SKETCHES)
briefly = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@every_one
@given(parts=PARTS)
@briefly
def test_all_divisions_have_the_result_of_all_records_at_once(
    name: str, parts: list[list[Row]]
) -> None:
    agree_with_a_plain_computation(CASES[name], parts)


@every_sketch
@given(parts=PARTS)
@briefly
@pytest.mark.usefixtures("sketches")
def test_sketches_of_few_values_are_exact(name: str, parts: list[list[Row]]) -> None:
    agree_with_a_plain_computation(SKETCHES[name], parts)


def agree_with_a_plain_computation(case: Case, parts: list[list[Row]]) -> None:
    aggregate = case.aggregate()
    rows = [row for part in parts for row in part]
    expected = repr(case.expected(rows))

    assert checked_result(aggregate, added(aggregate, rows)) == expected
    assert checked_result(aggregate, merged_from_the_left(aggregate, parts)) == expected
    assert checked_result(aggregate, merged_from_the_right(aggregate, parts)) == expected


@every_one
@given(before=st.lists(ROWS, max_size=20), after=st.lists(ROWS, min_size=1, max_size=20))
@briefly
def test_a_restored_accumulator_continues_as_the_original(
    name: str, before: list[Row], after: list[Row]
) -> None:
    go_on_after_a_restore(CASES[name], before, after)


@every_sketch
@given(before=st.lists(ROWS, max_size=20), after=st.lists(ROWS, min_size=1, max_size=20))
@briefly
@pytest.mark.usefixtures("sketches")
def test_a_restored_sketch_continues_as_the_original(
    name: str, before: list[Row], after: list[Row]
) -> None:
    go_on_after_a_restore(SKETCHES[name], before, after)


def go_on_after_a_restore(case: Case, before: list[Row], after: list[Row]) -> None:
    aggregate = case.aggregate()

    acc = added(aggregate, after, restored(aggregate, added(aggregate, before)))

    assert checked_result(aggregate, acc) == repr(case.expected([*before, *after]))


@every_one
@given(older=st.lists(ROWS, max_size=20), newer=st.lists(ROWS, max_size=20), more=st.lists(ROWS))
@briefly
def test_an_update_of_a_merged_accumulator_does_not_change_its_parts(
    name: str, older: list[Row], newer: list[Row], more: list[Row]
) -> None:
    keep_parts_apart(CASES[name], older, newer, more)


@every_sketch
@given(older=st.lists(ROWS, max_size=20), newer=st.lists(ROWS, max_size=20), more=st.lists(ROWS))
@briefly
@pytest.mark.usefixtures("sketches")
def test_an_update_of_a_merged_sketch_does_not_change_its_parts(
    name: str, older: list[Row], newer: list[Row], more: list[Row]
) -> None:
    keep_parts_apart(SKETCHES[name], older, newer, more)


def keep_parts_apart(case: Case, older: list[Row], newer: list[Row], more: list[Row]) -> None:
    aggregate = case.aggregate()
    part = added(aggregate, newer)
    before = image(aggregate, part)

    added(aggregate, more, aggregate.merge(added(aggregate, older), part))

    assert image(aggregate, part) == before


@pytest.mark.parametrize("name", ["collect", "collect, of a type", "top_k", "top_k of values"])
def test_a_returned_list_is_independent_of_the_accumulator(name: str) -> None:
    aggregate = CASES[name].aggregate()
    acc = added(aggregate, [Row(1, 0.5, "a")])

    given_away = aggregate.result(acc)
    acc = added(aggregate, [Row(2, 1.5, "b")], acc)
    later = aggregate.result(acc)
    given_away.clear()

    assert (given_away, len(later)) == ([], 2)
    assert aggregate.result(acc) == later
    later.clear()
    assert len(aggregate.result(acc)) == 2
