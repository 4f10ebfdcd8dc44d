"""barriers.json: the barrier machines, each with a gate whose channels are queues.

In most scenarios each element is passed to the machine when it arrives; those with ``remote`` or ``local`` channels
poll. The driver decides what the scenarios leave open:

- A buffer takes ten milliseconds to be processed, and barriers are made at 0: some scenarios about durations do not
  show in their steps where their source sleeps.
- Gates of ``alternating`` scenarios emit elements after a barrier also while its channel is blocked, as the
  test channels of the source do: two scenarios count such data and such barriers, see DEVIATIONS.md. All other gates
  hold it back, and so ``output`` shows whether the machine blocks where it should not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AlarmFired,
    AllArrived,
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    CancelArrived,
    ChannelEnded,
    Event,
    Instruction,
    TriggerCheckpoint,
)
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.model.elements import Barrier, CancelBarrier, CheckpointKind
from aflow.model.time import MAX_TIMESTAMP
from tests.conformance.driver import Driver, call
from tests.conformance.drivers.barrier_gate import (
    WORDS,
    Announcement,
    Data,
    End,
    Gate,
    Overtaken,
    Queued,
    Urgent,
)
from tests.conformance.scenarios import UnknownWord
from tests.machines.barriers.interpreter import BarrierInterpreter

_MACHINES: Final[Mapping[str, Callable[[int], Barriers]]] = {
    "aligned": BarrierAligner,
    "alternating": AlternatingBarriers,
    "tracker": BarrierTracker,
    "unaligned": AlternatingBarriers,
}
_REASONS: Final[Mapping[AbortReason, str]] = {
    AbortReason.SUBSUMED: "subsumed",
    AbortReason.CANCELLED: "cancellation_barrier",
}
_KINDS: Final = {"checkpoint": CheckpointKind.PERIODIC, "savepoint": CheckpointKind.SAVEPOINT}
_MS_PER_BUFFER: Final = 10
_I = TypeVar("_I", bound=Instruction)
_REPEATED: Final = (
    "barrier, mode aligned without timeout; even ids are checkpoints, odd ids savepoints"
)


class BarrierHandler(Driver):
    """A machine, its gate, and all events and instructions. ``sleep_ms`` repeats the steps."""

    BESIDE = frozenset({"run_timers"})

    def __init__(
        self,
        *,
        handler: str,
        channels: int,
        end_of_partition: str,
        buffer_size_bytes: int = 1,
        sleep_ms: int = 0,
        remote: bool = False,
        local: bool = False,
        remote_channels: Sequence[int] = (),
        local_channels: Sequence[int] = (),
        timer_cancel_is_noop: bool = False,
        note: str = "",
    ) -> None:
        if end_of_partition != "counts_as_barrier":
            raise UnknownWord(f"an end of input that {end_of_partition}")
        self._barriers = BarrierInterpreter[Data](
            _MACHINES[handler](channels), self, cancels_alarms=not timer_cancel_is_noop
        )
        self._machine = self._barriers.machine
        self._unaligned = handler == "unaligned"
        self._channels = channels
        self._gate = Gate(channels)
        self._holds_back = handler != "alternating"
        self._polls = remote or local or bool(remote_channels or local_channels)
        self._remote = set(range(channels) if remote else remote_channels)
        self._buffer_size = buffer_size_bytes
        self._now = 0
        self._closed = False
        #: Channels that announced a barrier which is not in them yet, and those of them in which it is to overtake.
        self._announced: set[int] = set()
        self._overtaking: set[int] = set()
        self._input: list[object] = []
        self._output: list[object] = []
        #: At each abort: which checkpoints had all their barriers.
        self._complete_at_abort: dict[int, list[int]] = {}
        self._started_writing: int | None = None
        self._persisted: list[tuple[int, Data]] = []
        self._bytes: Counter[int] = Counter()
        self._last_bytes = 0

    # ----------------------------------------------------------------------------------------- actions

    def do_buffer(self, channel: int, value: str) -> None:
        self._now += _MS_PER_BUFFER
        self._put(channel, Data(value, self._buffer_size))

    def do_barrier(self, channel: int, id: int) -> None:
        self._put(channel, Barrier(id, created_at=0, unaligned=self._unaligned))

    def do_cancel(self, channel: int, id: int) -> None:
        self._put(channel, CancelBarrier(id))

    def do_end(self, channel: int) -> None:
        self._put(channel, End())

    def do_sleep_ms(self, by: int) -> None:
        self._now += by

    def do_arrive(
        self,
        channel: int,
        barrier: Mapping[str, Any] | None = None,
        data_bytes: int | None = None,
        end: bool = False,
    ) -> None:
        if barrier is not None:
            arrived: Barrier = call(_barrier, dict(barrier))
            self._announced.discard(channel)
            overtakes = arrived.unaligned or channel in self._overtaking
            self._put(channel, replace(arrived, unaligned=overtakes))
        elif data_bytes is not None:
            self._put(channel, Data(f"data {len(self._input)}", data_bytes))
        elif end:
            self._put(channel, End())
        else:
            raise UnknownWord("nothing arrives")

    def do_announcement_only(self, channel: int, barrier: Mapping[str, Any]) -> None:
        self._announced.add(channel)
        self._tell(BarrierAnnounced(channel, call(_barrier, dict(barrier))))

    def do_close_gate(self, _: bool) -> None:
        self._closed = True

    def do_repeat(self, ids: str, for_each_channel_in_order: bool, arrive: str, then: str) -> None:
        if (for_each_channel_in_order, arrive, then) != (True, _REPEATED, "poll_all"):
            raise UnknownWord(f"repeat {arrive!r}, then {then!r}")
        first, last = map(int, ids.split(".."))
        for number in range(first, last + 1):
            kind = CheckpointKind.SAVEPOINT if number % 2 else CheckpointKind.PERIODIC
            for channel in range(self._channels):
                self._put(channel, Barrier(number, self._now, kind))

    def do_poll(self, expected: str) -> None:
        found = self._gate.poll(self._held())
        assert found is not None, f"nothing to poll, not {expected}"
        word = WORDS[type(found[1])]
        assert word == expected, f"polled {word}, not {expected}"
        self._process(*found)

    def do_poll_all(self, _: bool) -> None:
        while (found := self._gate.poll(self._held())) is not None:
            self._process(*found)

    def do_advance_clock_ms(self, advance_clock_ms: int, *, run_timers: bool = True) -> None:
        self._now += advance_clock_ms
        if run_timers:
            self.do_run_timers(True)

    def do_run_timers(self, _: bool) -> None:
        if self._barriers.alarm is not None and self._barriers.alarm <= self._now:
            self._barriers.alarm = None
            if not self._closed:  # as the runtime: a mailbox that is closed takes no alarm
                self._tell(AlarmFired())

    # ------------------------------------------------------------------------------------------ facts

    def see_output(self, _: str) -> str:
        return "same_as_input" if self._output == self._input else f"{self._output}"

    def see_finished(self) -> bool:
        return self._machine.open_channels == 0

    def see_open_channels(self) -> int:
        return self._machine.open_channels

    def see_latest_id(self) -> int:
        return self._machine.latest_id

    def see_pending(self) -> bool:
        return bool(self._machine.pending_ids)

    def see_during_alignment(self) -> bool:
        return bool(self._machine.pending_ids)

    def see_pending_ids(self) -> list[int]:
        return list(self._machine.pending_ids)

    def see_blocked(self) -> list[int]:
        return sorted(self._barriers.blocked)

    def see_blocked_excludes(self, expected: Sequence[int]) -> list[int]:
        return [channel for channel in expected if channel not in self._barriers.blocked]

    def see_triggered(self) -> list[int]:
        return [each.barrier.id for each in self._triggers]

    def see_triggered_count(self) -> int:
        return len(self._triggers)

    def see_any_triggered(self) -> bool:
        return bool(self._triggers)

    def see_triggered_options(self) -> list[dict[str, object]]:
        return [_options(each.barrier) for each in self._triggers]

    def see_triggered_options_not(self, expected: Sequence[object]) -> object:
        """``expected`` itself if no checkpoint was triggered with one of these options."""
        found = self.see_triggered_options()
        return found if any(each in expected for each in found) else expected

    def see_all_barriers_received(self, expected: Mapping[str, object]) -> dict[str, object]:
        checkpoint = expected["id"]
        done = checkpoint in [each.id for each in self._of(AllArrived)]
        return {"id": checkpoint, "done": done}

    def see_last_triggered_options(self) -> dict[str, object]:
        return _options(self._triggers[-1].barrier)

    def see_aborted(self, expected: Sequence[object]) -> list[object]:
        """With reasons, if they are expected."""
        if any(isinstance(each, int) for each in expected):
            return [each.id for each in self._aborts]
        return [_abort(each) for each in self._aborts]

    def see_aborted_ids(self) -> list[int]:
        return [each.id for each in self._aborts]

    def see_aborted_count(self) -> int:
        return len(self._aborts)

    def see_any_aborted(self) -> bool:
        return bool(self._aborts)

    def see_last_aborted(self, expected: Mapping[str, object]) -> dict[str, object]:
        last = _abort(self._aborts[-1])
        return {word: last[word] for word in expected}

    def see_notifications(self) -> list[dict[str, int]]:
        return [
            {"trigger": each.barrier.id}
            if isinstance(each, TriggerCheckpoint)
            else {"abort": each.id}
            for each in self._barriers.instructions
            if isinstance(each, TriggerCheckpoint | Abort)
        ]

    def see_at_abort_callback(self, expected: Mapping[str, int]) -> dict[str, object]:
        checkpoint = expected["all_barriers_future_of"]
        done = checkpoint in self._complete_at_abort[checkpoint]
        return {"all_barriers_future_of": checkpoint, "done": done}

    def see_checkpoint_start_delay_ms(self) -> int:
        return self._triggers[-1].start_delay

    def see_start_delay_ms(self) -> int:
        return self._triggers[-1].start_delay

    def see_alignment_duration_ms(self) -> int:
        complete = self._of(AllArrived)
        return complete[-1].alignment if complete else 0

    def see_alignment_duration_ns(self) -> int:
        return self.see_alignment_duration_ms() * 1_000_000

    def see_last_alignment_duration_ms(self) -> int:
        return self.see_alignment_duration_ms()

    def see_bytes_processed_during_alignment(self) -> int | str:
        return "not_yet_known" if self._machine.pending_ids else self._last_bytes

    def see_last_reported_bytes_processed_during_alignment(self) -> int:
        return self._last_bytes

    def see_state_writer_started_id(self) -> int | None:
        started, self._started_writing = self._started_writing, None
        return started

    def see_inflight_since_last_check(self) -> list[str]:
        persisted, self._persisted = self._persisted, []
        return [data.name for _, data in persisted]

    def see_captured_inflight_count(self) -> dict[str, int]:
        return dict(Counter(str(channel) for channel, _ in self._captured()))

    def see_captured_inflight_nonempty(self) -> bool:
        return bool(self._captured())

    # ------------------------------------------------------------------------------------------ the task

    @property
    def _triggers(self) -> list[TriggerCheckpoint]:
        return self._of(TriggerCheckpoint)

    @property
    def _aborts(self) -> list[Abort]:
        return self._of(Abort)

    def _of(self, kind: type[_I]) -> list[_I]:
        return [each for each in self._barriers.instructions if isinstance(each, kind)]

    def _captured(self) -> list[tuple[int, Data]]:
        in_flight = self._barriers.in_flight.values()
        return self._persisted + [each for captured in in_flight for each in captured]

    def _put(self, channel: int, element: Queued) -> None:
        if isinstance(element, Data | End):
            self._input.append((channel, element))
        may_overtake = isinstance(element, Barrier) and element.timeout is not None
        self._gate.put(channel, element, announced=may_overtake and channel in self._remote)
        if not self._polls:
            self.do_poll_all(True)

    def _held(self) -> set[int]:
        return self._barriers.blocked if self._holds_back else set()

    def _process(self, channel: int, element: Queued | Urgent) -> None:
        match element:
            case Data():
                self._hand_out(channel, element)
            case End():
                self._output.append((channel, element))
                self._tell(ChannelEnded(channel))
            case Barrier():
                self._tell(BarrierArrived(channel, element))
            case CancelBarrier(checkpoint):
                self._tell(CancelArrived(channel, checkpoint))
            case Announcement(barrier):
                self._tell(BarrierAnnounced(channel, barrier))
            case Overtaken(barrier, data):
                self._tell(BarrierArrived(channel, barrier), data)

    def _hand_out(self, channel: int, data: Data) -> None:
        self._output.append((channel, data))
        self._bytes.update(dict.fromkeys(self._machine.pending_ids, data.size))
        self._barriers.on_record(channel, data)

    def _tell(self, event: Event, overtaken: Sequence[Data] = ()) -> None:
        self._barriers.handle(event, self._now, overtaken)

    def on_trigger(self, barrier: Barrier) -> None:
        if barrier.unaligned:
            self._started_writing = barrier.id

    def on_abort(self, checkpoint: int) -> None:
        self._complete_at_abort[checkpoint] = [each.id for each in self._of(AllArrived)]

    def on_all_arrived(self, checkpoint: int, in_flight: Sequence[tuple[int, Data]]) -> None:
        self._persisted += in_flight
        self._last_bytes = self._bytes.pop(checkpoint, 0)

    def overtake(self, channel: int, checkpoint: int) -> None:
        if channel in self._announced:
            self._overtaking.add(channel)
        else:
            self._gate.overtake(channel, checkpoint)


def _barrier(
    *,
    id: int,
    mode: str,
    created_at_ms: int,
    alignment_timeout_ms: int | Literal["never"] | None = None,
    kind: str = "checkpoint",
) -> Barrier:
    if mode not in ("aligned", "unaligned"):
        raise UnknownWord(f"mode {mode!r}")
    timeout = MAX_TIMESTAMP if isinstance(alignment_timeout_ms, str) else alignment_timeout_ms
    return Barrier(id, created_at_ms, _KINDS[kind], timeout, unaligned=mode == "unaligned")


def _options(barrier: Barrier) -> dict[str, object]:
    if barrier.unaligned:
        return {"mode": "unaligned"}
    timeout = {} if barrier.timeout is None else {"alignment_timeout_ms": barrier.timeout}
    return {"mode": "aligned", **timeout}


def _abort(abort: Abort) -> dict[str, object]:
    return {"id": abort.id, "reason": _REASONS[abort.reason]}
