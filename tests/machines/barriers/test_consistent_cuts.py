"""Checkpoints of a network of tasks are consistent, for any order of events.

No state and no channel of a complete checkpoint has a record that its source sent after the barrier, and a network that
is restored from it has the final totals of one that was never interrupted. Meanwhile tasks have several inputs,
checkpoints overtake each other, sources end or refuse, clocks advance and alarms are late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    Barriers,
    Block,
    Capture,
    EndCapture,
    Event,
    Instruction,
)
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.model.elements import Barrier, CheckpointKind
from aflow.model.time import Timestamp
from tests.machines.barriers.network import Network, Plan, Totals

MOST_CHECKPOINTS: Final = 4


@dataclass(frozen=True)
class Asked:
    """A requested checkpoint."""

    kind: CheckpointKind
    timeout: int | None
    unaligned: bool
    refusing: frozenset[int]


@dataclass(frozen=True)
class Run:
    """A network, the requested checkpoints, and the choices of events."""

    plan: Plan
    asked: tuple[Asked, ...]
    happens: bytes


class Without:
    """A machine that omits some of its instructions."""

    def __init__(self, machine: Barriers, forgotten: tuple[type[Instruction], ...]) -> None:
        self._machine = machine
        self._forgotten = forgotten

    @property
    def latest_id(self) -> int:
        return self._machine.latest_id

    @property
    def pending_ids(self) -> tuple[int, ...]:
        return self._machine.pending_ids

    @property
    def open_channels(self) -> int:
        return self._machine.open_channels

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        said = self._machine.handle(event, now)
        return [one for one in said if not isinstance(one, self._forgotten)]


@dataclass(frozen=True)
class Mode:
    """The machine of all tasks, and the kind of its barriers."""

    make: Callable[[int], Barriers]
    alternates: bool = False
    """True if barriers have timeouts, and some of them overtake from the beginning."""
    overtakes: bool = False
    """True if all barriers but those of savepoints overtake from the beginning."""
    forgotten: tuple[type[Instruction], ...] = ()
    """Instructions that the machines omit."""

    def machine(self, channels: int) -> Barriers:
        return Without(self.make(channels), self.forgotten)

    def barrier(self, number: int, asked: Asked, now: Timestamp) -> Barrier:
        """Return a barrier as a coordinator makes it: those of savepoints never overtake."""
        at_once = self.overtakes or (self.alternates and asked.unaligned)
        return Barrier(
            number,
            now,
            asked.kind,
            asked.timeout if self.alternates else None,
            unaligned=at_once and asked.kind is CheckpointKind.PERIODIC,
        )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    records = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    inputs: list[tuple[int, ...]] = []
    for number in range(draw(st.integers(1, 4))):
        nodes = st.integers(0, len(records) + number - 1)
        inputs.append(tuple(draw(st.lists(nodes, min_size=1, max_size=3))))
    nodes_in_all = len(records) + len(inputs)
    shared_out = draw(st.lists(st.booleans(), min_size=nodes_in_all, max_size=nodes_in_all))
    return Plan(tuple(records), tuple(inputs), tuple(shared_out))


asked_for = st.builds(
    Asked,
    kind=st.sampled_from([CheckpointKind.PERIODIC] * 3 + [CheckpointKind.SAVEPOINT]),
    timeout=st.none() | st.integers(0, 15),
    unaligned=st.sampled_from([False, False, False, True]),
    refusing=st.sampled_from([frozenset[int]()] * 4 + [frozenset({0}), frozenset({1, 2})]),
)
runs = st.builds(
    Run,
    plan=plans(),
    asked=st.lists(asked_for, min_size=1, max_size=MOST_CHECKPOINTS).map(tuple),
    happens=st.binary(min_size=120, max_size=240),
)


def play(run: Run, mode: Mode) -> Network:
    """Process the events chosen by ``run``, and then all others."""
    network = Network(run.plan, mode.machine, tolerant=bool(mode.forgotten))
    waiting = list(enumerate(run.asked))
    for choice in run.happens:
        choices = network.choices()
        pick = choice % (len(choices) + 2)
        if pick < len(choices):
            choices[pick]()
        elif pick == len(choices):
            network.now += 1 + choice % 7
        elif waiting:
            _ask(network, *waiting.pop(0), mode)
    for number, asked in waiting:
        _ask(network, number, asked, mode)
    network.drain()
    return network


def _ask(network: Network, number: int, asked: Asked, mode: Mode) -> None:
    network.ask(mode.barrier(number, asked, network.now), asked.refusing)


def undisturbed(plan: Plan) -> Totals:
    network = Network(plan, BarrierTracker)
    network.drain()
    return network.totals()


def problems(run: Run, mode: Mode) -> list[str]:
    """Return the errors of the checkpoints of ``run``, which must be exact."""
    network = play(run, mode)
    expected = undisturbed(run.plan)
    found: list[str] = []
    for number, cut in network.cuts.items():
        if not cut.is_complete(run.plan):
            continue
        later = {one for one in cut.all_records() if one[1] >= cut.positions[one[0]]}
        if later:
            found.append(f"checkpoint {number} has {later}, sent after it")
        restored = Network(run.plan, BarrierTracker, since=cut)
        restored.drain()
        if restored.totals() != expected:
            found.append(f"{number} ends with {restored.totals()}, not with {expected}")
    return found


ALIGNED: Final = Mode(BarrierAligner)
ALTERNATING: Final = Mode(AlternatingBarriers, alternates=True)
TRACKED: Final = Mode(BarrierTracker)
UNALIGNED: Final = Mode(AlternatingBarriers, overtakes=True)
EXACT: Final = [
    pytest.param(ALIGNED, id="aligned"),
    pytest.param(ALTERNATING, id="alternating"),
    pytest.param(UNALIGNED, id="unaligned"),
]
ALL: Final = [*EXACT, pytest.param(TRACKED, id="tracked")]


@pytest.mark.parametrize("mode", EXACT)
@given(run=runs)
@settings(max_examples=100, deadline=None)
def test_every_complete_checkpoint_is_a_consistent_cut(mode: Mode, run: Run) -> None:
    assert problems(run, mode) == []


@given(run=runs)
@settings(max_examples=100, deadline=None)
def test_a_checkpoint_that_was_only_tracked_loses_nothing(run: Run) -> None:
    network = play(run, TRACKED)
    expected = undisturbed(run.plan)

    for cut in network.cuts.values():
        if cut.is_complete(run.plan):
            restored = Network(run.plan, BarrierTracker, since=cut)
            restored.drain()
            totals = restored.totals()
            assert all(totals[task] >= expected[task] for task in run.plan.tasks)


@pytest.mark.parametrize("mode", ALL)
@given(run=runs)
@settings(max_examples=100, deadline=None)
def test_the_run_that_is_checkpointed_is_not_disturbed(mode: Mode, run: Run) -> None:
    """Check that no channel is blocked at the end, and each record is processed once."""
    network = play(run, mode)

    assert network.totals() == undisturbed(run.plan)
    assert all(task.barriers.is_at_rest for task in network.tasks)
    assert not any(channel.elements for task in network.tasks for channel in task.inputs)


@pytest.mark.parametrize("mode", ALL)
@given(run=runs.filter(lambda run: not run.asked[-1].refusing))
@settings(max_examples=100, deadline=None)
def test_the_newest_checkpoint_is_completed_if_no_source_refuses(mode: Mode, run: Run) -> None:
    network = play(run, mode)

    assert network.cuts[len(run.asked) - 1].is_complete(run.plan)
    assert not any(task.barriers.machine.pending_ids for task in network.tasks)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(replace(ALIGNED, forgotten=(Block,)), id="aligned, blocks nothing"),
        pytest.param(replace(ALTERNATING, forgotten=(Block,)), id="alternating, blocks nothing"),
        pytest.param(replace(ALTERNATING, forgotten=(Capture,)), id="alternating, loses records"),
        pytest.param(replace(UNALIGNED, forgotten=(Capture,)), id="unaligned, loses records"),
        pytest.param(replace(UNALIGNED, forgotten=(EndCapture,)), id="unaligned, goes too far"),
        pytest.param(TRACKED, id="tracked, which is not exact"),
    ],
)
def test_machines_with_an_inconsistent_cut_are_detected(mode: Mode) -> None:
    found = find(
        runs,
        lambda run: bool(problems(run, mode)),
        settings=settings(
            max_examples=2_000,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            deadline=None,
        ),
    )

    assert problems(found, mode)
