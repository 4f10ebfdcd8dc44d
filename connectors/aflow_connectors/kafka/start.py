"""``start=`` of ``KafkaSource``: the offset at which a partition is read first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast, get_args

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import to_timestamp

Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[tuple[str, int], int]
"""The first or the next record of each partition, the first one of a time, or offsets by topic and partition."""

LostOffsets: TypeAlias = Literal["fail", "earliest", "latest"]


def checked_start(owner: str, start: Start) -> Start:
    """Return ``start``. Raises ``FlowDefinitionError`` for anything else."""
    if isinstance(start, str) and start in ("earliest", "latest"):
        return start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise FlowDefinitionError(
                f"{owner}: start= must be a datetime with a time zone, not {start}"
            )
        return start
    if isinstance(start, Mapping) and start:
        given = cast("Mapping[object, object]", start)
        if all(map(_is_place, given)) and all(
            type(offset) is int and offset >= 0 for offset in given.values()
        ):
            return cast("Mapping[tuple[str, int], int]", dict(given))
    raise FlowDefinitionError(
        f"{owner}: start= must be 'earliest', 'latest', a datetime with a time zone, or a dict of offsets like "
        f"{{('orders', 0): 1000}}, not {shown(start)}"
    )


def checked_policy(owner: str, policy: object) -> LostOffsets:
    """Return ``policy``. Raises ``FlowDefinitionError`` for anything else."""
    if policy not in get_args(LostOffsets):
        raise FlowDefinitionError(
            f"{owner}: on_lost_offsets= must be 'fail', 'earliest' or 'latest', not {shown(policy)}"
        )
    return cast(LostOffsets, policy)


async def first_offset(consumer: Any, place: Any, start: Start, *, later: bool) -> int:
    """Return the offset at which ``place`` is read first. Raises ``SourceError`` if ``start`` does not name it.

    ``later``: a partition that was found while the source was read, of which all records are new.
    """
    if isinstance(start, Mapping):
        offset = start.get((place.topic, place.partition))
        if offset is not None:
            return offset
        if not later:
            raise SourceError(
                f"start= has no offset for partition {place.partition} of topic {place.topic!r}; it has "
                f"{shown(sorted(start))}"
            )
    if start == "earliest" or later:
        return cast(int, (await consumer.beginning_offsets([place]))[place])
    if isinstance(start, datetime):
        found = (await consumer.offsets_for_times({place: max(to_timestamp(start), 0)}))[place]
        if found is not None:
            return cast(int, found.offset)
    return cast(int, (await consumer.end_offsets([place]))[place])


def _is_place(key: object) -> bool:
    if not isinstance(key, tuple):
        return False
    parts = cast("tuple[object, ...]", key)
    return len(parts) == 2 and isinstance(parts[0], str) and type(parts[1]) is int and parts[1] >= 0
