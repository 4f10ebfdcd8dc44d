"""Whatever order handlers end in, each key has what a process that never waits gives it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Any, Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.model.codecs import codec_for
from aflow.model.elements import Watermark
from aflow.model.key_groups import KeyGroupRange, key_group, ranges
from aflow.model.time import MAX_TIMESTAMP, Instant, Timestamp
from aflow.operators.calls.async_process import AsyncContext, AsyncKeyedProcess
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedProcess, KeyedProcessOperator
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, StateBackend
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import OperatorSnapshot, merge, replay
from aflow.state.specs import ListState, MapState, StateSpec, ValueState
from tests.operators.calls.harness import CallHarness, Pause
from tests.operators.driver import Driver, Emitted

KEYS = "abcdefg"


@dataclass(frozen=True)
class Command:
    """The effect of a record on its key, independent of the context."""

    sets: tuple[Timestamp, ...]
    deletes: tuple[Timestamp, ...]
    again: int
    """Delay (ms, may be negative) of a new timer that a fired timer sets; 0: none."""
    pauses: int
    fails: int
    """Number of failing attempts."""


Result = tuple[str, str, object, int, int]
"""Of which key, what it is, of which command or timer, how many handlers the key has had, and the watermark."""


class Seen(Protocol):
    """The methods that both contexts have."""

    @property
    def key(self) -> str: ...
    def state(self, spec: StateSpec[Any]) -> Any: ...
    def set_event_timer(self, at: Instant) -> None: ...
    def delete_event_timer(self, at: Instant) -> None: ...


class States:
    count = ValueState("count", of=int)
    log = ListState("log", of=str)
    again = MapState("again", key=int, of=int)

    def begin(self, ctx: Seen, what: str) -> int:
        count = ctx.state(self.count)
        count.set((count.get() or 0) + 1)
        ctx.state(self.log).add(what)
        return count.get() or 0

    def obey(self, value: Command, ctx: Seen) -> None:
        for at in value.sets:
            ctx.set_event_timer(at)
            ctx.state(self.again).put(at, value.again)
        for at in value.deletes:
            ctx.delete_event_timer(at)
            ctx.state(self.again).remove(at)

    def ring(self, at: int, ctx: Seen) -> None:
        later = ctx.state(self.again).get(at) or 0
        ctx.state(self.again).remove(at)
        if later:
            ctx.set_event_timer(at + later)


class AtOnce(States, KeyedProcess[str, Command, Result]):
    def process(self, value: Command, ctx: Context[str]) -> list[Result]:
        number = self.begin(ctx, "record")
        self.obey(value, ctx)
        return [(ctx.key, "record", value.sets, number, ctx.watermark)]

    def on_timer(self, at: int, ctx: Context[str]) -> list[Result]:
        number = self.begin(ctx, f"timer {at}")
        self.ring(at, ctx)
        return [(ctx.key, "timer", at, number, ctx.watermark)]


class Waiting(States, AsyncKeyedProcess[str, Command, Result]):
    def __init__(self) -> None:
        #: By command, how many attempts have failed.
        self.failed: dict[int, int] = defaultdict(int)

    async def process(self, value: Command, ctx: AsyncContext[str]) -> list[Result]:
        number = self.begin(ctx, "record")
        for _ in range(value.pauses):
            await Pause()
        self.obey(value, ctx)
        if self.failed[id(value)] < value.fails:
            self.failed[id(value)] += 1
            raise ConnectionError("not yet")
        return [(ctx.key, "record", value.sets, number, ctx.watermark)]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Result]:
        number = self.begin(ctx, f"timer {at}")
        for _ in range(at % 3):
            await Pause()
        self.ring(at, ctx)
        return [(ctx.key, "timer", at, number, ctx.watermark)]


@dataclass(frozen=True)
class Records:
    keys: list[str]
    commands: list[Command]


Step = Records | Timestamp
"""Records, or a watermark."""


def command_by(chance: Random) -> Command:
    moments = range(60)
    return Command(
        sets=tuple(chance.choices(moments, k=chance.randrange(3))),
        deletes=tuple(chance.choices(moments, k=chance.randrange(3))),
        again=chance.choice([0, 0, 3, 7, -2]),
        pauses=chance.randrange(3),
        fails=chance.choice([0, 0, 0, 1, 2]),
    )


def steps_by(chance: Random) -> list[Step]:
    steps: list[Step] = []
    watermark = 0
    for _ in range(chance.randrange(4, 16)):
        if chance.random() < 0.4:
            watermark += chance.randrange(1, 12)
            steps.append(watermark)
        else:
            keys = chance.choices(KEYS, k=chance.randrange(1, 5))
            steps.append(Records(keys, [command_by(chance) for _ in keys]))
    return [*steps, MAX_TIMESTAMP] if chance.random() < 0.5 else steps


def told(emitted: Iterable[Emitted]) -> dict[str, list[Any]]:
    """By key its results, with their timestamps, and among them watermarks."""
    by_key: dict[str, list[Any]] = {key: [] for key in KEYS}
    for one in emitted:
        if isinstance(one, Batch):
            times = one.timestamps or repeat(None)
            for value, at in zip(one.values, times, strict=False):
                by_key[value[0]].append((value, at))
        elif isinstance(one, Watermark):
            for several in by_key.values():
                several.append(one.timestamp)
    return by_key


def results(by_key: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Without watermarks."""
    return {
        key: [one for one in several if isinstance(one, tuple)] for key, several in by_key.items()
    }


