"""Entries in the bytes of part files: what is read, and what is stored of them again."""

from __future__ import annotations

from itertools import chain
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from aflow.state import stored_entries
from aflow.state.parts import decoded, encoded
from aflow.state.snapshot import Entry, OperatorSnapshot, merge, replay
from aflow.state.stored_entries import PIECE, StoredEntries, batched, in_pieces, joined

entries = st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=40)


def part(rows: list[Entry]) -> bytes:
    return b"".join(encoded({"step": OperatorSnapshot({0: {"last": tuple(rows)}})}, aflow="1"))


def read(data: bytes) -> OperatorSnapshot:
    return decoded(data, what="the part")["step"]


def as_stored(rows: list[Entry]) -> StoredEntries:
    found = read(part(rows)).keyed[0]["last"]
    assert isinstance(found, StoredEntries)
    return found


@given(rows=entries)
def test_stored_entries_are_a_sequence_of_the_entries(rows: list[Entry]) -> None:
    stored = as_stored(rows)

    assert (list(stored), len(stored), bool(stored)) == (rows, len(rows), bool(rows))
    assert stored == tuple(rows)
    assert tuple(rows) == stored
    assert stored != (*rows, (b"", b"another"))
    assert list(stored[1:3]) == rows[1:3]
    assert [stored[index] for index in range(len(rows))] == rows


@given(rows=entries, most=st.integers(1, 50))
def test_pieces_are_the_entries_in_their_order_and_never_empty(
    rows: list[Entry], most: int
) -> None:
    for some in (as_stored(rows), tuple(rows)):
        with patch.object(stored_entries, "PIECE", most):
            pieces = list(in_pieces(some))

        assert list(chain.from_iterable(pieces)) == rows
        assert all(1 <= len(piece) <= most for piece in pieces)


def test_pieces_of_large_entries_have_few_of_them() -> None:
    large = as_stored([(b"%d" % n, bytes(10_000)) for n in range(50)])
    small = as_stored([(b"%d" % n, bytes(10)) for n in range(5000)])

    assert {len(piece) for piece in in_pieces(large)} <= {1, 2, 3}
    assert max(len(piece) for piece in in_pieces(small)) == PIECE


def test_entries_of_any_number_have_their_length() -> None:
    for count in (0, 15, 16, 4095, 4096, 70_000):
        assert len(as_stored([(b"k", b"v")] * count)) == count


@given(rows=entries)
def test_selected_entries_are_those_that_the_selection_returns(rows: list[Entry]) -> None:
    stored = as_stored(rows).selected(lambda some: [one for one in some if one[0] > b"a"])

    assert stored == tuple(one for one in rows if one[0] > b"a")


@given(pieces=st.lists(st.tuples(entries, st.booleans()), min_size=1, max_size=5))
def test_joined_entries_are_those_of_all_pieces(pieces: list[tuple[list[Entry], bool]]) -> None:
    found = joined([as_stored(rows) if stored else tuple(rows) for rows, stored in pieces])

    assert list(found) == [row for rows, _ in pieces for row in rows]


@given(rows=entries)
def test_what_was_read_is_stored_again_as_the_same_entries(rows: list[Entry]) -> None:
    stored = read(part(rows))

    again = read(b"".join(encoded({"step": stored}, aflow="1")))

    assert again == stored == OperatorSnapshot({0: {"last": tuple(rows)}})


def test_many_stored_frames_are_divided_among_frames_of_limited_size() -> None:
    keyed = {group: {"last": tuple([(b"key", b"value")] * 3000)} for group in range(5)}
    stored = read(b"".join(encoded({"step": OperatorSnapshot(keyed)}, aflow="1")))

    pieces = list(encoded({"step": stored}, aflow="1"))

    assert read(b"".join(pieces)).keyed == keyed
    assert max(map(len, pieces)) < 100_000


def test_changes_are_replayed_over_stored_entries() -> None:
    base = read(part([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]))
    changes = OperatorSnapshot(
        {0: {"last": ((b"b", b"2"),)}}, replaced={0: frozenset({b"b", b"c"})}
    )

    found = merge([replay([base, changes])])

    assert sorted(found.keyed[0]["last"]) == [(b"a", b"1"), (b"b", b"2")]


@given(items=st.lists(st.integers()), most=st.integers(1, 9))
def test_batches_are_the_items_in_their_order(items: list[int], most: int) -> None:
    with patch.object(stored_entries, "PIECE", most):
        batches = list(batched(items))

    assert list(chain.from_iterable(batches)) == items
    assert all(1 <= len(one) <= most for one in batches)
