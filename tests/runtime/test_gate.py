"""The gate of a task."""

from __future__ import annotations

from typing import Any

from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Watermark
from aflow.runtime.channel import Element, InputChannels
from aflow.runtime.gate import Gate
from aflow.testing import VirtualClock, virtual_time
from tests.runtime.checkpoints.input_bench import RecordedOutput


def test_elements_sent_before_the_gate_exists_are_read_and_so_are_later_ones() -> None:
    async def main() -> list[str]:
        inputs = InputChannels(_nothing)
        channels = [inputs.add(10, _nothing), inputs.add(10, _nothing)]
        channels[1].put(Watermark(5))  # as a restored operator does, while tasks are built
        recorded = RecordedOutput()

        gate = Gate(inputs, [recorded, recorded], BatchSize(10, budget=1.0), VirtualClock(), None)
        channels[0].put(Watermark(7))
        channels[1].put_batch(Batch(["a"]))
        while gate.step():
            pass
        return [str(line) for line in recorded.lines]

    assert sorted(virtual_time.run(main)) == ["a", "t=5"]


def _nothing() -> None:
    pass


def outputs(*channels: list[Element]) -> list[object]:
    """Return the outputs of a gate with the elements in its channels, as after a restore."""

    async def main() -> list[object]:
        inputs = InputChannels(_nothing)
        for elements in channels:
            channel = inputs.add(10, _nothing)
            for element in elements:
                if isinstance(element, Batch):
                    channel.put_batch(element)
                else:
                    channel.put(element)
        recorded = _Recorded()
        heads = [recorded] * len(channels)
        gate = Gate(inputs, heads, BatchSize(10, budget=1.0), VirtualClock(), None)
        while gate.step():
            pass
        return list(recorded.lines)

    return virtual_time.run(main)


class _Recorded(RecordedOutput):
    """Batches with the watermarks that their records meet."""

    def emit(self, batch: Batch[Any]) -> None:
        self.lines.append(f"{batch.values} meet {batch.watermarks}")


def test_records_of_one_channel_meet_the_watermarks_that_were_sent_with_them() -> None:
    lines = outputs([Batch(["a", "b"], [9, 12], None, [-1, 8]), Watermark(11)])

    assert lines == ["['a', 'b'] meet [-1, 8]", "t=8", "t=11"]


def test_a_channel_without_a_watermark_holds_back_those_of_records_in_flight() -> None:
    earned = Batch(["a", "b"], [90, 95], None, [80, 89])

    lines = outputs([earned, Watermark(94)], [Batch(["older"], [50]), Watermark(60)])

    assert lines == ["['a', 'b'] meet None", "['older'] meet None", "t=60"]


def test_records_meet_no_watermark_that_is_ahead_of_another_channel() -> None:
    later = Batch(["a", "b", "c"], [70, 90, 95], None, [40, 69, 89])

    lines = outputs([Watermark(30), later], [Watermark(75)])

    assert lines == ["t=30", "['a', 'b', 'c'] meet [40, 69, 75]", "t=75"]


def test_records_of_a_channel_behind_the_others_meet_the_last_watermark() -> None:
    behind = Batch(["a", "b"], [10, 20], None, [5, 9])

    lines = outputs([IDLE, ACTIVE, behind], [IDLE, ACTIVE, Watermark(75)], [Watermark(75), IDLE])

    assert lines[-1] == "['a', 'b'] meet None"
