"""Results of calls for the rows of a DataFrame are all passed on, whenever they come."""

from __future__ import annotations

import asyncio
from typing import Any

from aflow.backfill.blocks import ExitBatch
from aflow.backfill.fragments import Exit
from aflow.graph.nodes import Edge, Kind, Node
from aflow.model.batch import Batch
from aflow.testing import virtual_time
from aflow_connectors.spark.dataframe.map_async import CollectedResults

STEP = Node(id=0, name="step", kind=Kind.SOURCE, what="source")
SINK = Node(id=1, name="results", kind=Kind.SINK, what="to", inputs=(Edge(STEP),))


class SlowOutput:
    """Takes a second for each batch."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    async def put(self, result: list[Any]) -> None:
        await asyncio.sleep(1)
        self.taken += result


def test_results_that_come_with_the_end_while_others_are_sent_are_passed_on() -> None:
    output = SlowOutput()
    collected = CollectedResults(output)

    def put(*results: int) -> None:
        exit_batch = ExitBatch(Exit(0, STEP, None, sink=SINK), Batch(list(results)))
        assert collected.put(exit_batch) is None

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(collected.send_lingering())
            put(1, 2)
            await asyncio.sleep(0.5)  # they linger for a millisecond, and are being sent
            put(3)
            collected.end()

    virtual_time.run(main)

    assert output.taken == [1, 2, 3]