def remembered(snapshot: OperatorSnapshot) -> dict[str, Any]:
    """State and timers."""
    key_codec = KeyGroupCodec(
        operator="step", key_groups=KeyGroupRange(0, 128), key_group_count=128
    )
    backend = MemoryBackend(key_codec)
    for spec in (States.count, States.log, States.again):
        backend.cell(spec)
    backend.restore(snapshot.keyed)
    found: dict[str, Any] = {
        f"{name} of {key}": backend.get(name, key)
        for name in ("count", "log", "again")
        for key in KEYS
    }
    found["timers"] = sorted(map(repr, key_codec.read(snapshot.keyed, "@event timers")))
    return found


def at_once(steps: list[Step]) -> Driver:
    driver = Driver(lambda: KeyedProcessOperator(AtOnce()))
    for step in steps:
        if isinstance(step, Records):
            driver.push(*step.commands, keys=step.keys)
        else:
            driver.watermark(step)
    return driver


class Subtasks:
    """The subtasks of the step that waits, replaced by others now and then."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.capacity = chance.choice([1, 2, 100])
        #: In most stories all subtasks are in memory. In others their successors may use another backend.
        self.disk_chance = 0.5 if chance.random() < 0.4 else 0
        self.now = 0
        self.emitted: list[Emitted] = []
        self._begin(1, None)

    def _begin(self, parallelism: int, restored: OperatorSnapshot | None) -> None:
        function = Waiting()
        on_disk = OnDisk(DiskEngine.SQLITE, resident=1)
        backend: StateBackend = on_disk if self.chance.random() < self.disk_chance else InMemory()
        how = CallSettings(
            call=function.process,
            capacity=self.capacity,
            retry=Retry(attempts=5),
            codec=codec_for(Command),
            typed=True,
        )
        self.subtasks = [
            CallHarness(
                how,
                handlers=function,
                restored=restored,
                subtask=subtask,
                parallelism=parallelism,
                now=self.now,
                backend=backend,
            )
            for subtask in range(parallelism)
        ]
        #: Captures of each subtask: a complete snapshot, and the changes since.
        self.chains: list[list[OperatorSnapshot]] = [
            [] if restored is None else [restored.restricted_to(groups)]
            for groups in ranges(128, parallelism)
        ]

    def take(self, step: Step) -> None:
        if isinstance(step, Records):
            for key, command in zip(step.keys, step.commands, strict=True):
                self._of(key).push(command, keys=[key])
        else:
            for one in self.subtasks:
                one.watermark(step)

    def _of(self, key: str) -> CallHarness:
        group = key_group(key, 128)
        several = zip(self.subtasks, ranges(128, len(self.subtasks)), strict=True)
        return next(one for one, groups in several if group in groups)

    def resume_one(self) -> None:
        """Resume a handler, or advance the clock, for handlers that wait for a retry."""
        waiting = [(one, key) for one in self.subtasks for key in one.keys]
        if waiting and self.chance.random() < 0.9:
            one, key = self.chance.choice(waiting)
            one.resume(key)
        else:
            self.now += 100
            for one in self.subtasks:
                one.clock(self.now)
        for one in self.subtasks:
            self.emitted += one.batches()

    def finish(self) -> None:
        for _ in range(100_000):
            self.resume_one()
            if not any(one.step.busy for one in self.subtasks):
                return
        raise AssertionError("something is under way, and does not come to its end")

    def capture(self) -> None:
        for one, chain in zip(self.subtasks, self.chains, strict=True):
            snapshot = one.step.capture(changes=True).encoded()
            if snapshot.complete:
                chain.clear()
            chain.append(snapshot)

    def snapshot(self) -> OperatorSnapshot:
        return merge(one.snapshot() for one in self.subtasks)

    def restart(self) -> None:
        """From what was captured, in another parallelism."""
        self.resume_one()
        self.capture()
        captured = merge(replay(chain) for chain in self.chains)
        self.close()
        self._begin(self.chance.choice([1, 1, 2, 3]), captured)

    def close(self) -> None:
        for one in self.subtasks:
            one.close()


SEEDS = st.integers(0, 2**32)


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_each_key_has_what_it_would_have_at_once_between_the_same_watermarks(seed: int) -> None:
    chance = Random(seed)
    steps = steps_by(chance)
    expected, subtasks = at_once(steps), Subtasks(chance)

    for step in steps:
        for _ in range(chance.randrange(6)):
            subtasks.resume_one()
        subtasks.take(step)
    subtasks.finish()

    assert told(subtasks.emitted) == told(expected.batches())
    assert remembered(subtasks.snapshot()) == remembered(expected.snapshot())
    subtasks.close()


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_each_key_has_what_it_would_have_at_once_whatever_is_restored_when(seed: int) -> None:
    chance = Random(seed)
    steps = steps_by(chance)
    expected, subtasks = at_once(steps), Subtasks(chance)

    for step in steps:
        for _ in range(chance.randrange(6)):
            subtasks.resume_one()
            match chance.randrange(8):
                case 0:
                    subtasks.restart()
                case 1:
                    subtasks.capture()
                case _:
                    pass
        subtasks.take(step)
    subtasks.finish()

    assert results(told(subtasks.emitted)) == results(told(expected.batches()))
    assert remembered(subtasks.snapshot()) == remembered(expected.snapshot())
    subtasks.close()
