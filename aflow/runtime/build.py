"""From a plan to tasks: operators made and opened, exchanges connected, inputs attached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aflow.connect import Writer, WriterContext
from aflow.errors import InternalError, OperatorError, SinkError
from aflow.graph.nodes import Custom, Forward, Kind, Node
from aflow.graph.plan import Channels, Plan, TaskPlan
from aflow.machines.batch_size import BatchSize
from aflow.operators.base import Operator, OperatorContext, TwoInputOperator
from aflow.operators.sink import SinkOperator
from aflow.runtime.alarms import LoopAlarm
from aflow.runtime.alignment import AlignedGroups
from aflow.runtime.cancellation import user_code
from aflow.runtime.channel import Channel
from aflow.runtime.edges import OutEdge, make_edge
from aflow.runtime.failures import closing
from aflow.runtime.fetcher import Fetcher
from aflow.runtime.fusing import fuse
from aflow.runtime.gate import Gate
from aflow.runtime.metrics import StepCounters
from aflow.runtime.options import Options
from aflow.runtime.outputs import Link, StepOutput
from aflow.runtime.source_input import SourceInput
from aflow.runtime.splits import SplitQueue
from aflow.runtime.task import Chain, StreamTask
from aflow.runtime.turn import Turn


@dataclass(slots=True)
class Built:
    """Everything of a job that can run, and what has to be given back afterwards."""

    tasks: list[StreamTask] = field(default_factory=list[StreamTask])
    sources: dict[str, SplitQueue] = field(default_factory=dict[str, SplitQueue])
    counters: dict[str, list[StepCounters]] = field(default_factory=dict[str, list[StepCounters]])
    alarms: list[LoopAlarm] = field(default_factory=list[LoopAlarm])


class Builder:
    """Builds the tasks of one job. Used once."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self._plan = plan
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._loop, options.clock, options.turn.total_seconds())
        self._tasks = {task.index: self._shells(task) for task in plan.tasks}
        self._home = {node.id: task for task in plan.tasks for node in task.nodes}
        #: The channels of each exchange, by (reader node, input number): ``[writer subtask][reader subtask]``.
        self._exchanges: dict[tuple[int, int], list[list[Channel]]] = {}
        self._aligned = AlignedGroups()
        #: Operators that were opened, in that order.
        self._opened: list[Operator] = []
        self._built = Built()

    async def build(self, writers: dict[int, list[Writer[Any]]]) -> Built:
        """Make all tasks. ``writers`` are the opened writers of each sink node, one for each subtask.

        If that fails or is cancelled half-way, the operators that were opened are closed: no task will do it.
        """
        try:
            await self._build_tasks(writers)
        except BaseException:
            with closing([self._cancel_alarms, *(operator.close for operator in self._opened)]):
                raise
        return self._built

    def _cancel_alarms(self) -> None:
        for alarm in self._built.alarms:
            alarm.cancel()

    async def _build_tasks(self, writers: dict[int, list[Writer[Any]]]) -> None:
        for task in self._plan.tasks:
            for number, channels in enumerate(task.incoming):
                self._exchanges[channels.reader.id, number] = self._connect(channels)
        for task in self._plan.tasks:
            await self._prepare_source(task.head, task.parallelism)
            for subtask in range(task.parallelism):
                self._build_subtask(task, subtask, writers)

    def _shells(self, task: TaskPlan) -> list[StreamTask]:
        return [
            StreamTask(
                task.name, subtask, loop=self._loop, turn=self._turn, clock=self._options.clock
            )
            for subtask in range(task.parallelism)
        ]

    def _connect(self, channels: Channels) -> list[list[Channel]]:
        """Channels from each writing subtask: to the reader of its own index, or to all readers."""
        writers = self._tasks[self._home[channels.edge.origin.id].index]
        readers = self._home[channels.reader.id].parallelism
        count = 1 if isinstance(channels.edge.partitioning, Forward) else readers
        capacity = self._options.channel_records
        return [[Channel(capacity, writer.loop.resume) for _ in range(count)] for writer in writers]

    async def _prepare_source(self, head: Node, parallelism: int) -> None:
        if head.source is not None:
            queue = SplitQueue(head.name, head.source, parallelism)
            await queue.fill()
            self._built.sources[head.name] = queue

    def _build_subtask(
        self, plan: TaskPlan, subtask: int, writers: dict[int, list[Writer[Any]]]
    ) -> None:
        task = self._tasks[plan.index][subtask]
        counters = {node.id: self._count(node) for node in plan.nodes}
        outputs = {node.id: StepOutput(counters[node.id]) for node in plan.nodes}
        operators: dict[int, Operator] = {}
        alarms_before = len(self._built.alarms)
        for node in plan.nodes:
            if node.kind is not Kind.SOURCE:
                operators[node.id] = self._open(
                    plan, node, subtask, outputs[node.id], task, writers
                )
        links = {one: _link(operator, counters[one]) for one, operator in operators.items()}
        for node in plan.nodes[1:]:
            edge = node.inputs[0]
            outputs[edge.origin.id].add(links[node.id], edge.side)
        chain = Chain(
            operators=list(operators.values()),
            alarms=self._built.alarms[alarms_before:],
            edges=self._out_edges(plan, subtask, outputs),
            sinks=[one for one in operators.values() if isinstance(one, SinkOperator)],
            member=self._aligned.place(
                operators.values(),
                None if plan.head.source is None else plan.head.name,
                task.loop.resume,
            ),
        )
        fuse(plan.nodes, operators, links, outputs, counters)
        task.attach(self._input(plan, subtask, chain, outputs, links, counters), chain)
        self._built.tasks.append(task)

    def _input(
        self,
        plan: TaskPlan,
        subtask: int,
        chain: Chain,
        outputs: dict[int, StepOutput],
        links: dict[int, Link],
        counters: dict[int, StepCounters],
    ) -> SourceInput | Gate:
        head = plan.head
        clock = self._options.clock
        size = BatchSize(self._options.batch_records, self._options.turn.total_seconds())
        if head.source is not None:
            fetcher = Fetcher(
                head.name,
                head.source,
                self._built.sources[head.name],
                subtask=subtask,
                size=size,
                turn=self._turn,
            )
            return SourceInput(fetcher, outputs[head.id], chain.operators, clock)
        inputs = self._in_channels(plan, subtask)
        doors = _doors(chain.operators[0], links[head.id], counters[head.id], len(inputs))
        heads = [door for door, some in zip(doors, inputs, strict=True) for _ in some]
        without_time = [
            exchange.timeless
            for exchange, some in zip(plan.incoming, inputs, strict=True)
            for _ in some
        ]
        return Gate(
            [channel for some in inputs for channel in some],
            heads,
            size,
            clock,
            timeless=[index for index, without in enumerate(without_time) if without],
        )

    def _count(self, node: Node) -> StepCounters:
        counters = StepCounters()
        self._built.counters.setdefault(node.name, []).append(counters)
        return counters

    def _open(
        self,
        plan: TaskPlan,
        node: Node,
        subtask: int,
        output: StepOutput,
        task: StreamTask,
        writers: dict[int, list[Writer[Any]]],
    ) -> Operator:
        alarm = LoopAlarm(self._loop, self._options.clock, task.loop.mailbox)
        self._built.alarms.append(alarm)
        if node.kind is Kind.SINK:
            operator: Operator = SinkOperator(writers[node.id][subtask])
        elif node.operator is not None:
            operator = node.operator()
            _check_inputs(node, operator)
        else:
            raise InternalError(f"step {node.name!r} has no operator")
        alarm.attach(operator)
        context = OperatorContext(
            name=node.name,
            output=output,
            clock=self._options.clock,
            alarm=alarm,
            has_queued=lambda split: task.input.has_queued(split),
            subtask=subtask,
            parallelism=plan.parallelism,
            key_groups=self._plan.ranges(plan)[subtask],
            key_group_count=self._plan.key_groups,
        )
        with user_code(partial(_not_opened, node.name)):
            operator.open(context)
        self._opened.append(operator)
        return operator

    def _out_edges(
        self, plan: TaskPlan, subtask: int, outputs: dict[int, StepOutput]
    ) -> list[OutEdge]:
        edges: list[OutEdge] = []
        for reader in self._plan.tasks:
            for number, channels in enumerate(reader.incoming):
                origin = channels.edge.origin
                if self._home[origin.id] is not plan:
                    continue
                custom = isinstance(channels.edge.partitioning, Custom)
                edge = make_edge(
                    channels.reader.name if custom else origin.name,
                    channels.edge.partitioning,
                    self._exchanges[channels.reader.id, number][subtask],
                    self._plan.key_groups,
                )
                outputs[origin.id].add(edge, channels.edge.side)
                edges.append(edge)
        return edges

    def _in_channels(self, plan: TaskPlan, subtask: int) -> list[list[Channel]]:
        """The channels that come into a subtask, input by input."""
        found: list[list[Channel]] = []
        for number, channels in enumerate(plan.incoming):
            exchange = self._exchanges[channels.reader.id, number]
            if isinstance(channels.edge.partitioning, Forward):
                found.append([exchange[subtask][0]])
            else:
                found.append([row[subtask] for row in exchange])
        return found


