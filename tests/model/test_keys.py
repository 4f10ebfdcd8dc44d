"""The stable key hash: fixed vectors, and the promise that equal keys agree."""

from __future__ import annotations

import decimal
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aflow
from aflow.errors import AflowError
from aflow.model.keys import CheckedKeys, UnsupportedKey, encode_key, encode_keys, stable_hash

NEW_YORK = ZoneInfo("America/New_York")
AN_UUID = UUID("12345678-1234-5678-1234-567812345678")


class Colour(Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias, on purpose


class Level(IntEnum):
    HIGH = 3


class Code(StrEnum):
    JFK = "JFK"


class Access(Flag):
    READ = 1
    WRITE = 2


class Mode(IntFlag):
    A = 1
    B = 4


@dataclass(frozen=True)
class Route:
    origin: str
    carrier: str | None
    note: str = field(default="", compare=False)


class Pair(NamedTuple):
    first: str
    second: int


class Name(str):
    __slots__ = ()


class CaselessName(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


# (key, canonical bytes in hex, crc32). Never change one: state that was written yesterday is divided by these numbers.
VECTORS: list[tuple[Any, str, int]] = [
    ("JFK", "4a464b", 3311509919),
    ("", "", 0),
    ("Zürich €", "5ac3bc7269636820e282ac", 3350647358),
    (b"\x00\xff", "00ff", 1826356594),
    (None, "", 0),
    (True, "31", 2212294583),
    (False, "30", 4108050209),
    (0, "30", 4108050209),
    (3, "33", 1842515611),
    (-42, "2d3432", 3156848342),
    (2**64, "3138343436373434303733373039353531363136", 653721760),
    (0.0, "30", 4108050209),
    (-0.0, "30", 4108050209),
    (3.0, "33", 1842515611),
    (1e23, "3939393939393939393939393939393931363131333932", 2488252860),
    (-2.5, "2d322e35", 155669518),
    (float("inf"), "496e66696e697479", 1015270809),
    (float("-inf"), "2d496e66696e697479", 3424019370),
    (Decimal("12.3400"), "31322e3334", 3880627310),
    (Decimal("-0.00"), "30", 4108050209),
    (Decimal("1.2E+3"), "31323030", 3080943481),
    (Decimal("-1.2E-7"), "2d302e3030303030303132", 1450224178),
    (Decimal("-Infinity"), "2d496e66696e697479", 3424019370),
    ((), "", 0),
    (("JFK", 4), "4a464b1f34", 4198443038),
    (("JFK", None), "4a464b1f", 1065291020),
    (("a", ("b", b"\x01")), "611f621f01", 2600783727),
    (datetime(2013, 1, 1, 5, 15, 0, 1, UTC), "31333537303137333030303030303031", 2300391507),
    (datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), "2d353030303030", 3947868884),
    (date(2013, 1, 1), "323031332d30312d3031", 2648228957),
    (
        AN_UUID,
        "31323334353637382d313233342d353637382d313233342d353637383132333435363738",
        1385168713,
    ),
    (Colour.RED, "524544", 1824922885),
    (Level.HIGH, "33", 1842515611),
    (Code.JFK, "4a464b", 3311509919),
    (Access.READ | Access.WRITE, "33", 1842515611),
    (Mode.A | Mode.B, "35", 2226203566),
    (Route("JFK", None), "4a464b1f", 1065291020),
    (Pair("JFK", 4), "4a464b1f34", 4198443038),
]


@pytest.mark.parametrize(
    ("key", "encoded", "crc"), VECTORS, ids=[repr(key) for key, _, _ in VECTORS]
)
def test_a_key_has_the_bytes_and_the_hash_that_the_specification_fixes(
    key: Any, encoded: str, crc: int
) -> None:
    assert (encode_key(key).hex(), stable_hash(key)) == (encoded, crc)


def test_an_int_beyond_the_limit_of_int_to_text_is_still_its_decimal_digits() -> None:
    huge = 10**5000

    assert encode_key(huge) == b"1" + b"0" * 5000
    assert encode_key(-huge) == b"-1" + b"0" * 5000


def test_the_precision_of_the_decimal_context_does_not_change_an_encoding() -> None:
    digits = "1." + "7" * 60

    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.FloatOperation] = True

        assert encode_key(Decimal(digits)) == digits.encode()
        assert encode_key(0.1) == format(Decimal.from_float(0.1), "f").encode()


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.decimals(allow_nan=False)))
def test_numbers_that_compare_equal_have_equal_encodings(number: int | float | Decimal) -> None:
    twins: list[int | float | Decimal] = [number, *_as_float(number), *_as_int(number)]
    twins += [Decimal(number), Decimal(number) + 0, *([bool(number)] if number in (0, 1) else [])]

    equal = [twin for twin in twins if twin == number]

    assert {encode_key(twin) for twin in equal} == {encode_key(number)}
    assert len(set(equal)) == 1


