"""Aircraft that do not leave New York for a week: a timer for each leg, and an asynchronous lookup for each absence.

Timers fire as event time advances: over history in order, in a live job with flights up to a day late, and in
a live job that restored them from a savepoint. The result must not depend on the records that arrived in the
meantime, so a timer considers only the legs of its own week.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import aflow as af
from flights.backfill.registry import UNKNOWN, Kind, Registry, open_registry
from flights.flight import Flight, to_datetime

#: An aircraft without a scheduled departure for longer than this is silent.
SILENCE: Final = timedelta(days=7)

#: Concurrent calls in a subtask.
CAPACITY: Final = 200

_SILENCE_MS: Final = SILENCE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Absence:
    """An aircraft scheduled to leave for ``dest`` at ``since``, and then not again within ``SILENCE``."""

    tail: str
    since: datetime
    dest: str


@dataclass(frozen=True, slots=True)
class Silent:
    """An absence with the kind of aircraft."""

    tail: str
    since: datetime
    dest: str
    maker: str
    model: str
    seats: int


@dataclass(frozen=True, slots=True)
class Grounded:
    """Aircraft of a maker that became silent in the week that begins at ``week``."""

    maker: str
    week: datetime
    aircraft: int
    seats: int


@dataclass(slots=True)
class Fleet:
    """Accumulator of a week."""

    aircraft: int = 0
    seats: int = 0

    def add(self, silent: Silent) -> Fleet:
        """Add one aircraft."""
        return Fleet(self.aircraft + 1, self.seats + silent.seats)


class SilenceDetector(af.KeyedProcess[str, Flight, Absence]):
    """Keep the unanswered legs of an aircraft, and a timer for the first of them.

    A leg that arrives after a later one is at most a day late, so it is not the last leg of a week.
    """

    legs = af.MapState("legs", key=int, of=str)
    """Destinations by scheduled departure (epoch ms)."""

    def process(self, value: Flight, ctx: af.Context[str]) -> None:
        """Add the leg. Of two legs in the same minute, keep the first destination in alphabetical order."""
        at = round(value.scheduled.timestamp() * 1000)
        legs = ctx.state(self.legs)
        if not legs:
            ctx.set_event_timer(at + _SILENCE_MS)
        legs.put(at, min(value.dest, legs.get(at, value.dest)))

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[Absence]:
        """Emit an absence if there was no leg in the week that ends now; there may be later legs."""
        legs, since = ctx.state(self.legs), at - _SILENCE_MS
        last = max(leg for leg in legs if leg <= at)
        absent = (
            [Absence(ctx.key, to_datetime(since), legs.get(since, ""))] if last == since else []
        )
        for leg in legs:  # iterates over a copy
            if leg < last or leg == since:
                legs.remove(leg)
        if legs:
            ctx.set_event_timer(min(legs) + _SILENCE_MS)
        return absent


def silent_aircraft(flights: af.Stream[Flight], planes: Path) -> af.Stream[Silent]:
    """Return the silent aircraft with their kinds from the table ``planes``; each flight has a tail number."""
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .process(SilenceDetector(), name="silence")
        .map_async(
            look_up,
            using=af.Resource(partial(open_registry, planes), name="registry"),
            into=with_kind,
            name="ask the registry",
            capacity=CAPACITY,
            ordered=False,
        )
    )


async def look_up(absence: Absence, registry: Registry) -> Kind | None:
    """Look up the kind of aircraft."""
    return await registry.kind(absence.tail)


def with_kind(absence: Absence, kind: Kind | None) -> Silent:
    """Return the absence with the kind of aircraft."""
    kind = kind or Kind(UNKNOWN, UNKNOWN, 0)
    return Silent(absence.tail, absence.since, absence.dest, kind.maker, kind.model, kind.seats)


def grounded_aircraft(silent: af.Stream[Silent]) -> af.Stream[Grounded]:
    """Return the number of silent aircraft by maker and week."""
    return (
        silent.key_by(lambda one: one.maker)
        .window(af.Tumbling(timedelta(days=7)))
        .fold(Fleet, Fleet.add, of=Fleet, name="grounded in a week")
        .map(_grounded)
    )


def _grounded(result: af.Windowed[str, Fleet]) -> Grounded:
    fleet = result.value
    return Grounded(result.key, to_datetime(result.window.start), fleet.aircraft, fleet.seats)
