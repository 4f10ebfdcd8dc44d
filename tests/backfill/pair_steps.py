"""Steps that read two streams by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aflow as af
from tests.backfill.items import Item, Items, keyed, millis
from tests.backfill.steps import of_window, total

#: Size of the windows that join.
SIZE = 60


@dataclass(frozen=True, slots=True)
class PairStep:
    """``make(left, right, name)`` adds the step."""

    name: str
    make: Callable[[Items, Items, str], Items]
    right_needs_order: bool = False
    multiplies: bool = False
    """True if it gives pairs, of which there may be many."""


def union(left: Items, right: Items, name: str) -> Items:
    return left.union(right, name=name)


def _pair(one: Item | None, other: Item | None) -> Item:
    """Pair of both, at the time of the later one."""
    some = [item for item in (one, other) if item is not None]
    n = (one.n if one else -3) * 7 + (other.n if other else -5)
    return Item(some[0].key, n % 10_007, max(item.at for item in some))


def _in_window(one: Item | None, other: Item | None) -> Item:
    pair = _pair(one, other)
    return Item(pair.key, pair.n, pair.at // SIZE * SIZE + SIZE - 1)


def pairs(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .interval_join(keyed(right), between=(millis(-5), millis(15)), of=Item, other_of=Item)
        .inner(_pair, name=name)
    )


def pairs_or_left(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .interval_join(keyed(right), between=(millis(-5), millis(25)), of=Item, other_of=Item)
        .left(_pair, name=name)
    )


def pairs_or_right(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .interval_join(keyed(right), between=(millis(-25), millis(5)), of=Item, other_of=Item)
        .right(_pair, name=name)
    )


def pairs_or_either(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .interval_join(
            keyed(right),
            between=(millis(-40), millis(5)),
            lower_inclusive=False,
            of=Item,
            other_of=Item,
        )
        .full(_pair, name=name)
    )


def as_of(left: Items, right: Items, name: str) -> Items:
    return keyed(left).as_of_join(keyed(right), of=Item, other_of=Item).left(_as_of, name=name)


def recent(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .as_of_join(keyed(right), tolerance=millis(20), of=Item, other_of=Item)
        .inner(_as_of, name=name)
    )


def _as_of(one: Item, other: Item | None) -> Item:
    return Item(one.key, one.n * 3 + (other.n if other else -1), one.at)


def in_windows(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .window_join(keyed(right), af.Tumbling(millis(SIZE)), of=Item, other_of=Item)
        .full(_in_window, name=name)
    )


def _totals(lefts: Sequence[Item], rights: Sequence[Item]) -> int:
    return total(lefts) * 1000 + total(rights)


def grouped(left: Items, right: Items, name: str) -> Items:
    windows = af.Sliding(millis(100), millis(50))
    groups = keyed(left).co_group(
        keyed(right), windows, into=_totals, name=name, of=Item, other_of=Item
    )
    return groups.map(of_window)


def grouped_early(left: Items, right: Items, name: str) -> Items:
    """Fires for each record with the number of records, in any order."""
    trigger = af.triggers.EventTime(early=af.triggers.Count(1))
    groups = keyed(left).co_group(
        keyed(right),
        af.Tumbling(millis(90)),
        into=lambda lefts, rights: len(lefts) + len(rights),
        name=name,
        trigger=trigger,
        of=Item,
        other_of=Item,
    )
    return groups.map(of_window)


def sessions_joined(left: Items, right: Items, name: str) -> Items:
    """Pairs of one session, at the time of the later one, which is not that of the result."""
    joined = (
        keyed(left)
        .window_join(keyed(right), af.Session(millis(8)), of=Item, other_of=Item)
        .inner(_pair, name=name)
    )
    return joined.process(AtItsTime())


class AtItsTime(af.ProcessFunction[Item, Item]):
    """Items with their time."""

    def process(self, value: Item, ctx: af.ProcessContext) -> list[Item]:
        assert ctx.timestamp is not None
        return [Item(value.key, value.n, ctx.timestamp)]


def grouped_sessions(left: Items, right: Items, name: str) -> Items:
    groups = keyed(left).co_group(
        keyed(right), af.Session(millis(9)), into=_totals, name=name, of=Item, other_of=Item
    )
    return groups.map(of_window)


class Both(af.CoProcess[int, Item, Item, Item]):
    """Number of items of both sides up to each tenth of a second."""

    lefts = af.MapState("lefts", key=int, of=int)
    rights = af.MapState("rights", key=int, of=int)

    def process_left(self, value: Item, ctx: af.Context[int]) -> None:
        self._note(value, ctx, self.lefts)

    def process_right(self, value: Item, ctx: af.Context[int]) -> None:
        self._note(value, ctx, self.rights)

    def _note(self, value: Item, ctx: af.Context[int], where: af.MapState[int, int]) -> None:
        sums = ctx.state(where)
        sums.put(value.at, sums.get(value.at, 0) + value.n)
        ctx.set_event_timer(value.at // 100 * 100 + 100)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Item]:
        left, right = (
            sum(n for then, n in ctx.state(where).items() if at - 150 <= then < at)
            for where in (self.lefts, self.rights)
        )
        return [Item(ctx.key, left * 3 + right, at)]


def both(left: Items, right: Items, name: str) -> Items:
    return keyed(left).connect(keyed(right)).process(Both(), name=name)


PAIRS: Sequence[PairStep] = [
    PairStep("union", union),
    PairStep("interval join", pairs, multiplies=True),
    PairStep("left interval join", pairs_or_left, multiplies=True),
    PairStep("right interval join", pairs_or_right, multiplies=True),
    PairStep("full interval join", pairs_or_either, multiplies=True),
    PairStep("as of join", as_of, right_needs_order=True),
    PairStep("as of join, recent", recent, right_needs_order=True),
    PairStep("window join", in_windows, multiplies=True),
    PairStep("co-group", grouped),
    PairStep("co-group, early", grouped_early),
    PairStep("join of sessions", sessions_joined, multiplies=True),
    PairStep("co-group of sessions", grouped_sessions),
    PairStep("connect", both),
]
