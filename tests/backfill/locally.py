"""A backfill without executors: fragments one after the other, over lists, in one process.

What an engine does between fragments is sort; here that is ``sorted``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aflow as af
from aflow.backfill.blocks import Arrived, Block, Leaving
from aflow.backfill.cutting import cut
from aflow.backfill.exchange import ExitEncoder, decoded
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.running import Left, Partition, run_fragment
from aflow.backfill.savepoint import LeftPart, encoded_part, write_savepoint
from aflow.backfill.shipping import shippable
from aflow.model.time import Timestamp


@dataclass
class Blocks:
    """An inbox over rows that are there."""

    rows: list[Block]

    async def take(self) -> Block | None:
        return self.rows.pop(0) if self.rows else None


@dataclass(frozen=True)
class Row:
    """One row of an exchange."""

    part: int
    input: int
    time: Timestamp
    place: tuple[int, int]
    payload: bytes


@dataclass
class Gathered:
    """An outbox that encodes what leaves, as an executor does."""

    plan: FragmentPlan
    subtask: int
    subtasks: int
    exchanged: dict[int, list[Row]]
    """Rows by reading fragment."""
    results: dict[str, list[Any]]
    _count: int = 0
    _encoders: dict[int, ExitEncoder] = field(default_factory=dict[int, ExitEncoder])

    async def put(self, leaving: Leaving) -> None:
        way = leaving.way
        encoder = self._encoders.get(way.number)
        if encoder is None:
            groups = self.plan.key_groups
            encoder = ExitEncoder(way, key_groups=groups, readers=self.subtasks)
            self._encoders[way.number] = encoder
        rows = encoder.rows(leaving.batch)
        if way.sink is not None:
            self.results.setdefault(way.sink.name, []).extend(decoded(rows.payloads)[1])
            return
        assert way.reader is not None
        for part, time, payload in zip(rows.parts, rows.times, rows.payloads, strict=True):
            self._count += 1
            row = Row(part, way.input, time, (self.subtask, self._count), payload)
            self.exchanged.setdefault(way.reader, []).append(row)


@dataclass(frozen=True)
class Backfilled:
    """What came of it."""

    plan: FragmentPlan
    results: Mapping[str, list[Any]]
    left: Sequence[tuple[Fragment, int, Left]]


async def backfill_locally(
    flow: af.Flow,
    sources: Mapping[str, Sequence[Any]],
    *,
    until: Timestamp | None = None,
    parallelism: int = 2,
    block: int = 100,
    savepoint: Path | None = None,
    options: af.Options | None = None,
    event_time_for_processing_time: bool = False,
) -> Backfilled:
    """Run ``flow`` over ``sources``, by name; each is dealt to ``parallelism`` partitions in pieces."""
    plan = cut(flow.graph, event_time_for_processing_time=event_time_for_processing_time)
    exchanged: dict[int, list[Row]] = {}
    results: dict[str, list[Any]] = {}
    left: list[tuple[Fragment, int, Left]] = []
    for fragment in plan.fragments:
        for subtask in range(parallelism):
            if fragment.keyed:
                rows = [one for one in exchanged.get(fragment.index, []) if one.part == subtask]
                blocks = _ordered(rows, block)
            else:
                records = list(sources[fragment.head.name])
                size = -(-len(records) // parallelism)
                mine = records[subtask * size : (subtask + 1) * size]
                blocks = [mine[at : at + block] for at in range(0, len(mine), block)]
            outbox = Gathered(plan, subtask, parallelism, exchanged, results)
            partition = Partition(
                subtask=subtask, subtasks=parallelism, until=until, key_groups=plan.key_groups
            )
            ran = await run_fragment(
                shippable(fragment), partition, Blocks(blocks), outbox, options=options
            )
            left.append((fragment, subtask, ran))
    if savepoint is not None:
        assert until is not None
        parts = [
            LeftPart(fragment, subtask, parallelism, encoded_part(ran.state))
            for fragment, subtask, ran in left
            if fragment.keyed
        ]
        write_savepoint(savepoint, plan, parts, until=until, created_at=0)
    return Backfilled(plan, results, left)


def _ordered(rows: list[Row], size: int) -> list[Block]:
    rows = sorted(rows, key=lambda row: (row.time, row.input, row.place))
    blocks: list[Block] = []
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        keys, values = decoded([row.payload for row in some])
        blocks.append(
            Arrived(
                inputs=[row.input for row in some],
                times=[row.time for row in some],
                keys=keys,
                values=values,
            )
        )
    return blocks


def ways(plan: FragmentPlan) -> list[Exit]:
    """All exits."""
    return [way for fragment in plan.fragments for way in fragment.exits]
