"""Ids of entries, and the first id that a stream is read from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import to_timestamp

StartEntry: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[str, str]
"""The first or the next entry of each stream, the first one of a time, or the ids of the first ones by stream."""

LostEntries: TypeAlias = Literal["fail", "earliest", "latest"]

_LARGEST: Final = 2**64 - 1


class EntryId(NamedTuple):
    """An id in the order of its stream."""

    ms: int
    """Epoch ms, if the server chose the id."""
    number: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> EntryId:
        """Return the id in ``text``; without a number, the first one of its millisecond. Raises ``ValueError``."""
        found = re.fullmatch(r"(\d{1,20})(?:-(\d{1,20}))?", text, re.ASCII)
        if found is None:
            raise ValueError(f"{text!r} is no id of an entry, like '1700000000000-0'")
        return cls(int(found[1]), int(found[2] or 0))

    @classmethod
    def of_tag(cls, tag: int) -> EntryId:
        """Return the id of a number that ``tag`` has returned."""
        return cls(tag >> 64, tag & _LARGEST)

    def tag(self) -> int:
        """Return a number in the order of the ids."""
        return self.ms << 64 | self.number

    def packed(self) -> bytes:
        """Return it as 16 bytes."""
        return self.tag().to_bytes(16)

    def before(self) -> EntryId:
        """Return the largest id before this one; the smallest one for itself."""
        if self.number:
            return EntryId(self.ms, self.number - 1)
        return EntryId(self.ms - 1, _LARGEST) if self.ms else BEGINNING


BEGINNING: Final = EntryId(0, 0)
"""An id before all entries: no entry can have it."""


def checked_start_entry(owner: str, start: StartEntry) -> StartEntry:
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
        if all(isinstance(name, str) for name in given) and all(map(_is_id, given.values())):
            return cast("Mapping[str, str]", dict(given))
    raise FlowDefinitionError(
        f"{owner}: start= must be 'earliest', 'latest', a datetime with a time zone, or a dict of ids like "
        f"{{'orders': '1700000000000-0'}}, not {shown(start)}"
    )


def checked_lost_entries(owner: str, policy: object) -> LostEntries:
    """Return ``policy``. Raises ``FlowDefinitionError`` for anything else."""
    if policy not in get_args(LostEntries):
        raise FlowDefinitionError(
            f"{owner}: on_lost_entries= must be 'fail', 'earliest' or 'latest', not {shown(policy)}"
        )
    return cast(LostEntries, policy)


def id_of_time(moment: datetime) -> EntryId:
    """Return the first id of ``moment``."""
    return EntryId(max(to_timestamp(moment), 0), 0)


def _is_id(text: object) -> bool:
    try:
        EntryId.parse(cast(str, text))
    except (TypeError, ValueError):
        return False
    return True
