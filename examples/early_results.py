"""A count that is shown at every third record, final when its minute is over, and corrected by what comes late.

A window gives one result, when the watermark passes its end, unless a trigger says otherwise. ``firing`` counts the
results of a window, so that whoever reads them keeps the last.

Prints:

    12:00 has 3 votes (result 1)
    12:00 has 5 votes (result 2)
    12:00 has 6 votes (result 3)
    12:01 has 1 votes (result 1)
"""

import asyncio
from datetime import UTC, datetime, timedelta

import aflow as af

MINUTE = timedelta(minutes=1)
VOTES = ["12:00:01", "12:00:07", "12:00:20", "12:00:31", "12:00:44", "12:01:10", "12:00:59"]


def time_of(vote: str) -> datetime:
    return datetime.fromisoformat(f"2025-06-01T{vote}").replace(tzinfo=UTC)


def shown(count: af.Windowed[None, int]) -> str:
    return f"{count.window.start_time:%H:%M} has {count.value} votes (result {count.firing})"


def build(votes: list[str], counts: af.Sink[str]) -> af.Flow:
    flow = af.Flow("votes")
    (
        flow.source(votes, name="votes")
        .event_time(time_of)
        .window_all(
            af.Tumbling(MINUTE),
            trigger=af.triggers.EventTime(early=af.triggers.Count(3)),
            lateness=MINUTE,
        )
        .aggregate(af.aggregates.count(), name="count")
        .map(shown)
        .to(counts, name="show")
    )
    return flow


if __name__ == "__main__":
    asyncio.run(build(VOTES, af.CallbackSink(print)).run())
