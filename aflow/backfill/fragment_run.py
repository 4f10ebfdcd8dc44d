"""Run of one fragment over one partition of history: an ordinary task, with the ordinary operators, on the running
loop.

It differs from a live job at its ends. Rows are read from an inbox, in the order of event time if the fragment reads by
key, and emitted to an outbox. Both are bounded, and a task without input or capacity is suspended while its calls
continue. The watermark stops before the end of the history, so that open windows and timers remain as state; without an
end of the history, time runs to its maximum and nothing remains open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from aflow.backfill.blocks import Inbox, Outbox
from aflow.backfill.epoch_time import EpochWatermarks
from aflow.backfill.exit_writer import TOGETHER, ExitWriter
from aflow.backfill.feed import Feed, OrderedRowEmitter, SourceRowEmitter
from aflow.backfill.fragments import Exit, Fragment
from aflow.backfill.resources import FragmentResources
from aflow.backfill.stamp import StampOperator, TimelessOperator
from aflow.backfill.step_totals import StepCount
from aflow.connect import Writer
from aflow.errors import InternalError, SinkError
from aflow.graph.nodes import UNION_METHOD, Edge, Kind, Node
from aflow.graph.plan import Plan, TaskPlan
from aflow.machines.turns import Turn
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Timestamp
from aflow.operators.base import Operator
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.event_time import EventTimeOperator
from aflow.runtime.calls.reports import CallReport, Reports
from aflow.runtime.checkpoints.restoration import restore_operator
from aflow.runtime.exchanges import Exchanges
from aflow.runtime.failures import closing, first_cause
from aflow.runtime.limited_budget import loop_budget
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.operator_chain import ChainBuilder, OperatorChain
from aflow.runtime.options import Options
from aflow.runtime.task import StreamTask, TaskInput
from aflow.runtime.task_environment import TaskEnvironment
from aflow.state.snapshot import OperatorSnapshot

#: Steps of the task after which unstorable state is reported early, not at the end of a long history.
_TRIALS: Final = 16


StateReader: TypeAlias = Callable[[], OperatorSnapshot]
"""Returns the stored state of a partition; called once, so that it need not be held."""


@dataclass(frozen=True, slots=True)
class Selection:
    """State with which the step that reads by key begins."""

    snapshot: OperatorSnapshot | None
    """Complete; None if there is none."""
    partial: bool
    """True if the snapshot has the state of some keys only. At the end all state of the operator is captured then."""


class StateSelector(Protocol):
    """Stored state of a partition, some or all of which is restored."""

    def select(self, head: Operator, until: Timestamp) -> Generator[None, None, Selection]:
        """Return the state for ``head``, which is open, if the last watermark is ``until`` (epoch ms); called once.

        In pieces, between which other code runs. Raises ``RestoreError``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Part ``subtask`` (from 0) of ``subtasks`` of history, from ``begins`` up to ``until`` (epoch ms).

    In a keyed fragment, the part has the keys of the live subtask with that number. ``until=None``: to the end of
    history; ``begins=None``: from its beginning.
    """

    subtask: int = 0
    subtasks: int = 1
    until: Timestamp | None = None
    begins: Timestamp | None = None
    key_groups: int = DEFAULT_KEY_GROUPS
    watermarks: EpochWatermarks | None = None
    """For one epoch of a stream, whose watermark begins and ends there; None for history."""
    changes: bool = False
    """True if only the changes to the restored state are captured at the end, where the step keeps track of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentResult:
    """Result of running over a partition, besides the emitted records."""

    state: Mapping[str, OperatorSnapshot]
    """State of the step that reads by key, if the fragment has one and a live job continues from the end of history.

    Of a partition whose changes are captured, it may be changes only; see ``OperatorSnapshot.complete``.
    """
    steps: Mapping[str, tuple[int, int]]
    """Records into each step, and out of its main output."""
    exits: Mapping[int, int]
    """Number of records emitted, by exit."""
    left_out: int = 0
    """Records at or after the end of the history."""
    skipped: int = 0
    """Records before its beginning."""
    newest: Mapping[str, Timestamp] = field(default_factory=dict[str, Timestamp])
    """Newest timestamp (epoch ms) that each step of ``Fragment.cuts_at`` has assigned, if it has assigned any."""
    splits: Mapping[str, Mapping[str, Timestamp]] = field(
        default_factory=dict[str, Mapping[str, Timestamp]]
    )
    """The same for each split of the source; "" is the split of records without one."""
    counted: Mapping[str, StepCount] = field(default_factory=dict[str, StepCount])
    """All counters of each step, in an epoch of a stream."""
    entries: tuple[int, int] = (0, 0)
    """Number of values in the state that was restored, and in that at the end, in an epoch of a stream. If only some
    keys were restored, both are of these."""


