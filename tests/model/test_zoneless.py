"""Datetimes without a time zone are found in values of any type, and looked for in few."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.model.codecs import PLAIN, codec_for
from aflow.model.codecs.zoneless import may_hold_zoneless, search_plain, zoneless_search

T = TypeVar("T")
NAIVE = datetime.fromisoformat("2026-01-01T12:00")
AWARE = NAIVE.replace(tzinfo=UTC)

Local = Annotated[datetime, msgspec.Meta(tz=False)]
Aware = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass
class Order:
    at: datetime
    cents: int = 0
    former: Order | None = None
    notes: list[str] = field(default_factory=list)


class Visit(msgspec.Struct):
    times: dict[str, list[datetime]]


class Pair(NamedTuple):
    name: str
    at: datetime | None


class Choices(TypedDict, total=False):
    since: datetime
    name: str


@dataclass
class Holding(Generic[T]):
    held: T


@dataclass
class Shop:
    opens: Local
    known: Aware


@pytest.mark.parametrize(
    ("of", "value", "path"),
    [
        (datetime, NAIVE, ""),
        (Order, Order(NAIVE), ".at"),
        (Order, Order(AWARE, former=Order(NAIVE)), ".former.at"),
        (Order, Order(AWARE, former=Order(AWARE, former=Order(NAIVE))), ".former.former.at"),
        (Visit, Visit({"a": [AWARE], "b": [AWARE, NAIVE]}), ".times['b'][1]"),
        (Pair, Pair("a", NAIVE), ".at"),
        (Choices, {"since": NAIVE}, "['since']"),
        (tuple[int, datetime], (1, NAIVE), "[1]"),
        (tuple[datetime, ...], (AWARE, NAIVE), "[1]"),
        (set[datetime], {NAIVE}, "{…}"),
        (dict[datetime, int], {NAIVE: 1}, ".keys()"),
        (int | datetime, NAIVE, ""),
        (Holding[datetime], Holding(NAIVE), ".held"),
        (Annotated[datetime, msgspec.Meta(description="noon")], NAIVE, ""),
    ],
    ids=repr,
)
def test_a_datetime_without_a_zone_is_found_with_its_path(of: Any, value: Any, path: str) -> None:
    search = zoneless_search(of)

    assert search is not None
    assert search(value) == path


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Order, Order(AWARE, former=Order(AWARE))),
        (Visit, Visit({"a": [AWARE], "b": []})),
        (Pair, Pair("a", None)),
        (Choices, {"name": "a"}),
        (int | datetime, 7),
        (tuple[int, datetime], (1, AWARE)),
        (dict[datetime, datetime], {AWARE: AWARE}),
    ],
    ids=repr,
)
def test_nothing_is_found_in_values_with_zones(of: Any, value: Any) -> None:
    search = zoneless_search(of)

    assert search is not None
    assert search(value) is None


@pytest.mark.parametrize(
    "of", [int, str, Holding[str], dict[str, list[float]], date, time, Shop, list[Local]], ids=repr
)
def test_values_of_a_type_that_holds_none_or_declares_them_are_not_searched(of: Any) -> None:
    assert zoneless_search(of) is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (NAIVE, ""),
        ({"at": [1, (AWARE, NAIVE)]}, "['at'][1][1]"),
        ({NAIVE: 1}, ".keys()"),
        (frozenset({NAIVE}), "{…}"),
    ],
    ids=repr,
)
def test_a_plain_value_is_searched(value: Any, path: str) -> None:
    assert search_plain(value) == path
    assert may_hold_zoneless(PLAIN.encode(value))


@pytest.mark.parametrize(
    "value", [{"card": "c1", "cents": 700}, AWARE, [1.5, None], "text"], ids=repr
)
def test_most_plain_values_need_no_search(value: Any) -> None:
    assert not may_hold_zoneless(PLAIN.encode(value))


_MOMENTS = st.datetimes() | st.datetimes(timezones=st.just(UTC))


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | _MOMENTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=6,
    )
)
def test_each_plain_value_in_which_something_is_found_is_searched(value: Any) -> None:
    assert search_plain(value) is None or may_hold_zoneless(PLAIN.encode(value))


def test_a_declared_zone_is_enforced_by_the_codec() -> None:
    codec = codec_for(Shop)

    assert codec.decode(codec.encode(Shop(NAIVE, AWARE))) == Shop(NAIVE, AWARE)
    with pytest.raises(ValueError, match="timezone"):
        msgspec.msgpack.decode(codec.encode(Shop(AWARE, AWARE)), type=Shop)
