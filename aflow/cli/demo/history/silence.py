"""Which aircraft does New York not see for a week? A timer for each leg, and a question about each that stays away.

Timers ring as event time passes, whenever that is: over a history in order, in a live job whose flights come up to a
day late, and in a live job that found them set. So the answer must not depend on what has come in the meantime: a timer
looks at the legs of its own week only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight, moment
from aflow.cli.demo.history.registry import UNKNOWN, Kind, Registry, opened
from aflow.model.time import Timestamp, to_timestamp

#: An aircraft that is not to leave New York for longer than that is silent.
SILENCE: Final = timedelta(days=7)

#: Calls that are under way at once in a subtask.
AT_ONCE: Final = 200

_SILENCE_MS: Final = SILENCE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Away:
    """An aircraft that was to leave for ``dest`` at ``since``, and then not again within ``SILENCE``."""

    tail: str
    since: datetime
    dest: str


@dataclass(frozen=True, slots=True)
class Silent:
    """The same, with what the registry knows."""

    tail: str
    since: datetime
    dest: str
    maker: str
    model: str
    seats: int


@dataclass(frozen=True, slots=True)
class Grounded:
    """Aircraft of a maker whose silence was long enough in the week from ``week`` on."""

    maker: str
    week: datetime
    aircraft: int
    seats: int


@dataclass(slots=True)
class Fleet:
    """What has been seen of a week."""

    aircraft: int = 0
    seats: int = 0

    def add(self, silent: Silent) -> Fleet:
        """One more."""
        return Fleet(self.aircraft + 1, self.seats + silent.seats)


class Silence(af.KeyedProcess[str, Flight, Away]):
    """Keeps the legs of an aircraft, as far as they are not answered for, and a timer for the first of them.

    A leg that comes in behind a later one is no more than a day late: it is not the last one of a week.
    """

    legs = af.MapState("legs", key=int, of=str)
    """Destinations by scheduled departure (epoch ms)."""

    def process(self, value: Flight, ctx: af.Context[str]) -> None:
        """Remember the leg. Of two in the same minute, which there are, the first in the alphabet."""
        at = to_timestamp(value.scheduled)
        legs = ctx.state(self.legs)
        if not legs:
            ctx.set_event_timer(at + _SILENCE_MS)
        legs.put(at, min(value.dest, legs.get(at, value.dest)))

    def on_timer(self, at: Timestamp, ctx: af.Context[str]) -> Iterable[Away]:
        """The aircraft, if it was not to leave again in the week that is over; legs from then on may be there."""
        legs, since = ctx.state(self.legs), at - _SILENCE_MS
        last = max(leg for leg in legs if leg <= at)
        gone = [Away(ctx.key, moment(since), legs.get(since, ""))] if last == since else []
        for leg in legs:  # those of this moment
            if leg < last or leg == since:
                legs.remove(leg)
        if legs:
            ctx.set_event_timer(min(legs) + _SILENCE_MS)
        return gone


def silent_aircraft(flights: af.Stream[Flight], planes: Path) -> af.Stream[Silent]:
    """Aircraft that stay away, each looked up in the registry ``planes``; all flights have a tail number."""
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .process(Silence(), name="silence")
        .map_async(
            ask,
            using=af.Resource(partial(opened, planes), name="registry"),
            into=known,
            name="ask the registry",
            capacity=AT_ONCE,
            ordered=False,
        )
    )


async def ask(away: Away, registry: Registry) -> Kind | None:
    """What the registry says."""
    return await registry.kind(away.tail)


def known(away: Away, kind: Kind | None) -> Silent:
    """Both together."""
    kind = kind or Kind(UNKNOWN, UNKNOWN, 0)
    return Silent(away.tail, away.since, away.dest, kind.maker, kind.model, kind.seats)


def grounded_aircraft(silent: af.Stream[Silent]) -> af.Stream[Grounded]:
    """How many they are, by maker and week."""
    return (
        silent.key_by(lambda one: one.maker)
        .window(af.Tumbling(timedelta(days=7)))
        .fold(Fleet, Fleet.add, of=Fleet, name="grounded in a week")
        .map(_grounded)
    )


def _grounded(result: af.Windowed[str, Fleet]) -> Grounded:
    fleet = result.value
    return Grounded(result.key, moment(result.window.start), fleet.aircraft, fleet.seats)
