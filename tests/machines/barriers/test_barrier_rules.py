"""Invariants of barrier machines for any events in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    Abort,
    AlarmFired,
    AllArrived,
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    Block,
    CancelAlarm,
    CancelArrived,
    Capture,
    ChannelEnded,
    DiscardCapture,
    EndCapture,
    Event,
    Instruction,
    Overtake,
    SetAlarm,
    TriggerCheckpoint,
    Unblock,
)
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.model.elements import Barrier, CheckpointKind

MOST_CHANNELS: Final = 4
channel_numbers = st.integers(0, MOST_CHANNELS - 1)


class Rules(RuleBasedStateMachine):
    """Channels with possible events: ids grow, and each is a barrier or a cancellation, once."""

    make: Callable[[int], Barriers]
    #: True if all periodic barriers overtake from the start.
    overtakes: ClassVar[bool] = False

    @initialize(channels=st.integers(1, MOST_CHANNELS))
    def begin(self, channels: int) -> None:
        self.machine = type(self).make(channels)
        self.channels = channels
        self.now = 0
        self.barriers: dict[int, Barrier] = {}
        #: By channel: the newest checkpoint that it spoke about.
        self.said = [-1] * channels
        self.on_the_way: dict[int, Barrier] = {}
        self.ended: set[int] = set()
        self.received: dict[int, set[int]] = {}
        self.blocked: set[int] = set()
        self.captured: dict[int, set[int]] = {}
        self.alarm: int | None = None
        self.triggered: list[Barrier] = []
        self.complete: list[int] = []
        self.aborted: list[int] = []

    # --------------------------------------------------------------------------------------- events

    @rule(
        channel=channel_numbers,
        skip=st.sampled_from([0, 0, 0, 1, 2]),
        timeout=st.none() | st.integers(0, 20),
        kind=st.sampled_from(CheckpointKind),
    )
    def barrier(self, channel: int, skip: int, timeout: int | None, kind: CheckpointKind) -> None:
        channel %= self.channels
        if channel not in self.blocked:
            if channel in self.on_the_way:
                self.arrive(channel, self.on_the_way.pop(channel))
            else:
                self.arrive(channel, self.say(channel, skip, timeout, kind))

    @rule(channel=channel_numbers, skip=st.sampled_from([0, 0, 0, 1, 2]))
    def overtaking_barrier(self, channel: int, skip: int) -> None:
        """Let a barrier overtake, in a blocked channel too."""
        channel %= self.channels
        if self.may_overtake and channel not in self.on_the_way:
            said = self.say(channel, skip, 20, CheckpointKind.PERIODIC)
            if _can_turn(said):
                self.arrive(channel, replace(said, unaligned=True))
            else:
                self.on_the_way[channel] = said

    @rule(channel=channel_numbers, timeout=st.integers(0, 20))
    def announce(self, channel: int, timeout: int) -> None:
        channel %= self.channels
        if channel not in self.on_the_way and not self.overtakes:
            said = self.say(channel, 0, timeout, CheckpointKind.PERIODIC)
            self.on_the_way[channel] = said
            if said.timeout is not None:
                self.tell(BarrierAnnounced(channel, said))

    @rule(channel=channel_numbers, skip=st.sampled_from([0, 0, 1]))
    def cancel(self, channel: int, skip: int) -> None:
        channel %= self.channels
        if channel not in self.on_the_way and channel not in self.blocked:
            number = self.say(channel, skip, None, CheckpointKind.PERIODIC).id
            self.tell(CancelArrived(channel, number))

    @rule(channel=channel_numbers)
    def end(self, channel: int) -> None:
        """End a channel, also before a barrier that was announced."""
        channel %= self.channels
        if channel not in self.ended and channel not in self.blocked:
            self.ended.add(channel)
            self.tell(ChannelEnded(channel))

    @rule(by=st.integers(1, 10))
    def time_passes(self, by: int) -> None:
        self.now += by

    @precondition(lambda self: self.alarm is not None and self.alarm <= self.now)
    @rule()
    def fire(self) -> None:
        self.alarm = None
        self.tell(AlarmFired())

    # ------------------------------------------------------------------------------------ invariants

    @invariant()
    def channels_are_blocked_only_while_aligning(self) -> None:
        pending = self.machine.pending_ids
        here = self.received.get(pending[0], set[int]()) if pending else set[int]()
        assert self.blocked <= here

    @invariant()
    def the_aligner_blocks_all_that_have_arrived(self) -> None:
        if isinstance(self.machine, BarrierAligner) and self.machine.pending_ids:
            assert self.blocked == self.received[self.machine.pending_ids[0]]

    @invariant()
    def records_are_captured_only_for_what_is_pending_and_triggered(self) -> None:
        for checkpoint, channels in self.captured.items():
            assert checkpoint in self.machine.pending_ids
            assert checkpoint in [one.id for one in self.triggered]
            here = self.received.get(checkpoint, set[int]()) | self.ended
            assert channels == set(range(self.channels)) - here

    @invariant()
    def an_alarm_is_set_only_while_something_is_pending(self) -> None:
        assert self.alarm is None or self.machine.pending_ids

    @invariant()
    def a_checkpoint_that_can_turn_has_an_alarm_or_has_turned(self) -> None:
        """Check the alarm of a pending checkpoint that can turn."""
        pending = self.machine.pending_ids
        if isinstance(self.machine, AlternatingBarriers) and pending:
            barrier = self.barriers[pending[0]]
            assert (self.alarm is not None or pending[0] in self.captured) == (
                barrier.unaligned or _can_turn(barrier)
            )

    @invariant()
    def nothing_is_pending_without_open_channels(self) -> None:
        assert self.machine.open_channels == self.channels - len(self.ended)
        if self.machine.open_channels == 0:
            assert not self.machine.pending_ids

    # ------------------------------------------------------------------------------------------- the shell

    @property
    def may_overtake(self) -> bool:
        return isinstance(self.machine, AlternatingBarriers)

    def say(self, channel: int, skip: int, timeout: int | None, kind: CheckpointKind) -> Barrier:
        number = self.said[channel] = self.said[channel] + 1 + skip
        kind = kind if self.machine.open_channels else CheckpointKind.FINAL
        unaligned = self.overtakes and kind is CheckpointKind.PERIODIC
        said = Barrier(number, self.now, kind, timeout, unaligned)
        return self.barriers.setdefault(number, said)

    def arrive(self, channel: int, barrier: Barrier) -> None:
        if channel not in self.ended:
            self.received.setdefault(barrier.id, set()).add(channel)
        self.tell(BarrierArrived(channel, barrier))

    def tell(self, event: Event) -> None:
        overtaking: list[int] = []
        for one in self.machine.handle(event, self.now):
            self.follow(one)
            if isinstance(one, Overtake):
                overtaking += one.channels
        for channel in overtaking:
            self.arrive(channel, replace(self.on_the_way.pop(channel), unaligned=True))

    def follow(self, one: Instruction) -> None:
        match one:
            case TriggerCheckpoint(barrier):
                self.triggers(barrier)
            case AllArrived(checkpoint):
                assert checkpoint == self.triggered[-1].id
                assert checkpoint not in self.aborted
                assert not self.captured.pop(checkpoint, set())
                self.complete.append(checkpoint)
            case Abort(checkpoint):
                assert checkpoint not in self.complete
                assert checkpoint not in self.aborted
                assert checkpoint not in self.captured
                self.aborted.append(checkpoint)
            case Block(channel):
                assert channel not in self.blocked
                assert channel not in self.ended
                self.blocked.add(channel)
            case Unblock(channel):
                self.blocked.remove(channel)
            case Capture(checkpoint, channels):
                assert checkpoint == self.triggered[-1].id
                assert channels
                self.captured[checkpoint] = set(channels)
            case EndCapture(channel):
                self.captured[self.triggered[-1].id].remove(channel)
            case DiscardCapture(checkpoint):
                assert checkpoint not in self.complete
                del self.captured[checkpoint]
            case Overtake(channels):
                assert channels
                for channel in channels:
                    assert self.on_the_way[channel].id == self.machine.latest_id
            case SetAlarm(at):
                self.alarm = at
            case CancelAlarm():
                assert self.alarm is not None
                self.alarm = None

    def triggers(self, barrier: Barrier) -> None:
        """Check that checkpoints are triggered once, in order, and aligned only with all barriers."""
        assert all(former.id < barrier.id for former in self.triggered)
        assert barrier.id not in self.aborted
        sent = self.barriers[barrier.id]
        assert replace(barrier, unaligned=False) == replace(sent, unaligned=False)
        if barrier.unaligned:
            assert self.may_overtake
            assert sent.unaligned or _can_turn(barrier)
        else:
            here = self.received.get(barrier.id, set[int]()) | self.ended
            assert here == set(range(self.channels))
        self.triggered.append(barrier)


def _can_turn(barrier: Barrier) -> bool:
    return barrier.timeout is not None and barrier.kind is CheckpointKind.PERIODIC


class Alternating(Rules):
    make = AlternatingBarriers


class Aligned(Rules):
    make = BarrierAligner


class Tracked(Rules):
    make = BarrierTracker


class Unaligned(Rules):
    make = AlternatingBarriers
    overtakes = True


@pytest.mark.slow
@pytest.mark.parametrize("rules", [Aligned, Alternating, Tracked, Unaligned])
def test_the_invariants_hold_for_any_events(rules: type[Rules]) -> None:
    run_state_machine_as_test(
        rules, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
