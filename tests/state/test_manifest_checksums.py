"""Messages about bytes that differ from those in a manifest."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from aflow.state.manifest import FileRef, checksum, wrong_with


def test_the_checksum_is_the_common_crc_32() -> None:
    assert checksum(b"123456789") == "cbf43926"


@given(st.binary(), st.binary())
def test_a_checksum_can_be_computed_piece_by_piece(one: bytes, other: bytes) -> None:
    assert checksum(other, int(checksum(one), 16)) == checksum(one + other)


@given(st.binary())
def test_the_bytes_of_the_manifest_are_accepted(data: bytes) -> None:
    assert wrong_with(FileRef("part", len(data), checksum(data)), data) is None
    assert (
        wrong_with(FileRef("part", len(data), f"sha256:{sha256(data).hexdigest()}"), data) is None
    )


def test_the_difference_is_described() -> None:
    ref = FileRef("part", 4, checksum(b"abcd"))

    assert wrong_with(ref, b"abc") == "is truncated: 3 bytes in place of 4"
    assert wrong_with(ref, b"abcde") == "is too long: 5 bytes in place of 4"
    assert (wrong_with(ref, b"abcx") or "").startswith("is corrupt: its checksum is ")


def test_a_stronger_checksum_is_checked_too() -> None:
    ref = FileRef("part", 4, f"sha256:{sha256(b'abcd').hexdigest()}")

    assert (wrong_with(ref, b"abcx") or "").startswith("is corrupt: its checksum is sha256:")


def test_a_checksum_of_an_unknown_kind_is_not_accepted() -> None:
    wrong = wrong_with(FileRef("part", 4, "blake9:00"), b"abcd")

    assert wrong == "has a checksum of a kind unknown to this version of aflow: blake9:00"
