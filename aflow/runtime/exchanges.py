"""The exchanges between the tasks of a job: their channels, and the subtasks at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aflow.graph.nodes import Custom, Edge, Forward, Node
from aflow.graph.plan import Plan, TaskPlan
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
        #: By index of the reading task, number of its input, and writing subtask: the channels, with their origins.
        self._channels: dict[tuple[int, int, int], list[tuple[ElementOrigin, Channel]]] = {}
        #: By index of the task: the channels into each of its subtasks.
        self._inputs = {
            task.index: [InputChannels(one.loop.resume) for one in tasks[task.index]]
            for task in plan.tasks
        }
        for task in plan.tasks:
            for number, channels in enumerate(task.incoming):
                writers = tasks[self._home[channels.edge.origin.id].index]
                for index, writer in enumerate(writers):
                    self._channels[task.index, number, index] = [
                        (
                            origin,
                            self._inputs[task.index][origin.reader].add(
                                capacity, writer.loop.resume
                            ),
                        )
                        for origin in _origins(task, number, index, len(writers))
                    ]

    def home(self, node: Node) -> TaskPlan:
        """Return the task that a step runs in."""
        return self._home[node.id]

    def edges(self, plan: TaskPlan, subtask: int) -> Iterator[tuple[Edge, OutEdge]]:
        """Create the sending ends of a subtask, with the edges of the plan that they belong to."""
        for reader in self._plan.tasks:
            for number, channels in enumerate(reader.incoming):
                edge, origin = channels.edge, channels.edge.origin
                if self._home[origin.id] is not plan:
                    continue
                custom = isinstance(edge.partitioning, Custom)
                yield (
                    edge,
                    make_edge(
                        channels.reader.name if custom else origin.name,
                        edge.partitioning,
                        [channel for _, channel in self._channels[reader.index, number, subtask]],
                        self._plan.key_groups,
                    ),
                )

    def inputs(self, plan: TaskPlan, subtask: int) -> InputChannels:
        """Return the channels into a subtask, in the order of ``origins``."""
        return self._inputs[plan.index][subtask]

    def origins(self, plan: TaskPlan, subtask: int) -> list[ElementOrigin]:
        """Return the origins of the channels of a subtask, in the order of its gate."""
        return [origin for origin, _ in self._into(plan) if origin.reader == subtask]

    def refill(self, plan: TaskPlan, restoration: Restoration) -> None:
        """Put restored records in flight into their channels, before all others."""
        origins: dict[tuple[int, int, int], ElementOrigin] = {}
        channels: dict[tuple[int, int, int], Channel] = {}
        for origin, channel in self._into(plan):
            ends = origin.number, origin.writer, origin.reader
            origins[ends], channels[ends] = origin, channel
        if not channels:
            return
        found = restoration.in_flight(plan.head.name, origins, self._plan.key_groups)
        for origin, elements in found.items():
            channel = channels[origin.number, origin.writer, origin.reader]
            for element in elements:
                if isinstance(element, Batch):
                    channel.put_batch(element)
                else:
                    channel.put(element)

    def _into(self, plan: TaskPlan) -> list[tuple[ElementOrigin, Channel]]:
        """Return all channels into a task, by input and then by writer, as they were created."""
        return [
            one
            for (reader, _, _), channels in self._channels.items()
            if reader == plan.index
            for one in channels
        ]


def _origins(reader: TaskPlan, number: int, writer: int, writers: int) -> Iterator[ElementOrigin]:
    """Yield the origins of the channels of one writing subtask: to the reader of its own index, or to all readers."""
    partitioning, readers = reader.incoming[number].edge.partitioning, reader.parallelism
    for target in (writer,) if isinstance(partitioning, Forward) else range(readers):
        yield ElementOrigin(number, writer, writers, target, readers, partitioning)
