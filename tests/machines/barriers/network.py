"""A network of tasks in one thread, each with a barrier machine, in which events are in any possible order.

Sources send numbered records, a barrier for each checkpoint (or its cancellation), and their end. A task counts each
record in its state and emits it. The snapshots of all tasks are a ``Cut``, from which a network can be restored.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from aflow.machines.barriers.events import (
    AlarmFired,
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    CancelArrived,
    ChannelEnded,
)
from aflow.model.elements import Barrier, CancelBarrier, EndOfInput
from tests.machines.barriers.interpreter import BarrierInterpreter, by_channel

Record: TypeAlias = tuple[int, int]
"""The source, and the position in it."""

Element: TypeAlias = Record | Barrier | CancelBarrier | EndOfInput
Totals: TypeAlias = Mapping[int, Counter[Record]]
"""Counts of each record in each task."""


@dataclass(frozen=True)
class Plan:
    """Nodes are numbered, sources first, and read nodes with smaller numbers."""

    records: tuple[int, ...]
    """Number of records of each source."""
    inputs: tuple[tuple[int, ...], ...]
    """For each task the nodes that it reads, with a channel for each."""
    shared_out: tuple[bool, ...]
    """For each node True if a record is sent to one of its readers, and not to all."""

    @property
    def sources(self) -> range:
        return range(len(self.records))

    @property
    def tasks(self) -> range:
        return range(len(self.records), len(self.records) + len(self.inputs))


@dataclass
class Cut:
    """A checkpoint: complete with the parts of all nodes."""

    positions: dict[int, int] = field(default_factory=dict[int, int])
    """Number of records of each source before its barrier."""
    states: dict[int, Counter[Record]] = field(default_factory=dict[int, Counter[Record]])
    in_flight: dict[int, Mapping[int, Sequence[Record]]] = field(
        default_factory=dict[int, Mapping[int, Sequence[Record]]]
    )
    """By task and channel, for all tasks of which all barriers have arrived."""

    def is_complete(self, plan: Plan) -> bool:
        return len(self.positions) == len(plan.records) and len(self.in_flight) == len(plan.inputs)

    def all_records(self) -> Iterator[Record]:
        """Yield the records in states and in flight."""
        for state in self.states.values():
            yield from state
        for channels in self.in_flight.values():
            for records in channels.values():
                yield from records


@dataclass
class Channel:
    """``announced`` are announcements that the reader has not processed yet."""

    elements: deque[Element] = field(default_factory=deque[Element])
    announced: deque[Barrier] = field(default_factory=deque[Barrier])

    def put(self, element: Element) -> None:
        self.elements.append(element)
        if isinstance(element, Barrier) and (element.unaligned or element.timeout is not None):
            self.announced.append(element)

    def holds(self, checkpoint: int) -> bool:
        return any(isinstance(one, Barrier) and one.id == checkpoint for one in self.elements)

    def overtake(self, checkpoint: int) -> tuple[Barrier, list[Record]] | None:
        """Remove the barrier, and return it with the records before it, which are kept."""
        passed: list[Record] = []
        for place, element in enumerate(self.elements):
            if isinstance(element, Barrier) and element.id == checkpoint:
                del self.elements[place]
                return replace(element, unaligned=True), passed
            if isinstance(element, tuple):
                passed.append(element)
        return None


class Node:
    """A node that has readers."""

    def __init__(self, number: int, shared_out: bool) -> None:
        self.number = number
        self._shared_out = shared_out
        self.outputs: list[Channel] = []

    def send(self, record: Record) -> None:
        readers = self.outputs
        if self._shared_out and readers:
            readers = [readers[record[1] % len(readers)]]
        for channel in readers:
            channel.put(record)

    def send_to_all(self, element: Barrier | CancelBarrier | EndOfInput) -> None:
        for channel in self.outputs:
            channel.put(element)


class Source(Node):
    """Sends its records, and takes part in checkpoints also after its end."""

    def __init__(self, number: int, shared_out: bool, records: int, position: int) -> None:
        super().__init__(number, shared_out)
        self._records = records
        self.position = position
        self._ended = False
        #: Requested checkpoints, each with True to take part.
        self.asked: deque[tuple[Barrier, bool]] = deque()

    def choices(self, cuts: Mapping[int, Cut]) -> Iterator[Callable[[], None]]:
        if not self._ended:
            yield self._continue
        if self.asked:
            yield partial(self._checkpoint, cuts)

    def _continue(self) -> None:
        if self.position < self._records:
            self.send((self.number, self.position))
            self.position += 1
        else:
            self._ended = True
            self.send_to_all(EndOfInput())

    def _checkpoint(self, cuts: Mapping[int, Cut]) -> None:
        barrier, takes_part = self.asked.popleft()
        if takes_part:
            cuts[barrier.id].positions[self.number] = self.position
        self.send_to_all(barrier if takes_part else CancelBarrier(barrier.id))


class Task(Node):
    """Counts records, and takes checkpoints as its machine decides. ``tolerant`` as of the interpreter."""

    def __init__(
        self,
        number: int,
        shared_out: bool,
        machine: Barriers,
        inputs: Sequence[Channel],
        network: Network,
    ) -> None:
        super().__init__(number, shared_out)
        self.inputs = inputs
        self.state: Counter[Record] = Counter()
        self.barriers = BarrierInterpreter[Record](machine, self, tolerant=network.tolerant)
        self._network = network
        self._open = len(inputs)

    def choices(self) -> Iterator[Callable[[], None]]:
        for index, channel in enumerate(self.inputs):
            if channel.elements and index not in self.barriers.blocked:
                yield partial(self._take, index)
            if channel.announced:
                yield partial(self._on_announcement, index)
        if self.barriers.alarm is not None and self.barriers.alarm <= self._network.now:
            yield self._on_alarm

    def on_trigger(self, barrier: Barrier) -> None:
        self._network.cuts[barrier.id].states[self.number] = self.state.copy()
        self.send_to_all(barrier)

    def on_abort(self, checkpoint: int) -> None:
        self.send_to_all(CancelBarrier(checkpoint))

    def on_all_arrived(self, checkpoint: int, in_flight: Sequence[tuple[int, Record]]) -> None:
        self._network.cuts[checkpoint].in_flight[self.number] = by_channel(in_flight)

    def overtake(self, channel: int, checkpoint: int) -> None:
        found = self.inputs[channel].overtake(checkpoint)
        if found is not None:
            self.barriers.handle(BarrierArrived(channel, found[0]), self._network.now, found[1])

    def _take(self, index: int) -> None:
        now = self._network.now
        match self.inputs[index].elements.popleft():
            case EndOfInput():
                self.barriers.handle(ChannelEnded(index), now)
                self._open -= 1
                if self._open == 0:
                    self.send_to_all(EndOfInput())
            case Barrier() as barrier:
                self.barriers.handle(BarrierArrived(index, barrier), now)
            case CancelBarrier(checkpoint):
                self.barriers.handle(CancelArrived(index, checkpoint), now)
            case record:
                self.barriers.on_record(index, record)
                self.state[record] += 1
                self.send(record)

    def _on_announcement(self, index: int) -> None:
        barrier = self.inputs[index].announced.popleft()
        if barrier.unaligned:
            self.overtake(index, barrier.id)
        elif self.inputs[index].holds(barrier.id):
            self.barriers.handle(BarrierAnnounced(index, barrier), self._network.now)

    def _on_alarm(self) -> None:
        self.barriers.alarm = None
        self.barriers.handle(AlarmFired(), self._network.now)


class Network:
    """The nodes of a plan, at their beginning or restored from ``since``."""

    def __init__(
        self,
        plan: Plan,
        machine: Callable[[int], Barriers],
        *,
        since: Cut | None = None,
        tolerant: bool = False,
    ) -> None:
        self.plan = plan
        self.tolerant = tolerant
        self.now = 0
        self.cuts: dict[int, Cut] = {}
        since = Cut() if since is None else since
        self.sources = [
            Source(number, plan.shared_out[number], count, since.positions.get(number, 0))
            for number, count in enumerate(plan.records)
        ]
        self.tasks: list[Task] = []
        for number, inputs in zip(plan.tasks, plan.inputs, strict=True):
            channels = [Channel() for _ in inputs]
            task = Task(number, plan.shared_out[number], machine(len(inputs)), channels, self)
            self._restore(task, since)
            for channel, writer in zip(channels, inputs, strict=True):
                self._nodes()[writer].outputs.append(channel)
            self.tasks.append(task)

    def ask(self, barrier: Barrier, refusing: frozenset[int]) -> None:
        """Request a checkpoint of all sources; those ``refusing`` cancel it."""
        self.cuts[barrier.id] = Cut()
        for source in self.sources:
            source.asked.append((barrier, source.number not in refusing))

    def choices(self) -> list[Callable[[], None]]:
        """Return all possible next events, those nearest to the end of the network first."""
        found: list[Callable[[], None]] = []
        for task in reversed(self.tasks):
            found += task.choices()
        for source in self.sources:
            found += source.choices(self.cuts)
        return found

    def drain(self) -> None:
        """Process events until none is possible."""
        while choices := self.choices():
            choices[0]()

    def totals(self) -> Totals:
        return {task.number: task.state for task in self.tasks}

    def _nodes(self) -> list[Node]:
        return [*self.sources, *self.tasks]

    def _restore(self, task: Task, since: Cut) -> None:
        task.state.update(since.states.get(task.number, Counter()))
        for index, records in since.in_flight.get(task.number, {}).items():
            task.inputs[index].elements.extend(records)
