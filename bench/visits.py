"""Flow of ``restore`` with totals and a timer for each key, and the savepoint of its backfill, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aflow as af
from aflow.backfill.blocks import ExchangedRows, ExitBatch
from aflow.backfill.exit_writer import TOGETHER
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition, run_fragment
from aflow.backfill.resources import FragmentResources
from aflow.backfill.savepoint import StatePart, encoded_part, write_savepoint

#: Rows in a block of history.
_BLOCK = 4_096
#: The timeout (ms), in which each key of these benchmarks occurs again.
TIMEOUT = 1 << 40


class Visit(NamedTuple):
    """A record: the event time is in ms."""

    who: str
    at: int


@dataclass
class Totals:
    """State of a key."""

    visits: int
    first: int
    last: int


class Visits(af.KeyedProcess[str, Visit, tuple[str, int]]):
    """Emit the number of visits of the key with each; forget it after ``TIMEOUT``."""

    totals = af.ValueState("totals", of=Totals)

    def process(self, value: Visit, ctx: af.Context[str]) -> list[tuple[str, int]]:
        state = ctx.state(self.totals)
        totals = state.get() or Totals(0, value.at, value.at)
        if totals.visits:
            ctx.delete_event_timer(totals.last + TIMEOUT)
        totals.visits, totals.last = totals.visits + 1, value.at
        state.set(totals)
        ctx.set_event_timer(value.at + TIMEOUT)
        return [(value.who, totals.visits)]

    def on_timer(self, at: int, ctx: af.Context[str]) -> None:
        ctx.state(self.totals).clear()


def visits(numbers: range, *, at: int = 0) -> list[Visit]:
    """Return a visit of each of the keys with ``numbers``, one each ms."""
    return [Visit(f"customer-{number}", at + number) for number in numbers]


def build(source: af.Source[Visit], sink: af.Sink[tuple[str, int]]) -> af.Flow:
    """Return the flow."""
    flow = af.Flow("visits")
    timed = flow.source(source, name="source").event_time(lambda visit: visit.at, name="times")
    keyed = timed.key_by(lambda visit: visit.who, name="key")
    keyed.process(Visits(), name="visits").to(sink, name="sink")
    return flow


class _Blocks:
    """The history of one key after the other."""

    def __init__(self, keys: int) -> None:
        self._starts: Iterator[int] = iter(range(0, keys, _BLOCK))
        self._keys = keys

    async def take(self) -> ExchangedRows | None:
        start = next(self._starts, None)
        if start is None:
            return None
        rows = visits(range(start, min(start + _BLOCK, self._keys)))
        return ExchangedRows(
            inputs=[0] * len(rows),
            times=[row.at for row in rows],
            keys=[row.who for row in rows],
            values=list(rows),
        )


class _Dropped:
    def put(self, exit_batch: ExitBatch, /) -> None:
        """Drop the results of history, which are not measured."""


async def write_backfill(path: Path, keys: int) -> None:
    """Write the savepoint of a backfill over ``keys`` visits, as one executor leaves it."""
    plan = plan_fragments(build(af.PushSource[Visit](), af.CollectSink()).graph)
    fragment = next(one for one in plan.fragments if one.keyed)
    partition = Partition(until=keys, key_groups=plan.key_groups)
    resources = FragmentResources(fragment, plan.flow)
    async with resources.open():
        ran = await run_fragment(
            fragment, partition, _Blocks(keys), _Dropped(), resources=resources, together=TOGETHER
        )
    parts = [StatePart(fragment, 0, 1, encoded_part(ran.state))]
    write_savepoint(path, plan, parts, until=keys, created_at=0)
