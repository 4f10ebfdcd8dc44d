"""The records that one input of a join holds for one key: columns in the order of time, and their bytes.

Records come nearly in order, so adding one is an append; finding those of an interval is a binary search. No object is
made for a record.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, TypeAlias, cast

from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.model.time import Timestamp

Columns: TypeAlias = tuple[list[Timestamp], list[Any]]
"""Timestamps (epoch ms), ascending, and values; of equal timestamps the one that came first is first."""


def insert(times: list[Timestamp], values: list[Any], at: Timestamp, value: object) -> int:
    """Put a record in its place behind those of its timestamp; returns where that is."""
    index = len(times)
    if times and times[-1] > at:
        index = bisect_right(times, at)
    times.insert(index, at)
    values.insert(index, value)
    return index


def cut(times: list[Timestamp], values: list[Any], until: Timestamp) -> int:
    """Drop the records up to timestamp ``until``, inclusive; returns how many."""
    count = bisect_right(times, until)
    del times[:count], values[:count]
    return count


def encoded(times: list[Timestamp], values: list[Any], codec: Codec[Any], *more: object) -> bytes:
    """The bytes of columns, with ``more`` plain values. Raises ``CodecError``."""
    return PLAIN.encode([times, list(map(codec.encode, values)), *more])


def decoded(data: bytes, codec: Codec[Any]) -> tuple[list[Timestamp], list[Any], list[Any]]:
    """Timestamps, values, and the plain values that were stored with them. Raises ``CodecError``."""
    stored: object = PLAIN.decode(data)
    if not isinstance(stored, list):
        raise CodecError(f"{len(data)} stored bytes are not the columns of a join")
    times, values, *more = cast("list[list[Any]]", stored)  # as `encoded` wrote them
    return times, list(map(codec.decode, values)), more
