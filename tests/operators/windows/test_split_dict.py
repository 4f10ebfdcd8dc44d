"""A dict in parts behaves as a dict, whatever the size of its parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.operators.windows import split_dict
from aflow.operators.windows.split_dict import SplitDict

STEPS = st.lists(st.tuples(st.sampled_from(["set", "discard", "clear"]), st.integers(0, 9)))


@given(steps=STEPS, most=st.integers(1, 4))
def test_entries_and_their_order_are_those_of_a_dict(
    steps: list[tuple[str, int]], most: int
) -> None:
    parts, whole = SplitDict[int](), dict[int, int]()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_dict, "_MOST", most)
        for number, (step, key) in enumerate(steps):
            if step == "set":
                parts.part_of(key)[key] = whole[key] = number
            elif step == "discard":
                parts.discard(key)
                whole.pop(key, None)
            elif number % 5 == 0:
                for _ in parts.cleared():
                    pass
                whole.clear()

    assert list(parts.items()) == list(whole.items())
    get = parts.getter()
    assert [get(key, None) for key in range(10)] == [whole.get(key) for key in range(10)]
    assert len(parts) == len(whole)


def test_no_part_has_more_keys_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_dict, "_MOST", 3)
    parts = SplitDict[int]()

    for key in range(10):
        parts.part_of(key)[key] = key

    sizes = [len(parts.part_of(key)) for key in range(10)]
    assert sizes == [3] * 9 + [1]
