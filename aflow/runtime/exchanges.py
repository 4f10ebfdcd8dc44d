"""The exchanges between the tasks of a job: their channels, and the subtasks at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aflow.graph.nodes import Custom, Edge, Forward, Node
from aflow.graph.plan import Channels, Plan, TaskPlan
from aflow.model.batch import Batch
from aflow.runtime.channel import Channel, InputChannels
from aflow.runtime.checkpoints.inflight import ElementOrigin
from aflow.runtime.checkpoints.restoration import Restoration
from aflow.runtime.edges import OutEdge, make_edge
from aflow.runtime.task_environment import TaskEnvironment


class Exchanges:
    """All channels of one attempt to run a job."""

    def __init__(
        self, plan: Plan, tasks: Mapping[int, Sequence[TaskEnvironment]], capacity: int
    ) -> None:
        """``tasks`` are the environments of all subtasks, by the index of the task."""
        self._plan = plan
        self._home = {node.id: task for task in plan.tasks for node in task.nodes}
        #: The channels of each exchange, by (reader node, input number): ``[writer subtask][reader subtask]``.
        self._channels: dict[tuple[int, int], list[list[Channel]]] = {}
        #: By index of the task: the channels into each of its subtasks.
        self._inputs = {
            task.index: [InputChannels(one.loop.resume) for one in tasks[task.index]]
            for task in plan.tasks
        }
        for task in plan.tasks:
            for number, channels in enumerate(task.incoming):
                writers = tasks[self._home[channels.edge.origin.id].index]
                made = self._connect(channels, self._inputs[task.index], writers, capacity)
                self._channels[channels.reader.id, number] = made

    def home(self, node: Node) -> TaskPlan:
        """Return the task that a step runs in."""
        return self._home[node.id]

    def _connect(
        self,
        channels: Channels,
        readers: Sequence[InputChannels],
        writers: Sequence[TaskEnvironment],
        capacity: int,
    ) -> list[list[Channel]]:
        """Create the channels of each writing subtask: to the reader of its own index, or to all readers."""
        forward = isinstance(channels.edge.partitioning, Forward)
        return [
            [
                reader.add(capacity, writer.loop.resume)
                for reader in (readers[index : index + 1] if forward else readers)
            ]
            for index, writer in enumerate(writers)
        ]

    def edges(self, plan: TaskPlan, subtask: int) -> Iterator[tuple[Edge, OutEdge]]:
        """Create the sending ends of a subtask, with the edges of the plan that they belong to."""
        for reader in self._plan.tasks:
            for number, channels in enumerate(reader.incoming):
                origin = channels.edge.origin
                if self._home[origin.id] is not plan:
                    continue
                custom = isinstance(channels.edge.partitioning, Custom)
                yield (
                    channels.edge,
                    make_edge(
                        channels.reader.name if custom else origin.name,
                        channels.edge.partitioning,
                        self._channels[channels.reader.id, number][subtask],
                        self._plan.key_groups,
                    ),
                )

    def inputs(self, plan: TaskPlan, subtask: int) -> InputChannels:
        """Return the channels into a subtask, in the order of ``origins``."""
        return self._inputs[plan.index][subtask]

    def origins(self, plan: TaskPlan, subtask: int) -> list[ElementOrigin]:
        """Return the origins of the channels of a subtask, in the order of its gate."""
        return [
            origin
            for number in range(len(plan.incoming))
            for origin in self._all_origins(plan, number)
            if origin.reader == subtask
        ]

    def _all_origins(self, plan: TaskPlan, number: int) -> Iterator[ElementOrigin]:
        """Yield the origins of all channels of one input."""
        edge = plan.incoming[number].edge
        writers, readers = self._home[edge.origin.id].parallelism, plan.parallelism
        for writer in range(writers):
            targets = (writer,) if isinstance(edge.partitioning, Forward) else range(readers)
            for reader in targets:
                yield ElementOrigin(number, writer, writers, reader, readers, edge.partitioning)

    def refill(self, plan: TaskPlan, restoration: Restoration) -> None:
        """Put restored records in flight into their channels, before all others."""
        if not plan.incoming:
            return
        origins = {
            (origin.number, origin.writer, origin.reader): origin
            for number in range(len(plan.incoming))
            for origin in self._all_origins(plan, number)
        }
        found = restoration.in_flight(plan.head.name, origins, self._plan.key_groups)
        for origin, elements in found.items():
            exchange = self._channels[plan.head.id, origin.number]
            row = exchange[origin.writer]
            channel = row[0] if isinstance(origin.partitioning, Forward) else row[origin.reader]
            for element in elements:
                if isinstance(element, Batch):
                    channel.put_batch(element)
                else:
                    channel.put(element)
