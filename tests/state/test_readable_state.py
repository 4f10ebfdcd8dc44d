"""Selections of keys, and the order of a listing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.model.keys import UnsupportedKey, encode_key
from aflow.state.readable_state import FIRST, KeySelection, in_time_order

plain = st.one_of(st.text("ab\x1f1", max_size=3), st.integers(0, 12), st.booleans())
keys_of = st.one_of(plain, st.tuples(plain, plain), st.none())


def selected(
    keys: Sequence[Hashable],
    most: int,
    after: Hashable = FIRST,
    prefix: str | tuple[Hashable, ...] | None = None,
    piece: int = 3,
) -> list[Hashable]:
    selection = KeySelection(most, after, prefix)
    pieces = 0
    for _ in selection.fill([list(some) for some in _batched(keys, piece)]):
        pieces += 1
    assert pieces >= len(keys) // piece
    return list(selection)


def _batched(keys: Sequence[Hashable], size: int) -> Iterator[Sequence[Hashable]]:
    return (keys[at : at + size] for at in range(0, len(keys), size))


def paged(keys: Sequence[Hashable], size: int) -> list[Hashable]:
    """Return the keys of all pages of a listing."""
    found: list[Hashable] = []
    after: Hashable = FIRST
    while page := selected(keys, size, after):
        found += page
        after = page[-1]
        if len(page) < size:
            break
    return found


@given(st.lists(keys_of, max_size=30), st.integers(1, 5))
def test_pages_have_each_key_once_whatever_their_size(keys: list[Hashable], size: int) -> None:
    found = paged(keys, size)

    assert len(found) == len(set(found))
    assert set(found) == set(keys)
    assert list(map(encode_key, found)) == sorted(map(encode_key, found))


@given(st.lists(keys_of, max_size=30), st.permutations(range(30)), st.integers(1, 5))
def test_the_order_does_not_depend_on_that_of_the_scan(
    keys: list[Hashable], order: list[int], size: int
) -> None:
    distinct = list(dict.fromkeys(keys))
    shuffled = [distinct[index] for index in order if index < len(distinct)]

    assert paged(shuffled, size) == paged(distinct, size)


def test_text_is_in_the_order_of_its_code_points() -> None:
    keys = ["b", "é", "a", "", "ab", "B"]

    assert selected(keys, 10) == ["", "B", "a", "ab", "b", "é"]


@pytest.mark.parametrize("most", [1, 500, 5000])
def test_a_selection_of_many_keys_drops_those_that_it_does_not_need(most: int) -> None:
    keys = [f"{number * 7919 % 10_007:05}" for number in range(10_000)]
    selection = KeySelection(most)
    largest = 0
    for _ in selection.fill(_batched(keys, 256)):
        largest = max(largest, selection.held)

    assert list(selection) == sorted(keys)[:most]
    assert largest < 2 * max(most, 1024) + 256


def test_a_key_at_many_places_counts_once() -> None:
    keys = [f"{number % 5}" for number in range(10_000)]

    assert selected(keys, 3, piece=256) == ["0", "1", "2"]
    assert selected(keys, 3, after="2", piece=256) == ["3", "4"]


def test_a_prefix_selects_text_or_tuples_that_begin_with_it() -> None:
    keys = ["a", "ab", "b", ("a", 1), ("a", 2, "x"), ("ab", 1), 1, None, b"ab"]

    assert selected(keys, 10, prefix="a") == ["a", "ab"]
    assert selected(keys, 10, prefix="") == ["a", "ab", "b"]
    assert selected(keys, 10, prefix=("a",)) == [("a", 1), ("a", 2, "x")]
    assert selected(keys, 10, after=("a", 1), prefix=("a",)) == [("a", 2, "x")]
    assert selected(keys, 10, prefix=("a", 1)) == [("a", 1)]
    assert selected(keys, 10, after="b", prefix="a") == []


@given(st.lists(st.text("ab\xe9", max_size=3), max_size=20), st.text("ab\xe9", max_size=2))
def test_a_prefix_finds_what_startswith_finds(keys: list[str], prefix: str) -> None:
    expected = sorted({key for key in keys if key.startswith(prefix)}, key=str.encode)

    assert selected(keys, 50, prefix=prefix) == expected


def test_keys_with_the_same_bytes_are_all_reported() -> None:
    keys: list[Hashable] = [1, "1", ("1",), b"1", True]

    assert len(paged(keys, 1)) == 4  # 1 and True are one key
    assert set(paged(keys, 1)) == {1, "1", ("1",), b"1"}


def test_a_key_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(UnsupportedKey, match="mutable"):
        KeySelection(1, after=[1])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedKey, match="surrogate"):
        KeySelection(1, prefix="\ud800")


def test_a_key_that_is_scanned_many_times_is_held_once() -> None:
    selection = KeySelection(10)
    for _ in selection.fill([["a", "b"]] * 1000):
        pass

    assert list(selection) == ["a", "b"]
    assert selection.held == 2


def test_places_are_yielded_in_order_and_those_that_are_added_meanwhile_afterwards() -> None:
    places = [3, 1, 2]
    found: list[int] = []
    for place in in_time_order(lambda: places, lambda one: one in places):
        found.append(place)
        if place == 1:
            places.remove(2)  # a window that has fired
            places.append(4)
        if place == 3:
            places.append(0)  # for a late record

    assert found == [1, 3, 0, 4]


def test_ten_thousand_places_are_listed_a_few_times_only() -> None:
    listings = 0

    def places() -> range:
        nonlocal listings
        listings += 1
        return range(10_000)

    assert list(in_time_order(places, lambda _: True)) == list(range(10_000))
    assert listings == 2
