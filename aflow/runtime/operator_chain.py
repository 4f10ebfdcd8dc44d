"""The chain of one subtask: its operators are created, opened, restored and connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from aflow.connect import Writer
from aflow.errors import AflowError, InternalError, OperatorError, described
from aflow.graph.nodes import Edge, Kind, Node
from aflow.graph.plan import Plan, TaskPlan
from aflow.machines.batch_size import BatchSize
from aflow.machines.calls.rate import SharedBuckets
from aflow.machines.mail_order import Lane
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import Operator, OperatorContext, Output, TwoInputOperator
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.fused import FusedOperator
from aflow.operators.pieces import OnePiece
from aflow.operators.sink import JOINED_RECORDS, SinkOperator
from aflow.runtime import log_events
from aflow.runtime.alignment import AlignedGroups, AlignedMember
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.slots import CallSlots
from aflow.runtime.cancellation import user_code
from aflow.runtime.edges import OutEdge
from aflow.runtime.exchanges import Exchanges
from aflow.runtime.failures import closing
from aflow.runtime.fusion import fusible_runs
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.metrics import StepCounters
from aflow.runtime.options import Options
from aflow.runtime.outputs import OutputLink, StepOutput
from aflow.runtime.pieces import LONGEST_PIECE, ChainPieces, OperatorPieces, Room
from aflow.runtime.samples import JobSamples
from aflow.runtime.source_watermarks import check_source_watermarks
from aflow.runtime.task_environment import TaskEnvironment
from aflow.runtime.timer_service import LoopTimer
from aflow.runtime.watermark_links import DividingLink, FiringOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChain:
    """The operators of one subtask and their connections."""

    operators: Sequence[Operator]
    """In the order of the stream: each after the one that feeds it."""
    timers: Sequence[LoopTimer]
    """The processing-time timer of each operator."""
    input_ports: Sequence[OutputLink | StepOutput]
    """Outputs for the input of the task: that of a source, the only input of a step, or its left and right one."""
    links: Mapping[int, OutputLink]
    """The link into each operator, by the id of its node."""
    edges: Sequence[OutEdge]
    """The exchanges to other tasks."""
    sinks: Mapping[SinkOperator, asyncio.Event]
    """The sinks, each with an event that is set when its writer has work to await."""
    member: AlignedMember | None
    """Membership of a source in its group of aligned sources; None if it is not aligned."""
    slots: Mapping[AsyncOperator, CallSlots]
    """The slots for the calls of each asynchronous step."""
    pieces: ChainPieces
    """The operators with unfinished work."""


class Resources(Protocol):
    """Opened resources of asynchronous steps."""

    def of(self, node: int, subtask: int) -> object:
        """Return the resource of ``subtask`` of the step; None if the step has none."""
        ...


class ChainBuilder:
    """Builds the chains of one attempt to run a job."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        exchanges: Exchanges,
        *,
        loop_budget: LoopBudget,
        resources: Resources,
        reports: Reports,
        clocked: bool = True,
    ) -> None:
        """``clocked`` is False if user code must not register processing-time timers."""
        self._plan = plan
        self._options = options
        self._exchanges = exchanges
        self._loop_budget = loop_budget
        self._resources = resources
        self._reports = reports
        self._clocked = clocked
        self._aligned = AlignedGroups()
        #: The rate limits of the job.
        self.buckets = SharedBuckets()
        #: The samples of the records that steps emit.
        self.samples = JobSamples(options.samples, options.clock)
        #: Counters of the subtasks of each step, by its name.
        self.counters: dict[str, list[StepCounters]] = {}
        #: Opened operators in the order of opening.
        self._opened: list[Operator] = []

    @contextmanager
    def closing_on_failure(self, environments: Iterable[TaskEnvironment]) -> Generator[None]:
        """Close opened operators and the timers of ``environments`` if the block fails: no task will do it then."""
        try:
            yield
        except BaseException:
            timers = (one.timers.close for one in environments)
            with closing([*timers, *(operator.close for operator in self._opened)]):
                raise

    def build(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        writers: Mapping[int, Sequence[Writer[Any]]],
        *,
        has_queued: Callable[[str], bool],
    ) -> OperatorChain:
        """Build the chain of one subtask.

        ``writers`` are the opened writers of each sink node, one for each subtask. ``has_queued`` tells if the input
        holds records of a split.
        """
        subtask = environment.id.subtask
        counters = {node.id: self._count(node) for node in plan.nodes}
        sinks: dict[SinkOperator, asyncio.Event] = {}
        operators = {
            node.id: _sink(writers[node.id][subtask], sinks, self._options.batch_records)
            if node.kind is Kind.SINK
            else _create(node)
            for node in plan.nodes
            if node.kind is not Kind.SOURCE
        }
        check_source_watermarks(plan.nodes, operators)
        edges = list(self._exchanges.edges(plan, subtask))
        chain_pieces, pieces = self._all_pieces(plan, environment)
        outputs, links = _connect(plan.nodes, operators, counters, pieces, edges, self.samples)
        rooms = _downstream_capacity(plan, operators, outputs)
        timers: list[LoopTimer] = []
        for node in plan.nodes:
            operator = operators.get(node.id)
            if operator is None:
                continue
            alarm = partial(_on_processing_time, operator, pieces[node.id])
            timer = environment.timers.timer(alarm, Lane.TIMERS)
            timers.append(timer)
            pieces[node.id].rooms = rooms[node.id]
            one = pieces[node.id]
            context = self._context(
                plan, node, subtask, outputs[node.id], links[node.id], timer, has_queued, one
            )
            with user_code(partial(_not_opened, node.name)):
                operator.open(context)
            self._opened.append(operator)
        return OperatorChain(
            operators=list(operators.values()),
            timers=timers,
            input_ports=_input_ports(plan.head, operators, outputs, links, counters, pieces),
            links=links,
            edges=[out for _, out in edges],
            sinks=sinks,
            member=self._aligned.place(
                operators.values(),
                None if plan.head.source is None else plan.head.name,
                environment.loop.resume,
            ),
            slots=self._slots(environment, operators, rooms, pieces),
            pieces=chain_pieces,
        )

    def _all_pieces(
        self, plan: TaskPlan, environment: TaskEnvironment
    ) -> tuple[ChainPieces, dict[int, OperatorPieces]]:
        """Return the pieces of a chain, and those of each operator by the id of its node."""
        chain = ChainPieces(self._loop_budget, self._options.clock, environment.loop.resume)
        return chain, {
            node.id: self._pieces(chain, index, node) for index, node in enumerate(plan.nodes)
        }

    def _pieces(self, chain: ChainPieces, index: int, node: Node) -> OperatorPieces:
        options = self._options
        size = BatchSize(options.batch_records, self._loop_budget.turn, longest=LONGEST_PIECE)
        return OperatorPieces(chain, index, node.name, size)

    def _slots(
        self,
        environment: TaskEnvironment,
        operators: Mapping[int, Operator],
        rooms: Mapping[int, Sequence[Room]],
        pieces: Mapping[int, OperatorPieces],
    ) -> dict[AsyncOperator, CallSlots]:
        calls = {node: one for node, one in operators.items() if isinstance(one, AsyncOperator)}
        for one in calls.values():
            one.followed.tracer = self._reports.tracer
        return {
            one: CallSlots(
                one,
                environment.loop,
                self._loop_budget,
                rooms=[*rooms[node], pieces[node].downstream],
                pieces=pieces[node],
                report=self._reports.give_up,
            )
            for node, one in calls.items()
        }

    def _count(self, node: Node) -> StepCounters:
        counters = StepCounters()
        self.counters.setdefault(node.name, []).append(counters)
        return counters

    def _context(
        self,
        plan: TaskPlan,
        node: Node,
        subtask: int,
        output: StepOutput,
        link: OutputLink,
        timer: LoopTimer,
        has_queued: Callable[[str], bool],
        pieces: OperatorPieces,
    ) -> OperatorContext:
        return OperatorContext(
            name=node.name,
            output=output,
            advance=link.advance if isinstance(link, DividingLink) else None,
            carries_watermarks=node.fires_in_order,
            clock=self._options.clock,
            alarm=timer,
            clocked=self._clocked,
            has_queued=has_queued,
            subtask=subtask,
            parallelism=plan.parallelism,
            key_groups=self._plan.ranges(plan)[subtask],
            key_group_count=self._plan.key_groups,
            backend=self._options.state,
            resource=self._resources.of(node.id, subtask),
            buckets=self.buckets,
            steady=self._options.clock.steady,
            random=self._options.random,
            warn=partial(_warn, self._plan.flow, node.name),
            # Results carry watermarks that depend on those after them, so they are emitted together.
            pieces=OnePiece() if node.fires_in_order else pieces,
        )


