"""From a plan to tasks: operators made and opened, exchanges connected, inputs attached."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

from aflow.connect import Writer
from aflow.errors import AflowError, InternalError, OperatorError
from aflow.graph.nodes import Forward, Kind, Node
from aflow.graph.plan import Plan, TaskPlan
from aflow.machines.batch_size import BatchSize
from aflow.machines.calls.rate import SharedBuckets
from aflow.machines.mail_order import Lane
from aflow.model.time import Timestamp
from aflow.operators.base import Operator, OperatorContext, TwoInputOperator
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.sink import SinkOperator
from aflow.runtime.alignment import AlignedGroups
from aflow.runtime.calls.reporting import Reports
from aflow.runtime.calls.slots import CallSlots, Room
from aflow.runtime.cancellation import user_code
from aflow.runtime.checkpoints.barriers import CheckpointedInput
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.inflight import InFlightCodec
from aflow.runtime.checkpoints.modes import barrier_machine, may_overtake
from aflow.runtime.checkpoints.restoring import Restoration
from aflow.runtime.checkpoints.settings import Checkpointing
from aflow.runtime.checkpoints.storable import StorableCheck
from aflow.runtime.checkpoints.taking import Coordinating, SubtaskCheckpointer
from aflow.runtime.edges import OutEdge
from aflow.runtime.exchanges import Exchanges
from aflow.runtime.failures import closing
from aflow.runtime.fetcher import Fetcher
from aflow.runtime.fusing import fuse
from aflow.runtime.gate import Gate
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.metrics import StepCounters
from aflow.runtime.options import Options
from aflow.runtime.outputs import Link, StepOutput
from aflow.runtime.source_input import SourceInput
from aflow.runtime.splits import SplitQueue
from aflow.runtime.task import Chain, StreamTask, TaskInput
from aflow.runtime.task_id import TaskId
from aflow.runtime.timer_service import LoopTimer


@dataclass(slots=True)
class Built:
    """Everything of a job that can run, and what has to be given back afterwards."""

    tasks: list[StreamTask] = field(default_factory=list[StreamTask])
    sources: dict[str, SplitQueue] = field(default_factory=dict[str, SplitQueue])
    counters: dict[str, list[StepCounters]] = field(default_factory=dict[str, list[StepCounters]])


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """What a job with checkpoints is built with."""

    settings: Checkpointing
    coordinator: Coordinating
    codec: InFlightCodec
    restoration: Restoration | None


class Resources(Protocol):
    """What the calls of steps need, opened already."""

    def of(self, node: int, subtask: int) -> object:
        """What was opened for ``subtask`` of the step; None if it has no resource."""
        ...


class Builder:
    """Builds the tasks of one attempt to run a job. Used once."""

    #: Whether users' code may set timers on the clock.
    clocked: ClassVar[bool] = True

    def __init__(
        self,
        plan: Plan,
        options: Options,
        checkpointed: Checkpointed | None,
        *,
        resources: Resources,
        reports: Reports,
    ) -> None:
        self._plan = plan
        self._resources = resources
        self._reports = reports
        self._options = options
        self._checkpointed = checkpointed
        self._restoration = None if checkpointed is None else checkpointed.restoration
        self._loop = asyncio.get_running_loop()
        threads = None if checkpointed is None else checkpointed.coordinator.threads
        self._loop_budget = LoopBudget(
            self._loop, options.clock, options.loop_budget.total_seconds(), threads
        )
        self._tasks = {task.index: self._shells(task) for task in plan.tasks}
        self._exchanges = Exchanges(plan, self._tasks, options.channel_records)
        self._aligned = AlignedGroups()
        self._buckets = SharedBuckets()
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
            timers = (task.timers.close for tasks in self._tasks.values() for task in tasks)
            with closing([*timers, *(operator.close for operator in self._opened)]):
                raise
        return self._built

    async def _build_tasks(self, writers: dict[int, list[Writer[Any]]]) -> None:
        for task in self._plan.tasks:
            await self._prepare_source(task.head, task.parallelism)
            for subtask in range(task.parallelism):
                self._build_subtask(task, subtask, writers)
            if self._restoration is not None:
                self._exchanges.refill(task, self._restoration)
                self._go_first(task)
        self._announce_status()

    def _announce_status(self) -> None:
        """Let subtasks without a split tell their readers so before any task runs.

        Steps behind a forward hand it on at once. Behind other exchanges there are channels of other subtasks too.
        """
        for task in self._plan.tasks:
            if all(isinstance(one.edge.partitioning, Forward) for one in task.incoming):
                for subtask in self._tasks[task.index]:
                    subtask.announce_status()

    def _go_first(self, reader: TaskPlan) -> None:
        """Let those who feed ``reader`` wait until it has processed what was in flight to it.

        With other numbers of subtasks what follows may come by other channels, and would overtake what is older.
        """
        writers = {
            writer
            for channels in reader.incoming
            for writer in self._tasks[self._exchanges.home(channels.edge.origin).index]
        }
        for task in self._tasks[reader.index]:
            if isinstance(task.input, Gate):
                for writer in writers:
                    writer.hold()
                task.input.begin_with_queued(partial(_release, writers))

    def _shells(self, task: TaskPlan) -> list[StreamTask]:
        return [
            StreamTask(
                TaskId(task.head.name, subtask),
                task.name,
                loop=self._loop,
                loop_budget=self._loop_budget,
                clock=self._options.clock,
            )
            for subtask in range(task.parallelism)
        ]

    async def _prepare_source(self, head: Node, parallelism: int) -> None:
        if head.source is not None:
            restoration = self._restoration
            before = None if restoration is None else restoration.progress(head.name)
            queue = SplitQueue(head.name, head.source, parallelism, before)
            await queue.fill()
            self._built.sources[head.name] = queue

    def _build_subtask(
        self, plan: TaskPlan, subtask: int, writers: dict[int, list[Writer[Any]]]
    ) -> None:
        task = self._tasks[plan.index][subtask]
        counters = {node.id: self._count(node) for node in plan.nodes}
        outputs = {node.id: StepOutput(counters[node.id]) for node in plan.nodes}
        operators: dict[int, Operator] = {}
        timers: list[LoopTimer] = []
        for node in plan.nodes:
            if node.kind is not Kind.SOURCE:
                operator = _create(node, subtask, writers)
                timer = task.timers.timer(partial(_on_processing_time, operator), Lane.TIMERS)
                timers.append(timer)
                self._open(plan, node, operator, subtask, outputs[node.id], task, timer)
                operators[node.id] = operator
        links = {one: _link(operator, counters[one]) for one, operator in operators.items()}
        for node in plan.nodes[1:]:
            for edge in node.inputs:
                outputs[edge.origin.id].add(links[node.id], edge.side)
        chain = Chain(
            operators=list(operators.values()),
            timers=timers,
            edges=self._exchanges.edges(plan, subtask, outputs),
            sinks=[one for one in operators.values() if isinstance(one, SinkOperator)],
            slots={
                one: CallSlots(one, task.loop, self._loop_budget, report=self._reports.give_up)
                for one in operators.values()
                if isinstance(one, AsyncOperator)
            },
            rooms=_rooms(plan, operators, outputs),
            member=self._aligned.place(
                operators.values(),
                None if plan.head.source is None else plan.head.name,
                task.loop.resume,
            ),
        )
        fuse(plan.nodes, operators, links, outputs, counters)
        taking = self._taking(plan, task)
        task_input = self._input(plan, subtask, chain, outputs, links, counters, taking)
        task.attach(task_input, chain, taking, self._check(plan, task_input, chain))
        if taking is not None:
            taking.attach(
                chain.operators,
                chain.edges,
                source=task_input if isinstance(task_input, SourceInput) else None,
                origins=self._exchanges.origins(plan, subtask),
            )
        self._refill_chain(plan, task, links)
        self._built.tasks.append(task)

    def _refill_chain(self, plan: TaskPlan, task: StreamTask, links: dict[int, Link]) -> None:
        """Let steps that had channels of their own, and are chained now, begin with what was in flight to them.

        The last step first: what was in flight to it is older than what comes to it from the others.
        """
        if self._restoration is not None:
            for node in reversed(plan.nodes[1:]):
                batches = self._restoration.in_chain(node.name, task.id.subtask, plan.parallelism)
                task.begin_with(links[node.id], batches)

    def _taking(self, plan: TaskPlan, task: StreamTask) -> SubtaskCheckpointer | None:
        """What takes the checkpoints of ``task``; None in a job without."""
        using = self._checkpointed
        if using is None:
            return None
        groups = self._plan.ranges(plan)[task.id.subtask]
        chains = SubtaskChains(groups, using.settings.incremental)
        if using.restoration is not None:
            using.restoration.adopt(chains, (node.name for node in plan.nodes))
        clock = self._options.clock
        return SubtaskCheckpointer(
            task.id, using.coordinator, chains, using.codec, clock, task.timers
        )

    def _check(self, plan: TaskPlan, task_input: TaskInput, chain: Chain) -> StorableCheck | None:
        """The check of what a subtask is going to store; None in a job without checkpoints."""
        using = self._checkpointed
        if using is None:
            return None
        restored = () if self._restoration is None else self._restoration.restored.states
        source = (plan.head.name, task_input) if isinstance(task_input, SourceInput) else None
        return StorableCheck(
            chain.operators,
            restored=restored,
            edges=chain.edges,
            codec=using.codec if may_overtake(using.settings) else None,
            source=source,
        )

    def _input(
        self,
        plan: TaskPlan,
        subtask: int,
        chain: Chain,
        outputs: dict[int, StepOutput],
        links: dict[int, Link],
        counters: dict[int, StepCounters],
        taking: SubtaskCheckpointer | None,
    ) -> TaskInput:
        head = plan.head
        clock = self._options.clock
        size = BatchSize(self._options.batch_records, self._options.loop_budget.total_seconds())
        if head.source is not None:
            fetcher = Fetcher(
                head.name,
                head.source,
                self._built.sources[head.name],
                subtask=subtask,
                size=size,
                loop_budget=self._loop_budget,
            )
            task_input = SourceInput(fetcher, outputs[head.id], chain.operators, clock)
            self._go_on(head, subtask, task_input)
            return task_input
        inputs = self._exchanges.channels(plan, subtask)
        doors = _doors(chain.operators[0], links[head.id], counters[head.id], len(inputs))
        heads = [door for door, some in zip(doors, inputs, strict=True) for _ in some]
        without_time = [
            exchange.timeless
            for exchange, some in zip(plan.incoming, inputs, strict=True)
            for _ in some
        ]
        channels = [channel for some in inputs for channel in some]
        return Gate(
            channels,
            heads,
            size,
            clock,
            self._desk(plan, subtask, len(channels), taking),
            timeless=[index for index, without in enumerate(without_time) if without],
        )

    def _go_on(self, head: Node, subtask: int, task_input: SourceInput) -> None:
        """Let a subtask of a source go on where the checkpoint has found it."""
        if self._restoration is not None:
            before = self._restoration.progress(head.name)
            # Which splits have ended need be remembered once only.
            ended = before.ended if before is not None and subtask == 0 else ()
            task_input.go_on(self._built.sources[head.name].begun(subtask), ended)

    def _desk(
        self, plan: TaskPlan, subtask: int, channels: int, taking: SubtaskCheckpointer | None
    ) -> CheckpointedInput | None:
        if taking is None or self._checkpointed is None:
            return None
        task = self._tasks[plan.index][subtask]
        return CheckpointedInput(
            barrier_machine(self._checkpointed.settings, channels),
            taking,
            clock=self._options.clock,
            mailbox=task.loop.mailbox,
            timers=task.timers,
            once_begun=task.once_begun,
        )

    def _count(self, node: Node) -> StepCounters:
        counters = StepCounters()
        self._built.counters.setdefault(node.name, []).append(counters)
        return counters

    def _open(
        self,
        plan: TaskPlan,
        node: Node,
        operator: Operator,
        subtask: int,
        output: StepOutput,
        task: StreamTask,
        timer: LoopTimer,
    ) -> None:
        context = OperatorContext(
            name=node.name,
            output=output,
            clock=self._options.clock,
            alarm=timer,
            clocked=self.clocked,
            has_queued=lambda split: task.input.has_queued(split),
            subtask=subtask,
            parallelism=plan.parallelism,
            key_groups=self._plan.ranges(plan)[subtask],
            key_group_count=self._plan.key_groups,
            backend=self._options.state,
            resource=self._resources.of(node.id, subtask),
            buckets=self._buckets,
            steady=self._options.clock.steady,
            random=self._options.random,
        )
        with user_code(partial(_not_opened, node.name)):
            operator.open(context)
        self._opened.append(operator)
        self._restore(operator, context, self._tasks[plan.index])

    def _restore(
        self, operator: Operator, context: OperatorContext, siblings: Sequence[StreamTask]
    ) -> None:
        """Give an operator what it remembered, if there is a checkpoint to go on from."""
        restoration = self._restoration
        if restoration is None:
            return
        if isinstance(operator, SinkOperator):
            # What follows may come to another writer, which would overtake what is older.
            for task in siblings:
                task.hold()
            operator.continue_with(
                restoration.waiting(context.name, context.subtask, context.parallelism),
                partial(_release, siblings),
            )
            return
        restoration.restore(operator, context.name, context.key_groups)


def _release(held: Iterable[StreamTask]) -> None:
    for task in held:
        task.release()


def _create(node: Node, subtask: int, writers: dict[int, list[Writer[Any]]]) -> Operator:
    if node.kind is Kind.SINK:
        return SinkOperator(writers[node.id][subtask])
    if node.operator is None:
        raise InternalError(f"step {node.name!r} has no operator")
    operator = node.operator()
    _check_inputs(node, operator)
    return operator


def _on_processing_time(operator: Operator, now: Timestamp) -> None:
    try:
        operator.on_processing_time(now)
    except AflowError:
        raise
    except (Exception, asyncio.CancelledError) as exc:
        # Synchronous, so a CancelledError is the user function's own and cancels no task.
        raise OperatorError.of(operator.name, exc) from exc


def _link(operator: Operator, counters: StepCounters) -> Link:
    """The way into an operator; of one with two inputs, the way into its left one."""
    if isinstance(operator, AsyncOperator):
        counters.calls = operator.counted
    if isinstance(operator, TwoInputOperator):
        return Link(operator, counters, operator.process_left)
    return Link(operator, counters)


def _rooms(
    plan: TaskPlan, operators: dict[int, Operator], outputs: dict[int, StepOutput]
) -> dict[AsyncOperator, list[Room]]:
    """For each asynchronous step of a task what is behind it and can be full; not what is beside it."""
    behind: dict[int, list[Room]] = {}
    for node in reversed(plan.nodes):
        rooms: list[Room] = [one for one in outputs[node.id].targets if isinstance(one, OutEdge)]
        for later in plan.nodes:
            if later.id in behind and any(one.origin.id == node.id for one in later.inputs):
                operator = operators[later.id]
                if isinstance(operator, AsyncOperator | SinkOperator):
                    rooms.append(operator)
                rooms += behind[later.id]
        behind[node.id] = rooms
    return {
        operator: behind[node]
        for node, operator in operators.items()
        if isinstance(operator, AsyncOperator)
    }


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
