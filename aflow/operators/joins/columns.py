"""Records of one input of a join for one key: columns in time order, and their encoding.

Records arrive nearly in order, so adding one is an append; finding those of an interval is a binary search. No object
is made for a record.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, TypeAlias, cast

from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.model.time import Timestamp

Columns: TypeAlias = tuple[list[Timestamp], list[Any]]
"""Timestamps (epoch ms), ascending, and values; records with equal timestamps are in the order of arrival."""


def insert(times: list[Timestamp], values: list[Any], at: Timestamp, value: object) -> int:
    """Insert a record after those of its timestamp, and return its index."""
    index = len(times)
    if times and times[-1] > at:
        index = bisect_right(times, at)
    times.insert(index, at)
    values.insert(index, value)
    return index


def cut(times: list[Timestamp], values: list[Any], until: Timestamp) -> int:
    """Drop the records up to timestamp ``until``, inclusive, and return their number."""
    count = bisect_right(times, until)
    del times[:count], values[:count]
    return count


def encoded(times: list[Timestamp], values: list[Any], codec: Codec[Any], *more: object) -> bytes:
    """Return columns as bytes, with ``more`` plain values. Raises ``CodecError``."""
    return PLAIN.encode([times, list(map(codec.encode, values)), *more])


def decoded(data: bytes, codec: Codec[Any]) -> tuple[list[Timestamp], list[Any], list[Any]]:
    """Return timestamps, values, and the plain values that were stored with them. Raises ``CodecError``."""
    stored: object = PLAIN.decode(data)
    if not isinstance(stored, list):
        raise CodecError(f"{len(data)} stored bytes are not the columns of a join")
    times, values, *more = cast("list[list[Any]]", stored)  # as `encoded` wrote them
    return times, list(map(codec.decode, values)), more


def stored_times(data: bytes) -> list[Timestamp]:
    """Return the timestamps of columns that ``encoded`` has written, at least one."""
    return cast("list[list[Timestamp]]", PLAIN.decode(data))[0]