async def run_fragment(
    fragment: Fragment,
    partition: Partition,
    inbox: Inbox,
    outbox: Outbox,
    *,
    restored: StateReader | None = None,
    selector: StateSelector | None = None,
    calls: Mapping[str, OperatorSnapshot] | None = None,
    resources: FragmentResources | None = None,
    options: Options | None = None,
    flow: str = "backfill",
    together: int = TOGETHER,
) -> FragmentResult:
    """Run over one partition to its end. ``resources`` are opened and closed by the caller; None if it needs none.

    ``restored`` returns the state with which the step that reads by key begins; None if it begins without. The step
    takes the key groups of the partition. ``selector`` takes its place where not all keys are restored. ``calls`` are
    those under way of other steps, by name; each step takes those of former subtasks with the number of the partition.
    Records are emitted when ``together`` of an exit are buffered, and at the end. Raises ``OperatorError`` for failures
    of user functions, ``RestoreError`` for state that does not fit the step, and the errors of ``inbox`` and
    ``outbox``.
    """
    options = options or Options(key_groups=partition.key_groups)
    run = _Run(fragment, partition, options, flow, restored, selector, calls or {})
    try:
        return await run.through(
            inbox, outbox, resources or FragmentResources(fragment, flow), together
        )
    except BaseExceptionGroup as group:
        first = first_cause(group)
        # An error of the outbox: exits are sinks for the task only.
        if isinstance(first, SinkError) and first.__cause__ is not None:
            first = first.__cause__
        raise first from first.__cause__  # what users' code raised, with its frames


class _Run:
    """One fragment over one partition."""

    def __init__(
        self,
        fragment: Fragment,
        partition: Partition,
        options: Options,
        flow: str,
        restored: StateReader | None,
        selector: StateSelector | None,
        calls: Mapping[str, OperatorSnapshot],
    ) -> None:
        self._partition = partition
        self._calls = calls
        self._restored = restored
        self._selector = selector
        self._options = options
        self._ways = _numbered(fragment)
        self._fragment = fragment
        steps = (_over_history(node, fragment, partition) for node in fragment.nodes)
        nodes = (*steps, *(node for node, _ in self._ways))
        self._task = TaskPlan(0, nodes, partition.subtasks, ())
        self._plan = Plan(flow, (self._task,), partition.key_groups)

    async def through(
        self, inbox: Inbox, outbox: Outbox, resources: FragmentResources, together: int
    ) -> FragmentResult:
        writers: dict[int, list[Writer[Any]]] = {
            node.id: [ExitWriter(way, outbox, together)] * self._partition.subtasks
            for node, way in self._ways
        }
        reports = Reports(self._plan.flow, _told_in_the_log, self._options.clock.now)
        budget = loop_budget(self._options, asyncio.get_running_loop(), has_host=False)
        environment = TaskEnvironment.create(
            self._task, self._partition.subtask, self._options.clock, budget
        )
        chains = ChainBuilder(
            self._plan,
            self._options,
            Exchanges(self._plan, {0: [environment]}, self._options.channel_records),
            loop_budget=budget,
            resources=resources,
            reports=reports,
            clocked=False,
        )
        with chains.closing_on_failure([environment]):
            chain = chains.build(self._task, environment, writers, has_queued=lambda _: False)
            head = chain.operators[0]
            emitter = self._emitter(chain)
            capture = await self._restore(head, emitter, budget)
            for operator in chain.operators:
                if operator.name in self._calls:
                    await restore_operator(operator, self._calls[operator.name], budget)
            task = StreamTask(
                environment,
                self._feed(inbox, environment, emitter, budget.turn),
                chain,
                check=capture if capture is not None and capture.is_tried else None,
                on_finished=None if capture is None else capture.run,
            )
        with closing([task.timers.close]):
            async with asyncio.TaskGroup() as group:
                group.create_task(task.run(), name=task.name)
        return self._result(chains, chain, capture)

    def _result(
        self, chains: ChainBuilder, chain: OperatorChain, capture: _StateCapture | None
    ) -> FragmentResult:
        stamps = [one for one in chain.operators if isinstance(one, StampOperator)]
        newest = {
            one.name: one.newest
            for one in stamps
            if one.newest and one.name in self._fragment.cuts_at
        }
        return FragmentResult(
            state={} if capture is None else capture.state,
            steps={
                node.name: (counters.records_in, counters.records_out)
                for node in self._fragment.nodes
                for counters in chains.counters[node.name]
            },
            exits={
                way.number: sum(one.records_in for one in chains.counters[node.name])
                for node, way in self._ways
            },
            left_out=sum(one.left_out for one in stamps),
            skipped=sum(one.skipped for one in stamps),
            newest={step: max(some.values()) for step, some in newest.items()},
            splits=newest,
            counted={
                node.name: StepCount.of(counters)
                for node in (self._fragment.nodes if self._is_epoch else ())
                for counters in chains.counters[node.name]
            },
            entries=(0, 0) if capture is None or not self._is_epoch else capture.entries,
        )

    async def _restore(
        self, head: Operator, emitter: SourceRowEmitter | OrderedRowEmitter, budget: LoopBudget
    ) -> _StateCapture | None:
        """Restore the state of the head, and return what captures it at the end; None if no state is left."""
        selection = await self._selection(head, emitter, budget)
        if selection.snapshot is not None:
            await restore_operator(head, selection.snapshot, budget)
        if not self._keeps_state:
            return None
        is_restored, is_partial = selection.snapshot is not None, selection.partial
        changes = is_restored and self._partition.changes and not is_partial
        # A trial would take changes from the last capture, and selected state has been stored before.
        return _StateCapture(head, is_restored, changes, is_tried=not changes and not is_partial)

    async def _selection(
        self, head: Operator, emitter: SourceRowEmitter | OrderedRowEmitter, budget: LoopBudget
    ) -> Selection:
        """Return the state that the head begins with."""
        if self._selector is None or not isinstance(emitter, OrderedRowEmitter):
            return Selection(None if self._restored is None else self._restored(), partial=False)
        pieces = self._selector.select(head, emitter.last_watermark)
        while True:
            try:
                next(pieces)
            except StopIteration as ended:
                found: Selection = ended.value
                return found
            if budget.spent():
                await budget.hand_over()

    @property
    def _is_epoch(self) -> bool:
        return self._partition.watermarks is not None

    @property
    def _keeps_state(self) -> bool:
        """True if a live job, or the next epoch, continues from the state that is left.

        Otherwise its types need not be declared.
        """
        partition = self._partition
        return self._fragment.keyed and (
            partition.until is not None or partition.watermarks is not None
        )

    def _emitter(self, chain: OperatorChain) -> SourceRowEmitter | OrderedRowEmitter:
        until, watermarks = self._partition.until, self._partition.watermarks
        if self._fragment.keyed:
            return OrderedRowEmitter(chain.input_ports, self._fragment, until, watermarks)
        return SourceRowEmitter(
            chain.input_ports[0],
            chain.operators,
            ends_time=until is None and watermarks is None,
        )

    def _feed(
        self,
        inbox: Inbox,
        environment: TaskEnvironment,
        emitter: SourceRowEmitter | OrderedRowEmitter,
        turn: Turn,
    ) -> TaskInput:
        size = self._options.batch_size(self._fragment.nodes, turn)
        return Feed(inbox, emitter, size, self._options.clock, environment.loop.resume)


