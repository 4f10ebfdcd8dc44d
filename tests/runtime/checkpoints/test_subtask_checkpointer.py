"""The checkpointer of a subtask, for checkpoints that are aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from aflow.connect import Position
from aflow.machines.barriers.events import AbortReason
from aflow.model.elements import Barrier, CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.inflight import InFlightCodec
from aflow.runtime.checkpoints.reader_notices import ReaderNotices
from aflow.runtime.checkpoints.statistics import SubtaskCheckpoint
from aflow.runtime.checkpoints.subtask_checkpointer import SubtaskCheckpointer
from aflow.runtime.loop_budget import LoopBudget, WorkerActivity
from aflow.runtime.mailbox import Mailbox
from aflow.runtime.pieces import ChainPieces
from aflow.runtime.splits import Progress, SplitPosition
from aflow.runtime.task_environment import TaskId
from aflow.runtime.timer_service import TimerService
from aflow.state.manifest import Link
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import settle, virtual_time


class Coordinator:
    """Records acknowledgements and declines."""

    def __init__(self, storage: DirectoryStorage) -> None:
        self.storage = storage
        self.threads = WorkerActivity()
        self.notices = ReaderNotices(None, [])
        self.told: list[tuple[str, int]] = []
        self._work: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._work.add(asyncio.create_task(work, name=name))

    async def may_store(self) -> None:
        """Return at once: there are no sweeps."""

    def acknowledged(
        self,
        task: TaskId,
        checkpoint: int,
        chains: Mapping[str, tuple[Link, ...]],
        done: SubtaskCheckpoint,
    ) -> None:
        self.told.append(("acknowledged", checkpoint))

    def declined(self, task: TaskId, checkpoint: int, reason: str) -> None:
        self.told.append(("declined", checkpoint))


def timers() -> TimerService:
    loop = asyncio.get_running_loop()
    return TimerService(loop, VirtualClock(), Mailbox(loop, lambda: None))


def no_pieces() -> ChainPieces:
    """The pieces of a chain without unfinished work."""
    clock = VirtualClock()
    budget = LoopBudget(asyncio.get_running_loop(), clock, 0.002)
    return ChainPieces(budget, clock, lambda: None)


class Half:
    """A source that has partly read a split."""

    def progress(self) -> Progress:
        return Progress({"split": SplitPosition(5, 0)})

    @property
    def read_positions(self) -> Mapping[str, Position | None]:
        return {"split": 5}

    def emit_progress(self, checkpoint: int) -> None:
        raise AssertionError("no reader asks for committed results")


@pytest.mark.parametrize("reason", AbortReason)
@virtual_time
async def test_a_checkpoint_with_missing_barriers_is_stored_but_not_acknowledged(
    tmp_path: Path, reason: AbortReason
) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    coordinator = Coordinator(storage)
    chains = SubtaskChains(KeyGroupRange(0, 128), incremental=True)
    taking = SubtaskCheckpointer(
        TaskId("numbers", 0),
        coordinator,
        chains,
        InFlightCodec.of(pickle=False),
        VirtualClock(),
        timers(),
        operators=[],
        edges=[],
        pieces=no_pieces(),
        source=Half(),
    )

    taking.take(Barrier(1, 0, CheckpointKind.PERIODIC, unaligned=True), 0.0)
    taking.abandoned(1, reason)
    await settle()
    await storage.close()

    assert ("acknowledged", 1) not in coordinator.told
    assert list(chains.chains) == ["numbers"]


@virtual_time
async def test_parts_are_stored_in_the_order_of_captures_whichever_task_begins_first(
    tmp_path: Path,
) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    coordinator = Coordinator(storage)
    later: list[Coroutine[Any, Any, None]] = []
    coordinator.spawn = lambda work, name: later.append(work)  # type: ignore[method-assign]
    taking = SubtaskCheckpointer(
        TaskId("numbers", 0),
        coordinator,
        SubtaskChains(KeyGroupRange(0, 128), incremental=True),
        InFlightCodec.of(pickle=False),
        VirtualClock(),
        timers(),
        operators=[],
        edges=[],
        pieces=no_pieces(),
        source=Half(),
    )

    for number in (1, 2):
        taking.begin(Barrier(number, 0), 0.0)
    async with asyncio.TaskGroup() as group:
        for work in reversed(later):
            group.create_task(work)
    await storage.close()

    assert coordinator.told == [("acknowledged", 1), ("acknowledged", 2)]