def _warn(job: str, step: str, text: str) -> None:
    log_events.RESULTS_NOT_STORED.log("%s", text, job=job, step=step)


def _sink(
    writer: Writer[Any], sinks: dict[SinkOperator, asyncio.Event], batch_records: int
) -> SinkOperator:
    """Create the operator of a sink, and add it to ``sinks``."""
    woken = asyncio.Event()
    sink = SinkOperator(writer, woken.set, joined=min(JOINED_RECORDS, batch_records))
    sinks[sink] = woken
    return sink


def _create(node: Node) -> Operator:
    if node.operator is None:
        raise InternalError(f"step {node.name!r} has no operator")
    operator = node.operator()
    if isinstance(operator, TwoInputOperator) and len(node.inputs) != 2:
        raise InternalError(
            f"step {node.name!r} ({node.what}) has a {type(operator).__name__}, which reads a left and a right stream, "
            f"and {len(node.inputs)} inputs"
        )
    return operator


def _on_processing_time(operator: Operator, pieces: OperatorPieces, now: Timestamp) -> None:
    if pieces.unfinished:
        pieces.put(partial(operator.on_processing_time, now))
        return
    try:
        operator.on_processing_time(now)
    except AflowError:
        raise
    except (Exception, asyncio.CancelledError) as exc:
        # Synchronous, so a CancelledError is the user function's own and cancels no task.
        raise OperatorError.of(operator.name, exc) from exc


