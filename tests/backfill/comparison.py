"""One flow run three ways: live, over history, and over history up to a moment and live from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import aflow as af
from aflow.backfill.continuation import Restore
from aflow.backfill.fragments import Fragment
from aflow.backfill.portable_fragment import portable_copy
from aflow.testing import VirtualClock, virtual_time
from tests.backfill.items import Item, Items, Row, Told, at_of, millis, no_tick
from tests.backfill.locally import backfill_locally

Results = Mapping[str, list[Row]]


class Shape(TypedDict):
    """Partitioning of history."""

    parallelism: int
    block: int
    """Rows."""
    batch: int
    """Records."""
    together: int
    """Records emitted at once."""


async def seen(item: Item) -> Item:
    """Return the item, after a while."""
    await asyncio.sleep((0, 0.001, 0.003)[item.n % 3])
    return item


@dataclass(frozen=True, slots=True)
class Case:
    """A flow over records: ``build`` makes a stream, by name, from the sources, by name."""

    build: Callable[[Mapping[str, Items]], Mapping[str, Items]]
    sources: Mapping[str, Sequence[Item]]
    max_delay: int = 0
    """Milliseconds."""
    seen_before_time: bool = False
    """True if an asynchronous step is between the sources and their event time."""

    def flow(
        self,
        sources: Mapping[str, Sequence[Item] | af.Source[Item]],
        sinks: Mapping[str, af.Sink[Row]],
    ) -> af.Flow:
        flow = af.Flow("compared")
        timed = {
            name: self._before_time(flow.source(items, name=name), name)
            .event_time(at_of, max_delay=millis(self.max_delay), name=f"time of {name}")
            .filter(no_tick)
            for name, items in sources.items()
        }
        for name, stream in self.build(timed).items():
            stream.process(Told()).to(sinks[name], name=name)
        return flow

    def _before_time(self, items: Items, name: str) -> Items:
        if not self.seen_before_time:
            return items
        return items.map_async(seen, name=f"{name} seen", capacity=7)

    def new_sinks(self) -> dict[str, af.CollectSink[Row]]:
        flow = af.Flow("which streams")
        streams = {
            name: flow.source(list[Item](), name=name).event_time(at_of) for name in self.sources
        }
        return {name: af.CollectSink[Row]() for name in self.build(streams)}

    def live(
        self,
        sources: Mapping[str, Sequence[Item]] | None = None,
        *,
        parallelism: int = 1,
        batch: int = 1024,
        savepoint: Path | None = None,
        seed: int | None = None,
    ) -> Results:
        """Results of a live job, from ``savepoint`` on; ``sources`` replace those of the case."""
        sinks = self.new_sinks()

        async def main() -> None:
            flow = self.flow(self.sources if sources is None else sources, sinks)
            options = af.Options(clock=VirtualClock(), batch_records=batch)
            if savepoint is None:
                await flow.run(parallelism=parallelism, options=options)
                return
            storage = savepoint.with_name(f"{savepoint.name} checkpoints")
            await flow.run(
                parallelism=parallelism,
                options=options,
                checkpointing=af.Checkpointing(every=millis(1_000_000), storage=storage),
                restore=savepoint,
            )

        virtual_time.run(main, seed=seed)
        return {name: sorted(sink.values) for name, sink in sinks.items()}

    def over_history(
        self,
        history: Mapping[str, Sequence[Item]] | None = None,
        *,
        parallelism: int = 2,
        block: int = 100,
        batch: int = 1024,
        together: int = 4096,
        until: int | None = None,
        savepoint: Path | None = None,
        restore: Restore | None = None,
        seed: int | None = None,
        ship: Callable[[Fragment], Fragment] = portable_copy,
    ) -> Results:
        """Results of a backfill; ``history`` replaces the sources of the case."""
        sinks = self.new_sinks()

        async def main() -> Results:
            flow = self.flow({name: [] for name in self.sources}, sinks)
            done = await backfill_locally(
                flow,
                self.sources if history is None else history,
                until=until,
                parallelism=parallelism,
                block=block,
                savepoint=savepoint,
                restore=restore,
                options=af.Options(clock=VirtualClock(), batch_records=batch),
                together=together,
                ship=ship,
            )
            return done.results

        results = virtual_time.run(main, seed=seed)
        return {name: sorted(results.get(name, [])) for name in sinks}


def together(one: Results, other: Results) -> Results:
    """Results of both."""
    return {name: sorted([*rows, *other[name]]) for name, rows in one.items()}


def from_on(items: Sequence[Item], until: int) -> list[Item]:
    """Records at ``until`` and later."""
    return [item for item in items if item.at >= until]