def _as_float(number: int | float | Decimal) -> list[float]:
    try:
        return [float(number)]
    except OverflowError:
        return []


def _as_int(number: int | float | Decimal) -> list[int]:
    return [] if Decimal(number).is_infinite() else [int(number)]


@given(
    st.datetimes(timezones=st.sampled_from([UTC, NEW_YORK, timezone(timedelta(hours=5.5))])),
    st.sampled_from([UTC, NEW_YORK, ZoneInfo("Europe/Zurich"), timezone(timedelta(hours=-9))]),
)
def test_datetimes_of_two_zones_that_compare_equal_have_equal_encodings(
    moment: datetime, zone: ZoneInfo | timezone
) -> None:
    try:
        elsewhere = moment.astimezone(zone)
    except OverflowError:  # the year before 1, or after 9999
        return

    assert moment != elsewhere or encode_key(moment) == encode_key(elsewhere)


def test_both_passes_of_a_repeated_hour_are_one_key_because_python_compares_them_equal() -> None:
    first = datetime(2013, 11, 3, 1, 30, tzinfo=NEW_YORK)
    second = first.replace(fold=1)

    assert first == second
    assert encode_key(first) == encode_key(second)
    assert encode_key(first.astimezone(UTC)) != encode_key(second.astimezone(UTC))


_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.dates(), st.uuids()
)


@given(st.recursive(_scalars, lambda parts: st.tuples(parts, parts), max_leaves=6))
def test_a_key_and_its_pickled_copy_have_equal_hashes(key: Any) -> None:
    copy = pickle.loads(pickle.dumps(key))

    assert stable_hash(copy) == stable_hash(key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Level.HIGH, 3),
        (Code.JFK, "JFK"),
        (Mode.A | Mode.B, 5),
        (Name("JFK"), "JFK"),
        (Pair("a", 1), ("a", 1)),
        (Pair("a", 1), ("a", True)),
        (Route("JFK", "AA", note="x"), Route("JFK", "AA", note="y")),
        (Colour.RED, Colour.CRIMSON),
    ],
    ids=repr,
)
def test_keys_of_different_types_that_compare_equal_have_equal_encodings(
    one: Any, other: Any
) -> None:
    assert one == other
    assert encode_key(one) == encode_key(other)


class Opaque:
    pass


@dataclass
class Unfrozen:
    origin: str


@dataclass(frozen=True, eq=False)
class ByIdentity:
    origin: str


@dataclass(frozen=True)
class Holder:
    tags: list[str]


