"""Records of the flows that run over history here, and what the flows take them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

import aflow as af

#: A record that says only how late it is. It is dropped behind the step that looks at the time.
TICK = -1


@dataclass(frozen=True, slots=True)
class Item:
    """What all steps take and give. ``at`` is always the timestamp that it has."""

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
    """Items in the order of time. If not ``together``, no two are at one moment."""
    if together:
        moments = sorted(random.choices(range(lasts), k=count))
    else:
        moments = sorted(random.sample(range(lasts), k=min(count, lasts)))
    return [Item(random.randrange(keys), random.randrange(1000), at) for at in moments]


def ticking(items: Sequence[Item], lasts: int = 600) -> list[Item]:
    """The items, and in front of those of each moment a tick: behind it the watermark is there in a live job."""
    ticks = [Item(TICK, 0, at) for at in range(lasts)]
    return sorted([*ticks, *items], key=lambda item: (item.at, item.key != TICK))


def no_tick(item: Item) -> bool:
    return item.key != TICK


def at_of(item: Item) -> int:
    return item.at


class Told(af.ProcessFunction[Item, Row]):
    """Rows of items, which say what they should."""

    def process(self, value: Item, ctx: af.ProcessContext) -> list[Row]:
        assert value.at == ctx.timestamp, f"{value} has timestamp {ctx.timestamp}"
        return [(value.at, value.key, value.n)]