async def open_writers(plan: Plan, opened: list[Writer[Any]]) -> dict[int, list[Writer[Any]]]:
    """Open a writer for each subtask of each sink. Each is in ``opened`` too, so that a failure half-way leaks none."""
    writers: dict[int, list[Writer[Any]]] = {}
    for task in plan.tasks:
        for node in task.nodes:
            if node.sink is None:
                continue
            writers[node.id] = []
            for subtask in range(task.parallelism):
                context = WriterContext(node.name, subtask=subtask, parallelism=task.parallelism)
                with user_code(partial(_sink_not_opened, node.name)):
                    writer = await node.sink.writer(context)
                opened.append(writer)
                writers[node.id].append(writer)
    return writers


def _link(operator: Operator, counters: StepCounters) -> Link:
    """The way into an operator; of one with two inputs, the way into its left one."""
    if isinstance(operator, TwoInputOperator):
        return Link(operator, counters, operator.process_left)
    return Link(operator, counters)


def _doors(operator: Operator, link: Link, counters: StepCounters, inputs: int) -> list[Link]:
    """The ways into the operator at the head of a chain, one for each input. ``link`` is the first."""
    if isinstance(operator, TwoInputOperator):
        return [link, Link(operator, counters, operator.process_right)]
    return [link] * inputs


def _check_inputs(node: Node, operator: Operator) -> None:
    if isinstance(operator, TwoInputOperator) and len(node.inputs) != 2:
        raise InternalError(
            f"step {node.name!r} ({node.what}) has a {type(operator).__name__}, which reads a left and a right stream, "
            f"and {len(node.inputs)} inputs"
        )


def _not_opened(name: str, cause: BaseException) -> OperatorError:
    return OperatorError(
        f"step {name!r} could not be opened: {type(cause).__name__}: {cause}", operator=name
    )


def _sink_not_opened(name: str, cause: BaseException) -> SinkError:
    return SinkError(f"sink {name!r} could not be opened: {type(cause).__name__}: {cause}")
