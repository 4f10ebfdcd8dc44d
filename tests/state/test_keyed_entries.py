"""Keyed entries in two phases: values are encoded at once, keys and key groups later."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest

from aflow.errors import CheckpointError, RestoreError
from aflow.model.codecs import PLAIN
from aflow.model.key_groups import KeyGroupRange, key_group
from aflow.state.keyed_entries import (
    CapturedRows,
    KeyedRows,
    KeyGroupCodec,
    LazyRows,
    Members,
    are_immutable,
    merge_rows,
)
from aflow.state.snapshot import STATES


@dataclass(frozen=True)
class Card:
    number: str


@dataclass(frozen=True)
class CardOfCountry:
    number: str
    country: str = ""


class Counting(KeyGroupCodec):
    """A codec that counts encodings of each key."""

    def __init__(self) -> None:
        super().__init__(operator="step", key_groups=KeyGroupRange(0, 8), key_group_count=8)
        self.placed: list[Hashable] = []

    def place(self, key: Hashable) -> tuple[int, bytes]:
        self.placed.append(key)
        return super().place(key)


A, B, C = (PLAIN.encode(key) for key in "abc")
GROUP = {key: key_group(key, 8) for key in "abc"}


def test_state_of_keys_is_in_their_key_groups_with_its_descriptions() -> None:
    rows = KeyedRows({"x": [("a", b"1"), ("a", b"2")], "@y": [("a", b"3")]}, None, {"x": b"is x"})

    snapshot = CapturedRows(Counting(), rows).encoded()

    assert snapshot.complete
    assert snapshot.keyed == {
        GROUP["a"]: {"x": ((A, b"1"), (A, b"2")), "@y": ((A, b"3"),), STATES: ((b"x", b"is x"),)}
    }


def test_a_key_that_is_decoded_as_another_key_is_refused() -> None:
    """A key with one more field is of another key group, so its state would never be found."""
    groups = KeyGroupRange(0, 128)
    cards = KeyGroupCodec(operator="step", key_type=Card, key_groups=groups, key_group_count=128)
    snapshot = CapturedRows(cards, KeyedRows({"x": [(Card("4711"), b"1")]})).encoded()
    more = KeyGroupCodec(
        operator="step", key_type=CardOfCountry, key_groups=groups, key_group_count=128
    )

    with pytest.raises(RestoreError, match="step 'step' reads a stored key as CardOfCountry") as it:
        list(more.read(snapshot.keyed, "x"))

    assert "Were keys of another type when they were stored?" in str(it.value)
    assert list(cards.read(snapshot.keyed, "x")) == [(Card("4711"), b"1")]


def test_a_state_is_described_in_the_groups_that_have_it_only() -> None:
    rows = KeyedRows({"x": [("a", b"1")], "z": []}, None, {"x": b"is x", "z": b"is z"})

    snapshot = CapturedRows(Counting(), rows).encoded()

    assert {states for names in snapshot.keyed.values() for states in names[STATES]} == {
        (b"x", b"is x")
    }


def test_changed_keys_are_replaced_also_those_without_rows() -> None:
    rows = KeyedRows({"x": [("a", b"1")]}, {"a", "b"})

    snapshot = CapturedRows(Counting(), rows).encoded()

    assert snapshot.replaced is not None
    assert {key for keys in snapshot.replaced.values() for key in keys} == {A, B}
    assert all(GROUP[name] in snapshot.replaced for name in "ab")
    assert list(snapshot.keyed) == [GROUP["a"]]


def test_members_are_stored_as_added_and_removed_ones() -> None:
    members = {"@timers": Members([("a", b"1")], [("b", b"2")])}

    snapshot = CapturedRows(Counting(), KeyedRows({}, ()), members).encoded()

    assert snapshot.members == {"@timers"}
    assert snapshot.keyed == {GROUP["a"]: {"@timers": ((A, b"1"),)}}
    assert snapshot.removed == {GROUP["b"]: {"@timers": ((B, b"2"),)}}


def test_a_key_with_several_names_is_encoded_once() -> None:
    key_codec = Counting()
    rows = KeyedRows({"x": [("a", b"1")], "y": [("a", b"2")]}, {"a"})

    CapturedRows(key_codec, rows, {"@t": Members([("a", b"3")], [("a", b"4")])}).encoded()

    assert key_codec.placed == ["a"]


def test_a_capture_can_be_encoded_again() -> None:
    captured = CapturedRows(
        Counting(), KeyedRows({"x": LazyRows([("a", 1)], lambda row: (row[0], b"1"))})
    )

    assert captured.encoded() == captured.encoded()


def test_a_key_that_cannot_be_encoded_is_named() -> None:
    captured = CapturedRows(Counting(), KeyedRows({"x": [(Card("4711"), b"1")]}))

    with pytest.raises(CheckpointError, match="step 'step' cannot store its state for key Card"):
        captured.encoded()


def test_parts_together_are_complete_or_changes_of_all_their_keys() -> None:
    one = KeyedRows({"x": [("a", b"1")]}, {"a"}, {"x": b"is x"})
    other = KeyedRows({"y": [("b", b"2")]}, {"a", "b"})

    both = merge_rows([one, other])

    assert both == KeyedRows({"x": [("a", b"1")], "y": [("b", b"2")]}, {"a", "b"}, {"x": b"is x"})
    assert merge_rows([KeyedRows({}), KeyedRows({})]).keys is None


class Text(str):
    """A class that may have mutable attributes."""

    __slots__ = ("more",)


NOT_PLAIN: list[Any] = []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([1, 2.5, "x", b"x", None, True], True),
        ([(1, "x"), 2], True),
        ([1, NOT_PLAIN], False),
        ([(1, NOT_PLAIN)], False),
        ([((1,),)], False),  # not looked at so closely
        ([((NOT_PLAIN,),)], False),
        ([Text("x")], False),
    ],
)  # fmt: skip
def test_plain_values_and_tuples_of_them_are_immutable(values: list[Any], expected: bool) -> None:
    assert are_immutable(values) is expected
