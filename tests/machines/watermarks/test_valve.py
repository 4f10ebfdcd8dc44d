"""The watermark of several channels. Flink's facts are in tests/conformance."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.errors import InternalError
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP


def valve_at(*watermarks: int) -> WatermarkValve:
    """A valve with a channel for each of these watermarks, all of them active."""
    valve = WatermarkValve(len(watermarks))
    for channel, watermark in enumerate(watermarks):
        valve.on_watermark(channel, watermark)
    return valve


def test_a_valve_begins_without_any_knowledge() -> None:
    valve = WatermarkValve(2)

    assert (valve.watermark, valve.idle) == (MIN_TIMESTAMP, False)
    assert valve.on_watermark(0, 5) is None
    assert valve.on_watermark(1, 3) == 3


def test_the_maximum_is_flushed_before_the_output_becomes_idle() -> None:
    valve = valve_at(10, 5, 3)

    assert valve.on_idle(0) == []
    assert valve.on_idle(1) == []
    assert valve.on_idle(2) == [Watermark(10), IDLE]


def test_the_maximum_is_flushed_even_if_the_last_active_channel_was_behind() -> None:
    valve = valve_at(10, 5, 20)
    valve.on_idle(2)
    valve.on_idle(1)  # the output is at 10 now
    valve.on_active(1)
    assert valve.on_idle(0) == []

    assert valve.on_idle(1) == [Watermark(20), IDLE]


def test_channels_without_a_watermark_flush_nothing_when_idle() -> None:
    valve = WatermarkValve(1)

    assert valve.on_idle(0) == [IDLE]
    assert valve.watermark == MIN_TIMESTAMP


def test_time_stops_while_all_active_channels_are_behind() -> None:
    valve = valve_at(10, 5)
    valve.on_idle(1)
    valve.on_active(1)
    assert valve.on_idle(0) == []

    assert valve.on_watermark(1, 7) is None
    assert valve.on_watermark(1, 10) is None
    assert valve.on_watermark(1, 11) == 11


def test_a_channel_that_is_active_again_and_ahead_decides_while_no_other_counts() -> None:
    valve = valve_at(10, 5, 20)
    valve.on_idle(2)
    valve.on_idle(1)
    valve.on_active(1)  # at 5, behind the output at 10
    valve.on_idle(0)

    assert valve.on_active(2) == []
    assert valve.on_watermark(2, 30) == 30


def test_a_channel_that_becomes_active_with_a_current_watermark_counts_at_once() -> None:
    valve = valve_at(10, 10)
    valve.on_idle(1)
    valve.on_active(1)

    assert valve.on_watermark(0, 12) is None
    assert valve.on_watermark(1, 11) == 11


def test_a_channel_at_the_end_of_time_is_not_waited_for() -> None:
    valve = valve_at(5, 10)

    assert valve.on_watermark(0, MAX_TIMESTAMP) == 10
    assert valve.on_end(0) == []
    assert valve.on_watermark(1, 12) == 12


def test_a_channel_that_was_stopped_before_its_end_holds_back_the_watermark() -> None:
    valve = valve_at(5, 10)

    assert valve.on_end(0) == []
    assert valve.on_watermark(1, MAX_TIMESTAMP) is None
    assert valve.watermark == 5


def test_a_channel_that_was_stopped_while_idle_does_not_let_time_end() -> None:
    valve = valve_at(5, 10)
    valve.on_idle(0)

    assert valve.on_end(0) == []
    assert valve.on_watermark(1, MAX_TIMESTAMP) is None
    assert valve.watermark == 10


def test_an_ended_channel_is_not_listened_to() -> None:
    valve = valve_at(5, 10)
    valve.on_watermark(1, MAX_TIMESTAMP)
    valve.on_end(1)

    assert valve.on_watermark(1, MAX_TIMESTAMP) is None
    assert (valve.on_idle(1), valve.on_active(1), valve.on_end(1)) == ([], [], [])
    assert valve.on_watermark(0, 6) == 6


def test_event_time_ends_when_it_has_ended_on_all_channels() -> None:
    valve = valve_at(5, 10)

    assert valve.on_watermark(0, MAX_TIMESTAMP) == 10
    assert valve.on_end(0) == []
    assert valve.on_watermark(1, MAX_TIMESTAMP) == MAX_TIMESTAMP
    assert valve.on_end(1) == []


def test_a_drained_channel_does_not_end_time_for_an_idle_one() -> None:
    valve = valve_at(5, 10)
    valve.on_idle(1)

    assert valve.on_watermark(0, MAX_TIMESTAMP) == 10
    assert valve.on_end(0) == [IDLE]
    assert valve.on_active(1) == [ACTIVE]
    assert valve.on_watermark(1, 12) == 12
    assert valve.on_watermark(1, MAX_TIMESTAMP) == MAX_TIMESTAMP


def test_a_drained_channel_does_not_end_time_for_one_that_is_catching_up() -> None:
    valve = valve_at(10, 5)
    valve.on_idle(1)
    valve.on_active(1)

    assert valve.on_watermark(0, MAX_TIMESTAMP) is None
    assert valve.on_watermark(1, 9) is None
    assert valve.on_watermark(1, 12) == 12


def test_a_drained_channel_that_is_idle_and_active_again_does_not_end_time() -> None:
    valve = valve_at(5, 10)
    valve.on_watermark(0, MAX_TIMESTAMP)
    valve.on_idle(0)
    valve.on_active(0)

    assert valve.on_idle(1) == [IDLE]
    assert valve.watermark == 10


def test_a_channel_may_reach_the_end_of_time_while_idle() -> None:
    valve = valve_at(5)
    valve.on_idle(0)

    assert valve.on_watermark(0, MAX_TIMESTAMP) == MAX_TIMESTAMP
    assert valve.on_end(0) == []


def test_the_output_becomes_idle_if_all_channels_are_idle_or_drained() -> None:
    valve = valve_at(5, 10)
    valve.on_watermark(0, MAX_TIMESTAMP)

    assert valve.on_idle(1) == [IDLE]


def test_a_valve_without_channels_is_refused() -> None:
    with pytest.raises(InternalError, match="not 0"):
        WatermarkValve(0)


CHANNELS = 3
channels = st.integers(0, CHANNELS - 1)

#: Probability of final events, which would otherwise end most runs early.
one_in_ten = st.integers(0, 9).map(lambda drawn: drawn == 9)


class ValveRules(RuleBasedStateMachine):
    """Against the rules as written in the theory, computed from scratch after each event."""

    def __init__(self) -> None:
        super().__init__()
        self.valve = WatermarkValve(CHANNELS)
        self.seen = [MIN_TIMESTAMP] * CHANNELS
        self.state = ["active"] * CHANNELS
        self.aligned = [True] * CHANNELS
        self.output = MIN_TIMESTAMP
        self.idle = False

    @rule(channel=channels, at=st.integers(0, 8), over=one_in_ten)
    def watermark(self, channel: int, at: int, over: bool) -> None:
        at = MAX_TIMESTAMP if over else at
        heard = self.state[channel] == "active" or (
            self.state[channel] == "idle" and at == MAX_TIMESTAMP
        )
        moves = heard and at > self.seen[channel]
        if moves:
            self.seen[channel] = at
            self.aligned[channel] |= at >= self.output
        before = self.output

        said = self.valve.on_watermark(channel, at)

        if moves:
            self.advance()
        assert said == (self.output if self.output > before else None)

    @rule(channel=channels)
    def becomes_idle(self, channel: int) -> None:
        changes = self.state[channel] == "active"
        if changes:
            self.state[channel], self.aligned[channel] = "idle", False
        self.left(self.valve.on_idle(channel), changes)

    @rule(channel=channels, really=one_in_ten)
    def ends(self, channel: int, really: bool) -> None:
        if not really:
            return
        changes = self.state[channel] != "ended" and self.seen[channel] == MAX_TIMESTAMP
        if changes:
            self.state[channel] = "ended"
        self.left(self.valve.on_end(channel), changes)

    @rule(channel=channels)
    def becomes_active(self, channel: int) -> None:
        expected: list[Active] = []
        if self.state[channel] == "idle":
            self.state[channel] = "active"
            self.aligned[channel] = self.seen[channel] >= self.output
            expected, self.idle = ([ACTIVE] if self.idle else []), False

        assert self.valve.on_active(channel) == expected

    @invariant()
    def what_can_be_asked_is_right(self) -> None:
        assert (self.valve.watermark, self.valve.idle) == (self.output, self.idle)
        assert [self.valve.watermark_of(c) for c in range(CHANNELS)] == self.seen

    def left(self, said: Sequence[Watermark | Idle], changes: bool) -> None:
        expected: list[Watermark | Idle] = []
        if changes:
            before = self.output
            self.advance()
            if self.output > before:
                expected.append(Watermark(self.output))
            waiting = [self.state[c] for c in range(CHANNELS) if self.seen[c] < MAX_TIMESTAMP]
            if not self.idle and "idle" in self.state and "active" not in waiting:
                self.idle = True
                expected.append(IDLE)
        assert said == expected

    def advance(self) -> None:
        """The output follows from the channels, and never goes back."""
        is_open = [c for c in range(CHANNELS) if self.state[c] != "ended"]
        waiting = [c for c in is_open if self.seen[c] < MAX_TIMESTAMP]
        counting = [c for c in waiting if self.state[c] == "active" and self.aligned[c]]
        if counting:
            combined = min(self.seen[c] for c in counting)
        elif any(self.state[c] == "active" for c in waiting):
            return
        elif waiting:
            combined = max(at for at in self.seen if at < MAX_TIMESTAMP)
        else:
            combined = max(self.seen)
        self.output = max(self.output, combined)


TestValveRules = ValveRules.TestCase
