"""A backfill without executors: fragments one after the other, over lists, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import aflow as af
from aflow.backfill.blocks import ExchangedRows, ExitBatch, InputRows
from aflow.backfill.continuation import Restore, read_continuation
from aflow.backfill.exchange import ExitEncoder, RecordBlock, decode_block
from aflow.backfill.exit_writer import TOGETHER
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import (
    FragmentResult,
    Partition,
    StateReader,
    StateSelector,
    run_fragment,
)
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.live_savepoint import LiveCalls
from aflow.backfill.merge import BlockMerger
from aflow.backfill.portable_fragment import portable_copy
from aflow.backfill.resources import FragmentResources
from aflow.backfill.savepoint import SAVEPOINT, StatePart, encoded_part, write_savepoint
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.model.time import Timestamp
from aflow.state.snapshot import OperatorSnapshot


@dataclass
class Blocks:
    """An inbox over existing rows."""

    rows: list[InputRows]

    async def take(self) -> InputRows | None:
        return self.rows.pop(0) if self.rows else None


@dataclass(frozen=True)
class Sent:
    """A record block between fragments."""

    record_block: RecordBlock
    input: int
    place: int


@dataclass
class Gathered:
    """An outbox that encodes emitted records, as an executor does."""

    plan: FragmentPlan
    subtask: int
    subtasks: int
    exchanged: dict[int, list[Sent]]
    """Record blocks by reading fragment."""
    results: dict[str, list[Any]]
    _count: int = 0
    _encoders: dict[int, ExitEncoder] = field(default_factory=dict[int, ExitEncoder])

    async def put(self, exit_batch: ExitBatch) -> None:
        exit = exit_batch.exit
        encoder = self._encoders.get(exit.number)
        if encoder is None:
            groups = self.plan.key_groups
            encoder = ExitEncoder(exit, key_groups=groups, readers=self.subtasks)
            self._encoders[exit.number] = encoder
        for record_block in encoder.record_blocks(exit_batch.batch):
            if exit.sink is not None:
                values = decode_block(record_block.payload, record_block.time).values
                self.results.setdefault(exit.sink.name, []).extend(values)
                continue
            assert exit.reader is not None
            self._count += 1
            sent = Sent(record_block, exit.input, (self.subtask << 40) + self._count)
            self.exchanged.setdefault(exit.reader, []).append(sent)


@dataclass(frozen=True)
class Backfilled:
    """Result of the backfill."""

    plan: FragmentPlan
    results: Mapping[str, list[Any]]
    left: Sequence[tuple[Fragment, int, FragmentResult]]


async def backfill_locally(
    flow: af.Flow,
    sources: Mapping[str, Sequence[Any]],
    *,
    until: Timestamp | None = None,
    parallelism: int = 2,
    block: int = 100,
    savepoint: Path | None = None,
    restore: Restore | None = None,
    options: af.Options | None = None,
    together: int = TOGETHER,
    event_time_for_processing_time: bool = False,
    ship: Callable[[Fragment], Fragment] = portable_copy,
) -> Backfilled:
    """Run ``flow`` over ``sources``, by name; each is dealt to ``parallelism`` partitions in pieces.

    It continues from the savepoint ``restore``. ``ship`` makes of a fragment what an executor
    gets.
    """
    plan = plan_fragments(flow.graph, event_time_for_processing_time=event_time_for_processing_time)
    start = None if restore is None else read_continuation(restore, flow.graph, plan)
    partition = Partition(
        subtasks=parallelism,
        until=until,
        begins=None if start is None else start.begins,
        key_groups=plan.key_groups,
    )

    def restored(fragment: Fragment, groups: KeyGroupRange) -> StateReader | None:
        files = None if start is None else start.files_of(fragment.head.name)
        return None if files is None else partial(files.read, groups)

    results, left = await run_locally(
        plan,
        sources,
        lambda fragment, groups: partition,
        restored,
        calls=None if start is None else start.calls_in,
        block=block,
        options=options,
        together=together,
        ship=ship,
    )
    if savepoint is not None:
        assert until is not None
        parts = [
            StatePart(fragment, subtask, parallelism, encoded_part(ran.state))
            for fragment, subtask, ran in left
            if fragment.keyed
        ]
        number = SAVEPOINT if start is None else start.number
        write_savepoint(savepoint, plan, parts, until=until, created_at=0, number=number)
    return Backfilled(plan, results, left)


async def run_locally(
    plan: FragmentPlan,
    sources: Mapping[str, Sequence[Any]],
    partition: Callable[[Fragment, KeyGroupRange], Partition],
    restored: Callable[[Fragment, KeyGroupRange], StateReader | None] | None,
    *,
    selector: Callable[[Fragment, int, list[InputRows]], StateSelector] | None = None,
    calls: Callable[[Fragment], Mapping[str, OperatorSnapshot]] | None = None,
    block: int = 100,
    options: af.Options | None = None,
    together: int = TOGETHER,
    ship: Callable[[Fragment], Fragment] = portable_copy,
) -> tuple[dict[str, list[Any]], list[tuple[Fragment, int, FragmentResult]]]:
    """Run all fragments: results by sink, and the result of each partition.

    ``partition`` returns the description of a fragment's partitions, and ``restored`` the state of one, by its key
    groups. ``selector`` takes its place: it gets the number of the partition, and its rows. ``calls`` returns the calls
    under way in a fragment; one that begins at a source makes them in one more partition, without rows.
    """
    exchanged: dict[int, list[Sent]] = {}
    results: dict[str, list[Any]] = {}
    left: list[tuple[Fragment, int, FragmentResult]] = []
    parallelism = partition(plan.fragments[0], KeyGroupRange(0, 1)).subtasks
    for fragment in plan.fragments:
        carried: LiveCalls = {} if calls is None else calls(fragment)
        parts = list(enumerate(ranges(plan.key_groups, parallelism)))
        if carried and not fragment.keyed:
            parts.append((parallelism, KeyGroupRange(0, 1)))
        for subtask, groups in parts:
            if fragment.keyed:
                sent = exchanged.get(fragment.index, [])
                blocks = _ordered([one for one in sent if one.record_block.part == subtask], block)
            else:
                records = list(sources[fragment.head.name])
                size = -(-len(records) // parallelism)
                mine = records[subtask * size : (subtask + 1) * size]
                blocks = list[InputRows](mine[at : at + block] for at in range(0, len(mine), block))
            mine_alone = subtask == parallelism
            outbox = Gathered(plan, subtask, parallelism, exchanged, results)
            got = ship(fragment)
            resources = FragmentResources(got, plan.flow)
            async with resources.open():
                ran = await run_fragment(
                    got,
                    _partition_of(partition(fragment, groups), subtask, keyed=fragment.keyed),
                    Blocks(blocks),
                    outbox,
                    restored=restored(fragment, groups) if restored and fragment.keyed else None,
                    selector=selector(fragment, subtask, blocks)
                    if selector and fragment.keyed
                    else None,
                    calls=carried if fragment.keyed or mine_alone else None,
                    resources=resources,
                    options=options,
                    together=together,
                )
            left.append((fragment, subtask, ran))
    return results, left


def _partition_of(all_alike: Partition, subtask: int, *, keyed: bool) -> Partition:
    """The partition of a subtask; executors tell no numbers of partitions of a source apart."""
    if keyed:
        return replace(all_alike, subtask=subtask)
    return replace(all_alike, subtask=0, subtasks=1)


def _ordered(sent: list[Sent], size: int) -> list[InputRows]:
    """Records of blocks, which are sorted by their first times, in inputs of ``size``."""
    merging = BlockMerger()
    arrived: list[ExchangedRows] = []
    for one in sorted(sent, key=lambda one: (one.record_block.time, one.input, one.place)):
        record_block = one.record_block
        contents = decode_block(record_block.payload, record_block.time)
        arrived += merging.add(record_block.time, one.input, one.place, contents)
    arrived += merging.end()
    return [piece for some in arrived for piece in _pieces(some, size)]


def _pieces(some: ExchangedRows, size: int) -> Iterator[InputRows]:
    for at in range(0, len(some.times), size):
        stop = at + size
        yield ExchangedRows(
            inputs=some.inputs[at:stop],
            times=some.times[at:stop],
            keys=some.keys[at:stop],
            values=some.values[at:stop],
        )


def exit_list(plan: FragmentPlan) -> list[Exit]:
    """All exits."""
    return [exit for fragment in plan.fragments for exit in fragment.exits]
