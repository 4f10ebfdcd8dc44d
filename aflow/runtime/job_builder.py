"""Creates the tasks of a job, in one direction: no part is changed after it was given to another.

Environments (mailbox, timers), the exchanges between them, then for each subtask its queue of input, its chain of
operators, its checkpointer, its input, and the task. Sources come first, so each exchange has its writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aflow.connect import Source, Writer
from aflow.graph.nodes import Forward, Node
from aflow.graph.plan import Plan, TaskPlan
from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import Barriers
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.operators.base import Operator
from aflow.operators.sink import SinkOperator
from aflow.runtime.calls.reports import Reports
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.checkpointed_input import CheckpointedInput
from aflow.runtime.checkpoints.inflight import InFlightCodec
from aflow.runtime.checkpoints.restoration import Restoration
from aflow.runtime.checkpoints.settings import Aligned, Checkpointing, ProcessingGuarantee
from aflow.runtime.checkpoints.storable_check import StorableCheck
from aflow.runtime.checkpoints.subtask_checkpointer import Coordinating, SubtaskCheckpointer
from aflow.runtime.exchanges import Exchanges
from aflow.runtime.fetcher import Fetcher
from aflow.runtime.gate import Gate
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.metrics import StepCounters
from aflow.runtime.operator_chain import ChainBuilder, OperatorChain, Resources
from aflow.runtime.options import Options
from aflow.runtime.outputs import OutputLink
from aflow.runtime.read_rate import ReadRate
from aflow.runtime.samples import RecordSample
from aflow.runtime.source_input import SourceInput
from aflow.runtime.splits import SplitQueue
from aflow.runtime.task import StreamTask
from aflow.runtime.task_environment import TaskEnvironment, TaskStart


@dataclass(frozen=True, slots=True)
class Built:
    """The tasks of one attempt, and the parts of them that others read."""

    tasks: Sequence[StreamTask] = ()
    sources: Mapping[str, SplitQueue] = field(default_factory=dict[str, SplitQueue])
    counters: Mapping[str, Sequence[StepCounters]] = field(
        default_factory=dict[str, Sequence[StepCounters]]
    )
    sampled: Callable[[], Sequence[RecordSample]] = tuple
    """Returns the latest samples of records."""


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """Additional arguments for a job with checkpoints."""

    settings: Checkpointing
    coordinator: Coordinating
    codec: InFlightCodec
    restoration: Restoration | None


class JobBuilder:
    """Builds the tasks of one attempt to run a job. Used once."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        checkpointed: Checkpointed | None,
        *,
        loop_budget: LoopBudget,
        resources: Resources,
        reports: Reports,
    ) -> None:
        self._plan = plan
        self._options = options
        self._checkpointed = checkpointed
        self._restoration = None if checkpointed is None else checkpointed.restoration
        self._loop_budget = loop_budget
        #: Of all subtasks, by the index of the task.
        self._environments = {
            task.index: [
                TaskEnvironment.create(task, subtask, options.clock, loop_budget)
                for subtask in range(task.parallelism)
            ]
            for task in plan.tasks
        }
        self._exchanges = Exchanges(plan, self._environments, options.channel_records)
        self._chains = ChainBuilder(
            plan,
            options,
            self._exchanges,
            loop_budget=loop_budget,
            resources=resources,
            reports=reports,
        )
        self._sources: dict[str, SplitQueue] = {}
        #: The rate limits of the sources that have one.
        self._rates = {
            node.name: ReadRate(node.rate, self._chains.buckets.bucket(node.rate))
            for task in plan.tasks
            if (node := task.head).rate is not None
        }
        #: By the index of the task.
        self._tasks: dict[int, list[StreamTask]] = {}

    async def build(self, writers: Mapping[int, Sequence[Writer[Any]]]) -> Built:
        """Create all tasks. ``writers`` are the opened writers of each sink node, one for each subtask.

        If that fails or is cancelled, the operators that were opened are closed: no task will do it.
        """
        environments = [one for some in self._environments.values() for one in some]
        with self._chains.closing_on_failure(environments):
            for task in self._plan.tasks:
                if task.head.source is not None:
                    await self._list_splits(task.head, task.head.source, task.parallelism)
                self._tasks[task.index] = [
                    await self._build_subtask(task, environment, writers)
                    for environment in self._environments[task.index]
                ]
                if self._restoration is not None:
                    self._exchanges.refill(task, self._restoration)
                    self._replay_in_flight_first(task)
            self._announce_status()
        tasks = [task for some in self._tasks.values() for task in some]
        return Built(tasks, self._sources, self._chains.counters, self._chains.samples.latest)

    def _announce_status(self) -> None:
        """Let subtasks without a split emit their status before any task runs.

        Tasks downstream of a forward exchange emit it too. Other exchanges have channels of other subtasks as well.
        """
        for plan in self._plan.tasks:
            if all(isinstance(one.edge.partitioning, Forward) for one in plan.incoming):
                for task in self._tasks[plan.index]:
                    task.announce_status()

    def _replay_in_flight_first(self, reader: TaskPlan) -> None:
        """Block the writers to ``reader`` until it has processed the records that were in flight to it.

        With another parallelism, later records may take other channels, and would overtake those.
        """
        writers = {
            environment.start
            for channels in reader.incoming
            for environment in self._environments[self._exchanges.home(channels.edge.origin).index]
        }
        for task in self._tasks[reader.index]:
            if isinstance(task.input, Gate):
                _block(writers)
                task.input.begin_with_queued(partial(_unblock, writers))

    async def _list_splits(self, head: Node, source: Source[Any], parallelism: int) -> None:
        restoration = self._restoration
        progress = None if restoration is None else restoration.progress(head.name)
        queue = SplitQueue(head.name, source, parallelism, progress)
        await queue.fill()
        self._sources[head.name] = queue

    async def _build_subtask(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        writers: Mapping[int, Sequence[Writer[Any]]],
    ) -> StreamTask:
        size = self._options.batch_size(plan.nodes, self._loop_budget.turn)
        channels = self._exchanges.inputs(plan, environment.id.subtask)
        fetcher = self._fetcher(plan.head, environment, size)
        has_queued = channels.has_queued if fetcher is None else fetcher.has_queued
        chain = self._chains.build(plan, environment, writers, has_queued=has_queued)
        if self._checkpointed is not None:
            for sink in chain.sinks:
                sink.report_progress(self._checkpointed.coordinator.notices.of_sink())
                if _may_overtake(self._checkpointed.settings):
                    sink.keep_unprepared()
        if self._restoration is not None:
            siblings = [one.start for one in self._environments[plan.index]]
            for operator in chain.operators:
                await self._restore(self._restoration, siblings, operator)
        source = self._source_input(plan.head, environment, chain, fetcher)
        checkpointer = self._checkpointer(plan, environment, chain, source)
        return StreamTask(
            environment,
            source or self._gate(plan, environment, chain, size, checkpointer),
            chain,
            checkpointer,
            check=self._check(plan, chain, source),
            replay=self._in_flight_inside(plan, environment, chain),
        )

    def _fetcher(self, head: Node, environment: TaskEnvironment, size: BatchSize) -> Fetcher | None:
        """Return None in a task that reads channels."""
        if head.source is None:
            return None
        return Fetcher(
            head.name,
            head.source,
            self._sources[head.name],
            subtask=environment.id.subtask,
            size=size,
            loop_budget=self._loop_budget,
            on_fetched=environment.loop.resume,
            notices=None if self._checkpointed is None else self._checkpointed.coordinator.notices,
            rate=self._rates.get(head.name),
        )

    def _source_input(
        self,
        head: Node,
        environment: TaskEnvironment,
        chain: OperatorChain,
        fetcher: Fetcher | None,
    ) -> SourceInput | None:
        """Return the input of a source, at the positions in the checkpoint; None in a task that reads channels."""
        if fetcher is None:
            return None
        interval = self._options.latency_interval
        source = SourceInput(
            fetcher,
            chain.input_ports[0],
            chain.operators,
            self._options.clock,
            chain.pieces.when_finished,
            None if interval is None else interval.total_seconds(),
        )
        if self._restoration is not None:
            subtask, progress = environment.id.subtask, self._restoration.progress(head.name)
            # Only one subtask has to store the names of ended splits.
            ended = progress.ended if progress is not None and subtask == 0 else ()
            source.restore(self._sources[head.name].begun(subtask), ended)
        return source

    def _gate(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        chain: OperatorChain,
        size: BatchSize,
        checkpointer: SubtaskCheckpointer | None,
    ) -> Gate:
        origins = self._exchanges.origins(plan, environment.id.subtask)
        ports = chain.input_ports
        return Gate(
            self._exchanges.inputs(plan, environment.id.subtask),
            # A union has one port for all of its inputs.
            [ports[min(origin.number, len(ports) - 1)] for origin in origins],
            size,
            self._options.clock,
            self._checkpointed_input(plan, environment, checkpointer),
            timeless=[
                index
                for index, origin in enumerate(origins)
                if plan.incoming[origin.number].timeless
            ],
        )

    def _in_flight_inside(
        self, plan: TaskPlan, environment: TaskEnvironment, chain: OperatorChain
    ) -> list[tuple[OutputLink, Batch[Any]]]:
        """Return the records in flight to steps that had channels of their own and are chained now.

        The last step is first: records in flight to it are older than those that it gets from the others.
        """
        if self._restoration is None:
            return []
        return [
            (chain.links[node.id], batch)
            for node in reversed(plan.nodes[1:])
            for batch in self._restoration.in_chain(
                node.name, environment.id.subtask, plan.parallelism
            )
        ]

    def _checkpointer(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        chain: OperatorChain,
        source: SourceInput | None,
    ) -> SubtaskCheckpointer | None:
        """Return None in a job without checkpoints."""
        checkpointed = self._checkpointed
        if checkpointed is None:
            return None
        subtask = environment.id.subtask
        stored = SubtaskChains(self._plan.ranges(plan)[subtask], checkpointed.settings.incremental)
        if checkpointed.restoration is not None:
            checkpointed.restoration.adopt(stored, (node.name for node in plan.nodes))
        return SubtaskCheckpointer(
            environment.id,
            checkpointed.coordinator,
            stored,
            checkpointed.codec,
            self._options.clock,
            environment.timers,
            operators=chain.operators,
            edges=chain.edges,
            pieces=chain.pieces,
            source=source,
            origins=self._exchanges.origins(plan, subtask),
        )

    def _check(
        self, plan: TaskPlan, chain: OperatorChain, source: SourceInput | None
    ) -> StorableCheck | None:
        """Return None in a job without checkpoints."""
        checkpointed = self._checkpointed
        if checkpointed is None:
            return None
        return StorableCheck(
            chain.operators,
            restored=()
            if self._restoration is None
            else frozenset(self._restoration.restored.states),
            edges=chain.edges,
            codec=checkpointed.codec if _may_overtake(checkpointed.settings) else None,
            source=None if source is None else (plan.head.name, source),
        )

    def _checkpointed_input(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        checkpointer: SubtaskCheckpointer | None,
    ) -> CheckpointedInput | None:
        if checkpointer is None or self._checkpointed is None:
            return None
        inputs = self._exchanges.inputs(plan, environment.id.subtask)
        return CheckpointedInput(
            _barrier_machine(self._checkpointed.settings, len(inputs.channels)),
            checkpointer,
            inputs,
            clock=self._options.clock,
            mailbox=environment.loop.mailbox,
            timers=environment.timers,
            start=environment.start,
        )

    async def _restore(
        self, restoration: Restoration, siblings: Sequence[TaskStart], operator: Operator
    ) -> None:
        """Restore the state of an operator. ``siblings`` are all subtasks of its task."""
        context = operator.context
        if isinstance(operator, SinkOperator):
            # Later records may get to another writer, and would overtake those that wait here.
            _block(siblings)
            operator.continue_with(
                restoration.waiting(context.name, context.subtask, context.parallelism),
                restoration.prepared(context.name)[context.subtask :: context.parallelism],
                partial(_unblock, siblings),
            )
            return
        await restoration.restore(operator, self._loop_budget)


def _barrier_machine(settings: Checkpointing, channels: int) -> Barriers:
    """Return the barrier machine of a task with so many channels.

    Savepoints are always aligned, so unaligned barriers use the machine that alternates: it switches to unaligned at
    the first unaligned barrier.
    """
    if settings.guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
        return BarrierTracker(channels)
    return AlternatingBarriers(channels) if _may_overtake(settings) else BarrierAligner(channels)


def _may_overtake(settings: Checkpointing) -> bool:
    """Return True if barriers may overtake records, which are then stored."""
    return not isinstance(settings.barriers, Aligned) or settings.barriers.timeout is not None


def _block(tasks: Iterable[TaskStart]) -> None:
    for task in tasks:
        task.block()


def _unblock(tasks: Iterable[TaskStart]) -> None:
    for task in tasks:
        task.unblock()