def _connect(
    nodes: Sequence[Node],
    operators: Mapping[int, Operator],
    counters: Mapping[int, StepCounters],
    pieces: Mapping[int, OperatorPieces],
    edges: Sequence[tuple[Edge, OutEdge]],
    samples: JobSamples,
) -> tuple[dict[int, StepOutput], dict[int, OutputLink]]:
    """Return the output of each step and the link into each operator: the last step first, so that all are complete.

    The link into a run of fusible steps leads to a ``FusedOperator``. If samples are taken, steps are not fused, since
    no batch passes between fused ones.
    """
    targets: dict[int, list[tuple[Output, str | None]]] = {node.id: [] for node in nodes}
    for edge, out in edges:
        targets[edge.origin.id].append((out, edge.side))
    exchanged = {edge.origin.id for edge, _ in edges}
    runs = {} if samples.wanted else fusible_runs(nodes, operators, exchanged)
    outputs: dict[int, StepOutput] = {}
    links: dict[int, OutputLink] = {}
    for node in reversed(nodes):
        output_type = FiringOutput if node.fires_in_order else StepOutput
        readers = targets[node.id]
        sampled = samples.readers(node, [side for _, side in readers])
        # A sample shows the record as the step has emitted it, so its reader is first.
        outputs[node.id] = output_type(counters[node.id], [*sampled, *readers])
        operator = operators.get(node.id)
        if operator is None:
            continue
        if run := runs.get(node.id):
            fused = [counters[one] for one in run]
            operator = FusedOperator(list(run.values()), fused, outputs[list(run)[-1]])
        links[node.id] = _link(node, operator, counters[node.id], pieces[node.id], outputs[node.id])
        for edge in node.inputs if node is not nodes[0] else ():
            targets[edge.origin.id].insert(0, (links[node.id], edge.side))
    return outputs, links


def _link(
    node: Node,
    operator: Operator,
    counters: StepCounters,
    pieces: OperatorPieces,
    output: StepOutput,
) -> OutputLink:
    """Return the link into an operator; into the left input if it has two."""
    if isinstance(operator, AsyncOperator):
        counters.calls = operator.counted
    process = operator.process_left if isinstance(operator, TwoInputOperator) else None
    return _link_to(node, operator, counters, pieces, output, process)


def _link_to(
    node: Node,
    operator: Operator,
    counters: StepCounters,
    pieces: OperatorPieces,
    output: StepOutput,
    process: Callable[[Batch[Any]], None] | None,
    beside: OutputLink | None = None,
) -> OutputLink:
    """Return a link that passes batches to ``process`` of ``operator``, None for its only one.

    ``beside`` is the link into its other input, if that exists already.
    """
    if not (node.divides or node.fires_in_order or node.delay):
        return OutputLink(operator, counters, pieces, process)
    return DividingLink(
        operator,
        counters,
        pieces,
        process,
        output=output,
        divides=node.divides,
        delay=node.delay,
        beside=beside if isinstance(beside, DividingLink) else None,
    )


def _input_ports(
    head: Node,
    operators: Mapping[int, Operator],
    outputs: Mapping[int, StepOutput],
    links: Mapping[int, OutputLink],
    counters: Mapping[int, StepCounters],
    pieces: Mapping[int, OperatorPieces],
) -> list[OutputLink | StepOutput]:
    if head.id not in operators:
        return [outputs[head.id]]
    operator = operators[head.id]
    if not isinstance(operator, TwoInputOperator):
        return [links[head.id]]
    left = links[head.id]
    right = _link_to(
        head,
        operator,
        counters[head.id],
        pieces[head.id],
        outputs[head.id],
        operator.process_right,
        left,
    )
    return [left, right]


def _downstream_capacity(
    plan: TaskPlan, operators: Mapping[int, Operator], outputs: Mapping[int, StepOutput]
) -> dict[int, list[Room]]:
    """Return, for each step, its downstream parts that can be full; parallel branches are left out."""
    downstream: dict[int, list[Room]] = {}
    for node in reversed(plan.nodes):
        rooms: list[Room] = [one for one in outputs[node.id].targets if isinstance(one, OutEdge)]
        for later in plan.nodes:
            if later.id in downstream and any(one.origin.id == node.id for one in later.inputs):
                operator = operators[later.id]
                if isinstance(operator, AsyncOperator | SinkOperator):
                    rooms.append(operator)
                rooms += downstream[later.id]
        downstream[node.id] = rooms
    return downstream


def _not_opened(name: str, cause: BaseException) -> OperatorError:
    return OperatorError(f"step {name!r} could not be opened: {described(cause)}", operator=name)
