"""A savepoint of a small pipeline, written to a folder as a job writes it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import aflow as af
from aflow.model.codecs import PICKLE, PLAIN
from aflow.model.elements import CheckpointKind
from aflow.operators.broadcast_process import BroadcastProcessOperator
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.sections import IN_FLIGHT, PENDING, PROGRESS
from aflow.state.manifest import Link, Manifest, StepState, SubtaskState
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import OperatorHarness, TwoInputHarness

MOMENT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class Payment:
    card: str
    amount: Decimal
    at: datetime


class Cards(af.KeyedProcess[Hashable, Payment, str]):
    last = af.ValueState("last", of=Payment)
    recent = af.ListState("recent", of=Decimal)
    by_day = af.MapState("by day", key=str, of=int)
    seen = af.ValueState[object]("seen")

    def process(self, value: Payment, ctx: af.Context[Hashable]) -> None:
        ctx.state(self.last).set(value)
        ctx.state(self.recent).add(value.amount)
        ctx.state(self.by_day).put("monday", 1)
        ctx.state(self.seen).set({"at": value.at, "raw": b"abc"})
        ctx.set_event_timer(value.at)


class Rules(af.BroadcastProcess[None, int, str, int]):
    rules = af.BroadcastState("rules", key=str, of=int)

    def process(self, value: int, ctx: af.BroadcastContext[None]) -> Iterable[int]:
        return [value]

    def process_broadcast(self, value: str, ctx: af.ControlContext) -> None:
        ctx.state(self.rules).put(value, len(value))


def cards(*keys: Hashable) -> OperatorSnapshot:
    """Return the state of the step "cards" after a payment of each of ``keys``."""
    harness = OperatorHarness.of(Cards(), key=lambda payment: payment.card)
    for key in keys:
        harness.push(Payment(str(key), Decimal("1.50"), MOMENT), MOMENT)
    snapshot = harness.snapshot()
    assert snapshot is not None
    return snapshot


class Bomb:
    """Raises when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return divmod, (1, 0)


class Models(af.KeyedProcess[str, str, str]):
    model = af.ValueState("model", codec=af.Pickled[Bomb]())

    def process(self, value: str, ctx: af.Context[str]) -> None:
        ctx.state(self.model).set(Bomb())


PICKLED_IN_BASE64 = b64encode(PICKLE.encode(Bomb())).decode()


def models(*keys: str) -> OperatorSnapshot:
    """Return the state of the step "models": a pickle for each of ``keys``."""
    harness = OperatorHarness.of(Models(), key=lambda name: name)
    for key in keys:
        harness.push(key)
    snapshot = harness.snapshot()
    assert snapshot is not None
    return snapshot


def sums(*keys: str) -> OperatorSnapshot:
    """Return the state of a window step that has counted to 3 for each of ``keys``."""
    accumulator = PLAIN.encode(3)
    rows = tuple((PLAIN.encode(key), PLAIN.encode((accumulator, 0, 60_000))) for key in keys)
    return OperatorSnapshot({5: {"@windows": rows}})


def rules(*names: str) -> OperatorSnapshot:
    """Return the state of the step "rules"."""
    harness = TwoInputHarness[int, str, int](lambda: BroadcastProcessOperator(Rules(), keyed=False))
    for name in names:
        harness.right(name)
    snapshot = harness.snapshot()
    assert snapshot is not None
    return snapshot


def source(*splits: tuple[object, ...]) -> OperatorSnapshot:
    return OperatorSnapshot(operator={PROGRESS: tuple(PLAIN.encode(split) for split in splits)})


def sink(*prepared: tuple[int, object]) -> OperatorSnapshot:
    return OperatorSnapshot(operator={PENDING: tuple(PLAIN.encode(one) for one in prepared)})


def in_flight(batches: int) -> OperatorSnapshot:
    part = PLAIN.encode([0, 0, 1, 0, 1, [b"batch"] * batches + [5]])
    return OperatorSnapshot(operator={IN_FLIGHT: (part,)})


@dataclass(frozen=True)
class Stored:
    """A step to be stored."""

    name: str
    what: str
    snapshot: OperatorSnapshot
    parallelism: int = 1


ALL = (
    Stored("payments", "source", source(("payments.csv", 4711, 0), ("old.csv",)), 2),
    Stored("cards", "process", cards("4711", "0815")),
    Stored("rules", "connect.process", rules("limit")),
    Stored("busy", "map", in_flight(3)),
    Stored("out", "to", sink((7, "out-7.part"))),
)


def write_savepoint(path: Path, steps: Iterable[Stored] = ALL, *, key_groups: int = 128) -> None:
    """Store ``steps`` in the folder ``path``."""
    asyncio.run(_write(path, list(steps), key_groups))


async def _write(path: Path, steps: list[Stored], key_groups: int) -> None:
    storage = DirectoryStorage(path)
    await storage.open("shop")
    try:
        file = await storage.write_part(7, "all", 0, {one.name: one.snapshot for one in steps})
        chain = (Link(file, 0, key_groups),)
        manifest = Manifest(
            id=7,
            kind=CheckpointKind.SAVEPOINT,
            flow="shop",
            key_groups=key_groups,
            created_at=1_735_787_045_000,
            completed_at=1_735_787_046_000,
            steps=tuple(
                StepState(one.name, one.what, one.parallelism, (SubtaskState(0, chain),))
                for one in steps
            ),
        )
        await storage.complete(manifest)
    finally:
        await storage.close()