class _StateCapture:
    """Captures the keyed state of the first operator when everything is processed and written.

    It also runs after elements until the operator has state, so that state that cannot be stored fails at once and not
    at the end of a long history.
    """

    def __init__(self, head: Operator, is_restored: bool, changes: bool, *, is_tried: bool) -> None:
        self.is_tried = is_tried
        self._head = head
        #: True if the last capture has the changes to the restored state only.
        self._changes = changes
        #: True if the head began with state, which was stored before: only changes to it are tried.
        self._is_restored = is_restored
        self._trials = _TRIALS
        #: By step.
        self.state: Mapping[str, OperatorSnapshot] = {}
        restored = head.size().stored_entries
        #: Number of values in the state at first, and at the last capture.
        self.entries = (restored, restored)

    def after_step(self) -> bool:
        """Capture state that is there already. Raises ``CheckpointError`` if it cannot be stored."""
        self._trials -= 1
        # Calls under way are state too, and are none at the end.
        if self._head.size().entries and not isinstance(self._head, AsyncOperator):
            self._captured(changes=self._is_restored)
            # Changes may follow, where there has been state from the start.
            return not self._is_restored or not self._trials
        return not self._trials

    def run(self) -> None:
        """Capture the state. Raises ``CheckpointError`` if it cannot be stored."""
        self.state = self._captured(changes=self._changes)
        self.entries = (self.entries[0], self._head.size().stored_entries)

    def _captured(self, *, changes: bool) -> Mapping[str, OperatorSnapshot]:
        captured = self._head.capture(changes=changes)
        return {} if captured is None else {self._head.name: captured.encoded()}


def _numbered(fragment: Fragment) -> list[tuple[Node, Exit]]:
    """A sink for each exit, with a number that no step of the fragment has."""
    above = 1 + max(node.id for node in fragment.nodes)
    return [
        (
            Node(
                id=above + index,
                name=f"exit {way.number}",
                kind=Kind.SINK,
                what="exit",
                inputs=(Edge(way.origin, way.side),),
            ),
            way,
        )
        for index, way in enumerate(fragment.exits)
    ]


def _over_history(node: Node, fragment: Fragment, partition: Partition) -> Node:
    """Return the node, with an operator that leaves time to the feed where the live one would not."""
    if node.begins_time and node.operator is not None:
        is_cut = node.name in fragment.cuts_at
        begins, until = (partition.begins, partition.until) if is_cut else (None, None)
        return replace(node, operator=partial(_stamping, node.operator, begins, until))
    if node.what == UNION_METHOD:
        return replace(node, operator=TimelessOperator)
    return node


def _stamping(
    make: Callable[[], Operator], begins: Timestamp | None, until: Timestamp | None
) -> StampOperator:
    operator = make()
    if not isinstance(operator, EventTimeOperator):
        raise InternalError(f"a {type(operator).__name__} cannot stamp records of history")
    return StampOperator(operator, until, begins=begins)


def _told_in_the_log(report: CallReport) -> None:
    """Ignore the report: it is in the log of the process."""