@dataclass(frozen=True)
class Peculiar:
    origin: str

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ([1], "a list is mutable; use tuple(key)"),
        ({1}, "a set is mutable; use tuple(sorted(key))"),
        (frozenset({1}), "a frozenset has no order; use tuple(sorted(key))"),
        ({"a": 1}, "use tuple(sorted(key.items())) or a frozen dataclass"),
        (bytearray(b"a"), "use bytes(key)"),
        (float("nan"), "NaN is not equal to itself"),
        (Decimal("NaN"), "NaN is not equal to itself"),
        (Decimal("sNaN"), "NaN is not equal to itself"),
        (Decimal("1E+10001"), "exponent 10001 is beyond"),
        (datetime(2013, 1, 1), "give it one, for instance key.replace(tzinfo=UTC)"),  # noqa: DTZ001
        ("\ud800", "lone surrogate at index 0"),
        (
            Unfrozen("JFK"),
            "dataclass Unfrozen is not frozen with eq; declare it @dataclass(frozen=True)",
        ),
        (ByIdentity("JFK"), "dataclass ByIdentity is not frozen with eq"),
        (Peculiar("JFK"), "Peculiar defines its own equality"),
        (CaselessName("JFK"), "CaselessName defines its own equality"),
        (CaselessName("JFK"), "use a plain str"),
        (1 + 2j, "builtins.complex has no fixed bytes; a key is made of str, bytes, int"),
        (("JFK", [1]), "its part [1] cannot be a key: a list is mutable"),
        (
            Holder(["a"]),
            "Holder(tags=['a']) cannot be a key: its part ['a'] cannot be a key: a list",
        ),
    ],
    ids=lambda value: repr(value),
)
def test_an_unsupported_key_is_refused_with_the_reason_and_the_next_step(
    key: Any, complaint: str
) -> None:
    with pytest.raises(UnsupportedKey) as caught:
        stable_hash(key)

    assert complaint in str(caught.value)
    assert caught.value.key is key


def test_an_unsupported_key_is_an_aflow_error_a_type_error_and_survives_pickling() -> None:
    error = UnsupportedKey([1], "a list is mutable; use tuple(key)")

    copy = pickle.loads(pickle.dumps(error))

    assert isinstance(copy, AflowError)
    assert isinstance(copy, TypeError)
    assert str(copy) == "[1] cannot be a key: a list is mutable; use tuple(key)"


def test_checked_keys_hold_no_more_than_their_limit() -> None:
    checked = CheckedKeys(limit=10)

    sizes: list[int] = []
    for key in range(100):
        checked[key]
        sizes.append(len(checked))

    assert max(sizes) == 10


@pytest.mark.parametrize("key", [("a", (1, 1j)), 1j], ids=repr)
def test_checked_keys_refuse_a_key_each_time(key: Any) -> None:
    checked = CheckedKeys()

    for _ in range(2):
        with pytest.raises(UnsupportedKey):
            checked[key]
    assert key not in checked


def test_the_hash_does_not_depend_on_the_seed_of_pythons_own_hash() -> None:
    program = (
        "from aflow.model.keys import stable_hash as h; from uuid import UUID; "
        "print(h('JFK'), h(('JFK', 4)), h(b'\\x00\\xff'), h(UUID(int=5)), hash('JFK'))"
    )
    here = [stable_hash(key) for key in ("JFK", ("JFK", 4), b"\x00\xff", UUID(int=5))]

    # This process has another seed.
    *there, own = _run(program, "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1")

    assert there == [str(one) for one in here]
    assert here[:2] == [3311509919, 4198443038]
    assert own != str(hash("JFK"))


def _run(program: str, seed: str) -> list[str]:
    root = str(Path(aflow.__file__).parents[1])
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
    return subprocess.run(
        [sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([], id="none"),
        pytest.param([1, -2, 3], id="of one type"),
        pytest.param([1, "1", True, None, 2.5], id="of several types"),
        pytest.param([Level.HIGH, Level.HIGH], id="of a class without an encoding of its own"),
    ],
)
def test_many_keys_are_encoded_as_each_of_them(keys: list[Any]) -> None:
    assert encode_keys(keys) == [encode_key(key) for key in keys]


@pytest.mark.parametrize("keys", [[1.5, float("nan")], ["a", []]], ids=["of one type", "of two"])
def test_a_bad_one_of_many_keys_is_refused(keys: list[Any]) -> None:
    with pytest.raises(UnsupportedKey):
        encode_keys(keys)
