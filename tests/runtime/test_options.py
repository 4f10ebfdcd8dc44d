"""Options of a run, and what they mean for a task."""

from __future__ import annotations

import pytest

import aflow as af
from aflow.graph.nodes import Kind, Node
from aflow.machines.batch_size import BatchSize
from aflow.machines.turns import Turn

PLAIN = Node(id=0, name="double", kind=Kind.STEP, what="map")
CALLS = Node(id=1, name="look up", kind=Kind.STEP, what="map_async", calls=True)


def grown(size: BatchSize) -> int:
    """Return the largest bound that ``size`` reaches."""
    for _ in range(20):
        size.took(size.limit, 0.0)
    return size.limit


@pytest.mark.parametrize(
    ("options", "nodes", "most"),
    [
        (af.Options(), [PLAIN], 4_096),
        (af.Options(), [PLAIN, CALLS], 1_024),
        (af.Options(batch_records=10), [PLAIN, CALLS], 10),
        (af.Options(batch_records=10_000), [PLAIN], 10_000),
    ],
)
def test_a_task_with_calls_takes_smaller_batches(
    options: af.Options, nodes: list[Node], most: int
) -> None:
    assert grown(options.batch_size(nodes, Turn(0.002))) == most


def test_steps_with_calls_are_known_to_the_plan() -> None:
    async def same(value: int) -> int:
        return value

    class Handle(af.AsyncKeyedProcess[int, int, int]):
        async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
            return [value]

    flow = af.Flow("calls")
    keyed = flow.source([1]).map_async(same).key_by(lambda value: value)
    keyed.process_async(Handle(), name="handle").to(af.CollectSink[int]())

    calls = {node.what for node in flow.graph.nodes if node.calls}
    assert calls == {"map_async", "process_async"}
