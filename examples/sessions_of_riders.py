"""Session windows: rides of one rider at most half an hour apart are one outing.

A session ends when there is no record for the length of the gap, and emits when the watermark passes its end. Several
aggregates become the fields of one result.

Prints:

    bob 08:10 to 08:40: 1 rides, 2.0 km
    ada 08:00 to 09:10: 3 rides, 11.5 km
    ada 17:10 to 17:40: 1 rides, 4.0 km
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aflow as af

GAP = timedelta(minutes=30)


@dataclass(frozen=True)
class Ride:
    rider: str
    at: str
    km: float


@dataclass(frozen=True)
class Outing:
    rides: int
    km: float


RIDES = [
    Ride("ada", "08:00", 3.0),
    Ride("ada", "08:40", 6.0),
    Ride("bob", "08:10", 2.0),
    Ride("ada", "08:20", 2.5),  # out of order: merges two outings into one
    Ride("ada", "17:10", 4.0),
]


def time_of(ride: Ride) -> datetime:
    return datetime.fromisoformat(f"2025-06-01T{ride.at}").replace(tzinfo=UTC)


def format_outing(outing: af.Windowed[str, Outing]) -> str:
    window, value = outing.window, outing.value
    return (
        f"{outing.key} {window.start_time:%H:%M} to {window.end_time:%H:%M}: "
        f"{value.rides} rides, {value.km} km"
    )


def build(rides: list[Ride], outings: af.Sink[str]) -> af.Flow:
    flow = af.Flow("outings")
    (
        flow.source(rides, name="rides")
        .event_time(time_of, max_delay=timedelta(minutes=30))
        .key_by(lambda ride: ride.rider)
        .window(af.Session(GAP))
        .aggregate(
            af.aggregates.fields(
                Outing, rides=af.aggregates.count(), km=af.aggregates.sum(lambda ride: ride.km)
            ),
            name="outings",
        )
        .map(format_outing)
        .to(outings, name="show")
    )
    return flow


if __name__ == "__main__":
    asyncio.run(build(RIDES, af.CallbackSink(print)).run())
