"""Records of the table of flights, and records of input that cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

import aflow as af

#: Built once: the departure of each flight is computed several times.
_MINUTES: Final = tuple(timedelta(minutes=minute) for minute in range(60))

Airport = Annotated[str, Meta(min_length=3, max_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A row of the table of flights, with the columns that are used. A row that does not fit is malformed."""

    time_hour: Annotated[datetime, Meta(tz=True)]
    """Scheduled departure, truncated to the hour."""
    minute: Annotated[int, Meta(ge=0, le=59)]
    dep_delay: int | None
    """Minutes from scheduled to actual departure, negative if early; None if cancelled."""
    carrier: Annotated[str, Meta(min_length=2)]
    flight: int
    tailnum: Annotated[str, Meta(min_length=1)] | None
    """Aircraft; None for 2,512 flights, all cancelled."""
    origin: Airport
    dest: Airport

    @property
    def scheduled(self) -> datetime:
        """Scheduled departure to the minute."""
        return self.time_hour + _MINUTES[self.minute]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line of an input that is not a record."""

    place: str
    reason: str
    text: str


MALFORMED: Final = af.Tag[af.connect.BadRecord]("malformed")


def malformed(record: af.connect.BadRecord) -> Malformed:
    """Return ``record`` with its bytes as text."""
    return Malformed(record.place, record.reason, record.raw.decode("utf-8", "backslashreplace"))


def to_datetime(timestamp: int) -> datetime:
    """Convert epoch milliseconds."""
    return datetime.fromtimestamp(timestamp / 1000, UTC)
