"""A flight as the table of 2013 has it, and what stands in a table without being what it should."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

import aflow as af

#: Made once: every flight is asked for its departure several times.
_MINUTES: Final = tuple(timedelta(minutes=minute) for minute in range(60))

Airport = Annotated[str, Meta(min_length=3, max_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A row of the table of flights, as far as it is needed; what does not fit is malformed."""

    time_hour: Annotated[datetime, Meta(tz=True)]
    """Scheduled departure, cut to the hour."""
    minute: Annotated[int, Meta(ge=0, le=59)]
    dep_delay: int | None
    """Minutes between scheduled and actual departure, below zero if it left early; None for a cancelled flight."""
    carrier: Annotated[str, Meta(min_length=2)]
    flight: int
    tailnum: Annotated[str, Meta(min_length=1)] | None
    """The aircraft; None for 2,512 flights, all of them cancelled."""
    origin: Airport
    dest: Airport

    @property
    def scheduled(self) -> datetime:
        """The scheduled departure to the minute."""
        return self.time_hour + _MINUTES[self.minute]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something in an input that is no record of it."""

    place: str
    reason: str
    text: str


MALFORMED: Final = af.Tag[af.BadRecord]("malformed")


def malformed(record: af.BadRecord) -> Malformed:
    """A bad record, readable."""
    return Malformed(record.place, record.reason, record.raw.decode("utf-8", "backslashreplace"))


def moment(timestamp: int) -> datetime:
    """The moment of a timestamp (epoch ms)."""
    return datetime.fromtimestamp(timestamp / 1000, UTC)
