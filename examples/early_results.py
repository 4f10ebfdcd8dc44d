"""Early, on-time and late results of a window: count votes per minute, and emit at every third vote.

By default a window emits one result, when the watermark passes its end. A trigger adds early results, and
``lateness`` adds a corrected result for each late record. ``firing`` numbers the results of a window; the last one is
the best.

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


def format_count(count: af.Windowed[None, int]) -> str:
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
        .map(format_count)
        .to(counts, name="show")
    )
    return flow


if __name__ == "__main__":
    asyncio.run(build(VOTES, af.CallbackSink(print)).run())
