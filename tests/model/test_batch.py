"""Parts of batches, and batches of many results."""

from __future__ import annotations

import pytest

from aflow.model.batch import BATCH_RECORDS, Batch, in_batches


def test_picked_records_have_their_timestamps_and_no_keys() -> None:
    timed = Batch(["a", "b", "c"], [1, 2, 3], ["x", "y", "z"])

    assert timed.pick([2, 0]) == Batch(["c", "a"], [3, 1])
    assert Batch(["a", "b"]).pick([1]) == Batch(["b"])


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (BATCH_RECORDS, [BATCH_RECORDS]),
        (2 * BATCH_RECORDS + 1, [BATCH_RECORDS, BATCH_RECORDS, 1]),
    ],
)
def test_any_number_of_results_is_emitted_in_batches_of_the_usual_size(
    count: int, sizes: list[int]
) -> None:
    values = list(range(count))

    batches = list(in_batches(values, values))

    assert [len(batch) for batch in batches] == sizes
    assert [value for batch in batches for value in batch.values] == values
    assert all(batch.values == batch.timestamps for batch in batches)
