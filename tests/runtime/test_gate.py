"""The gate of a task."""

from __future__ import annotations

from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.runtime.channel import InputChannels
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
