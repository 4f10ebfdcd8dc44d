"""Part files: decoding reverses encoding, in frames of bounded size; other bytes are refused."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import RestoreError
from aflow.state.manifest import FORMAT
from aflow.state.parts import MAGIC, PartReader, decoded, encoded
from aflow.state.snapshot import Entry, OperatorSnapshot

few_bytes = st.binary(max_size=4)
names = st.sampled_from(["", "last", "@timers", "→ ü"])
rows = st.lists(st.tuples(few_bytes, few_bytes), max_size=4).map(tuple)
values = st.lists(few_bytes, max_size=4).map(tuple)
filed = st.dictionaries(
    st.integers(0, 40_000), st.dictionaries(names, rows, min_size=1, max_size=3)
)
named = st.dictionaries(names, values, max_size=3)
replaced = st.dictionaries(st.integers(0, 300), st.frozensets(few_bytes, max_size=3))
snapshots = st.builds(
    OperatorSnapshot, filed, named, named, st.none() | replaced, filed, st.frozensets(names)
)
steps = st.dictionaries(names, snapshots, max_size=3)


def part(steps: dict[str, OperatorSnapshot]) -> bytes:
    return b"".join(encoded(steps, aflow="1.2.3"))


def frames(data: bytes) -> Iterator[bytes]:
    """Return all frames except the first, which names the steps, and the last, which is empty."""
    at, first = len(MAGIC) + 4 + len("1.2.3"), True
    while True:
        (length,) = struct.unpack_from(">Q", data, at)
        if not length:
            return
        if not first:
            yield data[at + 8 : at + 8 + length]
        first = False
        at += 8 + length


#: Tests with many positions in each part; drawing the part takes most of the time.
few_parts = settings(max_examples=25)


def positions(data: st.DataObject, part: bytes | bytearray) -> list[int]:
    """Draw positions in ``part``."""
    return data.draw(st.lists(st.integers(0, len(part) - 1), min_size=6, max_size=6))


@pytest.mark.slow
@given(steps)
def test_decoding_reverses_encoding(steps: dict[str, OperatorSnapshot]) -> None:
    assert decoded(part(steps), what="part") == steps


@pytest.mark.slow
@given(steps, st.data())
@few_parts
def test_a_part_that_was_cut_off_is_refused(
    steps: dict[str, OperatorSnapshot], data: st.DataObject
) -> None:
    whole = part(steps)

    for cut in positions(data, whole):
        with pytest.raises(RestoreError, match="some file"):
            decoded(whole[:cut], what="some file")


@pytest.mark.slow
@given(steps, st.data())
@few_parts
def test_changed_bytes_are_read_or_refused_without_another_error(
    steps: dict[str, OperatorSnapshot], data: st.DataObject
) -> None:
    whole = part(steps)

    for at in positions(data, whole):
        changed = bytearray(whole)
        changed[at] ^= data.draw(st.integers(1, 255))
        with suppress(RestoreError):
            decoded(bytes(changed), what="part")


@pytest.mark.parametrize("data", [b"", b"AFLO", b"PK\x03\x04 and more", b"{}"])
def test_bytes_that_are_no_part_are_refused(data: bytes) -> None:
    with pytest.raises(RestoreError, match=r"^notes\.txt is no part of a checkpoint"):
        decoded(data, what="notes.txt")


def test_a_newer_format_is_refused_naming_the_version_that_wrote_it() -> None:
    data = bytearray(part({}))
    data[len(MAGIC) : len(MAGIC) + 2] = struct.pack(">H", FORMAT + 1)

    with pytest.raises(
        RestoreError, match=rf"format {FORMAT + 1}, written by aflow 1\.2\.3; .*upgrade aflow"
    ):
        decoded(bytes(data), what="part")


def test_a_part_can_be_read_by_its_description_in_the_reference() -> None:
    snapshot = OperatorSnapshot(
        {7: {"last": ((b"a", b"1"),)}},
        {"@at": (b"x", b"y")},
        {"rules": (b"r",)},
        {7: frozenset({b"a"})},
        {7: {"timers": ((b"t", b""),)}},
        frozenset({"timers"}),
    )

    data = part({"sums": snapshot})

    version = b"1.2.3"
    head = b"AFLOWPRT" + struct.pack(">HH", 1, len(version)) + version
    first = msgspec.msgpack.encode([["sums", True, ["timers"]]])
    (body,) = frames(data)
    assert data == b"".join(
        [head, struct.pack(">Q", len(first)), first, struct.pack(">Q", len(body)), body, bytes(8)]
    )
    assert msgspec.msgpack.decode(body) == [
        [0, 0, 0, 7, "last", [[b"a", b"1"]]],
        [0, 1, 0, 7, "timers", [[b"t", b""]]],
        [1, 2, 0, 7, "", [b"a"]],
        [1, 3, 0, 0, "@at", [b"x", b"y"]],
        [1, 4, 0, 0, "rules", [b"r"]],
    ]


def entries_of(count: int, value: bytes) -> tuple[Entry, ...]:
    return tuple((b"%d" % number, value) for number in range(count))


@pytest.mark.parametrize("groups", [1, 128], ids=lambda n: f"{n} key groups")
def test_many_rows_are_read_from_many_small_frames(groups: int) -> None:
    many = entries_of(50_000, b"value")
    keyed = {group: {"last": many[group::groups]} for group in range(groups)}
    operator = {"@in flight": tuple(key for key, _ in many)}
    steps = {"sums": OperatorSnapshot(keyed, operator)}

    data = part(steps)

    assert decoded(data, what="part") == steps
    sizes = [len(frame) for frame in frames(data)]
    assert len(sizes) > 20
    assert max(sizes) < 128 * 1024


def test_large_values_make_frames_of_few_rows() -> None:
    steps = {"sums": OperatorSnapshot({0: {"last": entries_of(256, bytes(100_000))}})}

    data = part(steps)

    assert decoded(data, what="part") == steps
    sizes = [len(frame) for frame in frames(data)]
    assert max(sizes[1:], default=0) < 3 * 1024 * 1024


def test_many_names_without_rows_do_not_make_one_frame() -> None:
    steps = {"sums": OperatorSnapshot({group: {"last": ()} for group in range(20_000)})}

    data = part(steps)

    assert decoded(data, what="part") == steps
    assert len(list(frames(data))) > 3


def read(pieces: Iterable[bytes], groups: Container[int] = range(40_001)) -> tuple[str, ...]:
    reading = PartReader(what="the part", groups=groups)
    for piece in pieces:
        reading.add(piece)
    return reading.end()


@pytest.mark.slow
@given(steps, st.lists(st.integers(1, 50), min_size=4, max_size=4))
@few_parts
def test_a_part_is_checked_in_pieces_of_any_size(
    steps: dict[str, OperatorSnapshot], sizes: list[int]
) -> None:
    whole = {name: replace(one, replaced=None) for name, one in steps.items()}
    data = part(whole)

    for size in sizes:
        named = read(data[at : at + size] for at in range(0, len(data), size))
        assert named == tuple(whole)


@pytest.mark.slow
@given(steps, st.data())
@few_parts
def test_an_incomplete_part_is_refused(
    steps: dict[str, OperatorSnapshot], data: st.DataObject
) -> None:
    content = part({name: replace(one, replaced=None) for name, one in steps.items()})

    for cut in positions(data, content):
        with pytest.raises(RestoreError, match=r"the part ends before its last frame"):
            read([content[:cut]])


def test_state_outside_of_the_key_groups_of_a_part_is_refused() -> None:
    content = part({"sums": OperatorSnapshot({7: {"last": ((b"k", b"v"),)}})})

    assert read([content], groups=range(7, 8)) == ("sums",)
    with pytest.raises(RestoreError, match="key group 7 for step 'sums'"):
        read([content], groups=range(7))
