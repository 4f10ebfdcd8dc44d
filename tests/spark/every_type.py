"""Rows with every type that Spark and aflow exchange, flat and nested, as SQL and as records."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import msgspec

AT = datetime(2024, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
LOCAL = AT.replace(tzinfo=None)


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: float | None = None


class Tag(msgspec.Struct, frozen=True, rename="camel"):
    tag_name: str
    since: datetime | None = None


@dataclass(frozen=True)
class Place:
    city: str | None
    seen: datetime
    points: list[Point]
    tags: dict[str, Tag]


@dataclass(frozen=True)
class Everything:
    id: int
    tiny: int | None
    small: int | None
    long: int | None
    single: float | None
    double: float | None
    whole: float | None
    price: Decimal | None
    wide: Decimal | None
    text: str | None
    color: Color | None
    level: Level | None
    uuid: UUID | None
    raw: bytes | None
    yes: bool | None
    at: datetime | None
    there: datetime | None
    day: date | None
    days: list[date | None] | None
    moments: list[datetime | None] | None
    pair: tuple[int, int] | None
    few: frozenset[str] | None
    prices: dict[str, Decimal | None] | None
    by_place: list[tuple[Point, int]] | None
    point: Point | None
    tag: Tag | None
    place: Place | None
    places: list[Place | None] | None
    by_day: dict[date, list[Place]] | None


PLACE = Place("Oslo", AT, [Point(1, 1.5), Point(2)], {"a": Tag("A", AT), "b": Tag("B")})

FULL = Everything(
    id=0,
    tiny=-128,
    small=-32_768,
    long=-(2**63),
    single=0.5,
    double=-1e300,
    whole=7.0,
    price=Decimal("1.50"),
    wide=Decimal("12345678901234567890.123456789012345678"),
    text="Ærø",
    color=Color.RED,
    level=Level.HIGH,
    uuid=UUID(int=1),
    raw=b"\x00\xff",
    yes=True,
    at=AT,
    there=LOCAL,
    day=date(1, 1, 1),
    days=[date(9999, 12, 31), None],
    moments=[AT, None],
    pair=(1, 2),
    few=frozenset({"one"}),
    prices={"a": Decimal("0.10"), "b": None},
    by_place=[(Point(1, 1.5), 1)],
    point=Point(1, 1.5),
    tag=Tag("A", AT),
    place=PLACE,
    places=[PLACE, None, replace(PLACE, city=None, points=[], tags={})],
    by_day={date(2024, 1, 1): [PLACE]},
)
EMPTY = Everything(1, *[None] * 28)
ROWS = [FULL, EMPTY]

_POINT = "struct<x: int, y: double>"
_TAG = "struct<tagName: string, since: timestamp>"
_PLACE = (
    f"struct<city: string, seen: timestamp, points: array<{_POINT}>, tags: map<string, {_TAG}>>"
)

SCHEMA = f"""
    id int, tiny tinyint, small smallint, long bigint, single float, double double, whole bigint, price decimal(10, 2),
    wide decimal(38, 18), text string, color string, level int, uuid string, raw binary, yes boolean, at timestamp,
    there timestamp_ntz, day date, days array<date>, moments array<timestamp>, pair array<int>, few array<string>,
    prices map<string, decimal(10, 2)>, by_place map<{_POINT}, int>, point {_POINT}, tag {_TAG}, place {_PLACE},
    places array<{_PLACE}>, by_day map<date, array<{_PLACE}>>
"""

_AT_SQL = "timestamp'2024-01-01 12:00:00.123456'"
_POINTS_SQL = (
    "array(named_struct('x', 1, 'y', 1.5D), named_struct('x', 2, 'y', CAST(NULL AS double)))"
)
_TAGS_SQL = (
    f"map('a', named_struct('tagName', 'A', 'since', {_AT_SQL}), "
    f"'b', named_struct('tagName', 'B', 'since', CAST(NULL AS timestamp)))"
)


def _place_sql(city: str, points: str, tags: str) -> str:
    return f"named_struct('city', {city}, 'seen', {_AT_SQL}, 'points', {points}, 'tags', {tags})"


_OSLO_SQL = _place_sql("'Oslo'", _POINTS_SQL, _TAGS_SQL)
_BARE_SQL = _place_sql("NULL", "array()", "map()")

#: The values of ``FULL`` in the order of the columns.
_VALUES = [
    "0",
    "CAST(-128 AS tinyint)",
    "CAST(-32768 AS smallint)",
    "-9223372036854775808L",
    "CAST(0.5 AS float)",
    "-1e300D",
    "7L",
    "1.50",
    "CAST('12345678901234567890.123456789012345678' AS decimal(38, 18))",
    "'Ærø'",
    "'red'",
    "3",
    f"'{UUID(int=1)}'",
    "X'00FF'",
    "true",
    _AT_SQL,
    "timestamp_ntz'2024-01-01 12:00:00.123456'",
    "date'0001-01-01'",
    "array(date'9999-12-31', NULL)",
    f"array({_AT_SQL}, NULL)",
    "array(1, 2)",
    "array('one')",
    "map('a', 0.10, 'b', NULL)",
    "map(named_struct('x', 1, 'y', 1.5D), 1)",
    "named_struct('x', 1, 'y', 1.5D)",
    f"named_struct('tagName', 'A', 'since', {_AT_SQL})",
    _OSLO_SQL,
    f"array({_OSLO_SQL}, NULL, {_BARE_SQL})",
    f"map(date'2024-01-01', array({_OSLO_SQL}))",
]

#: The rows of ``ROWS``, whose columns are to be cast to the types of ``SCHEMA``.
SQL = f"VALUES ({', '.join(_VALUES)}), (1, {', '.join(['NULL'] * 28)})"
