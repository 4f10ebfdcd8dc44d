"""The messages of a batch in parts that are in flight at a time."""

from __future__ import annotations

import pytest

from aflow_connectors.in_flight import parts


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1] * 2500, [1000, 1000, 500]),
        ([5_000_000] * 3, [1, 1, 1]),
        ([4_000_000] * 3, [2, 1]),
        ([10_000_000, 1, 1], [1, 2]),
    ],
    ids=["none", "number", "bytes", "equal to the bound", "one that is too large"],
)
def test_a_part_is_bounded_by_number_and_by_bytes(sizes: list[int], expected: list[int]) -> None:
    messages = list(enumerate(sizes))

    found = list(parts(messages, lambda message: message[1]))

    assert [len(part) for part in found] == expected
    assert [message for part in found for message in part] == messages
