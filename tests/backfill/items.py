"""Records of the flows that run over history here, and their event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

import aflow as af

#: A record that only shows how late it is. It is dropped after the step that checks the time.
TICK = -1


@dataclass(frozen=True, slots=True)
class Item:
    """Input and output of all steps. ``at`` is always its timestamp."""

    key: int
    n: int
    at: int


Items = af.Stream[Item]
Row = tuple[int, int, int]


def millis(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def key_of(item: Item) -> int:
    return item.key


def keyed(items: Items) -> af.KeyedStream[int, Item]:
    return items.key_by(key_of)


def drawn(
    random: Random, count: int, *, keys: int = 5, lasts: int = 600, together: bool = True
) -> list[Item]:
    """Items in time order. If not ``together``, all times differ."""
    if together:
        moments = sorted(random.choices(range(lasts), k=count))
    else:
        moments = sorted(random.sample(range(lasts), k=min(count, lasts)))
    return [Item(random.randrange(keys), random.randrange(1000), at) for at in moments]


def ticking(items: Sequence[Item], lasts: int = 600) -> list[Item]:
    """The items, with a tick before those of each moment: after it a live job's watermark has reached the moment."""
    ticks = [Item(TICK, 0, at) for at in range(lasts)]
    return sorted([*ticks, *items], key=lambda item: (item.at, item.key != TICK))


def no_tick(item: Item) -> bool:
    return item.key != TICK


def at_of(item: Item) -> int:
    return item.at


class Told(af.ProcessFunction[Item, Row]):
    """Rows of items with their expected content."""

    def process(self, value: Item, ctx: af.ProcessContext) -> list[Row]:
        assert value.at == ctx.timestamp, f"{value} has timestamp {ctx.timestamp}"
        return [(value.at, value.key, value.n)]
