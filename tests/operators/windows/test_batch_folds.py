"""The loops that fold batches in fast window steps, compared with one ``add`` after the other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.operators.accumulation import Accumulation, aggregating, folding
from aflow.operators.base import OperatorContext
from aflow.operators.stateless import PassThroughOperator
from aflow.operators.windows.incremental_windows import fold_by_time
from tests.operators.driver import ManualTime, RecordingOutput

SUMS = aggregating(af.aggregates.sum(lambda value: value))
ACCUMULATIONS = {
    "sum": SUMS,
    "mean": aggregating(af.aggregates.mean(lambda value: value)),
    "fold": folding(list, lambda so_far, value: [*so_far, value]),
}


def step() -> PassThroughOperator:
    operator = PassThroughOperator()
    time = ManualTime(0)
    operator.open(OperatorContext(name="step", output=RecordingOutput(), clock=time, alarm=time))
    return operator


def fold_all(
    contents: dict[Hashable, Any],
    batch: Batch[Any],
    keys: Sequence[Hashable],
    accumulation: Accumulation,
) -> None:
    """Fold all records into one pane."""
    times = [0] * len(batch)
    fold_by_time(lambda _: contents, lambda _: (0, 1), batch, keys, times, accumulation, step())


def one_by_one(
    accumulation: Accumulation, keys: Sequence[Hashable], values: Sequence[Any]
) -> dict[Hashable, Any]:
    contents: dict[Hashable, Any] = {}
    for key, value in zip(keys, values, strict=True):
        held = contents.get(key)
        contents[key] = accumulation.first(value) if held is None else accumulation.add(held, value)
    return contents


@pytest.mark.parametrize("kind", ACCUMULATIONS)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 20),
            st.integers() | st.booleans() | st.floats(allow_nan=False),
        )
    ),
    st.sampled_from([0, 5, 10]),
)
@settings(deadline=None)
def test_a_batch_is_folded_as_its_records_would_be_up_to_the_bound(
    kind: str, records: list[tuple[int, int, Any]], bound: int
) -> None:
    accumulation = ACCUMULATIONS[kind]
    keys, times, values = ([one[column] for one in records] for column in range(3))
    batch = Batch(values, times, keys)

    together: dict[Hashable, Any] = {}
    fold_all(together, batch, keys, accumulation)
    assert repr(together) == repr(one_by_one(accumulation, keys, values))

    pieces: dict[int, dict[Hashable, Any]] = {}
    done = fold_by_time(
        lambda start: pieces.setdefault(start, {}),
        lambda time: (time // 5 * 5, time // 5 * 5 + 5),
        batch,
        keys,
        times,
        accumulation,
        step(),
        bound=bound,
    )
    assert done == next((index for index, time in enumerate(times) if time < bound), len(times))
    for start, contents in pieces.items():
        here = [index for index, time in enumerate(times[:done]) if start <= time < start + 5]
        alone = one_by_one(accumulation, [keys[i] for i in here], [values[i] for i in here])
        assert repr(contents) == repr(alone)


@pytest.mark.parametrize("first", [1, "no number"])
def test_a_value_that_is_no_number_fails_with_its_record_and_changes_nothing_else(
    first: object,
) -> None:
    values = [first, "no number", 5] if first == 1 else [first, 5]
    contents: dict[Hashable, Any] = {}

    with pytest.raises(OperatorError, match="'no number'") as caught:
        fold_all(contents, Batch(values), ["a"] * len(values), SUMS)

    assert caught.value.record == "no number"
    assert contents == ({"a": [1]} if first == 1 else {})


def test_an_unsupported_key_is_refused_with_its_record() -> None:
    keys: list[Any] = ["a", ["b"]]
    with pytest.raises(OperatorError) as caught:
        fold_all({}, Batch([1, 2]), keys, SUMS)

    assert caught.value.record == 2
