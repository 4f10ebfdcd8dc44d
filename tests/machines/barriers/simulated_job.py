"""A job without a runtime: sources, tasks with barrier machines, and queues between them, in random order.

Each link keeps all records that were sent, and each task all that it has processed, by channel. So a checkpoint can be
compared with the definition of a consistent cut (``Job.cut``), and a job can be restored from it (``Job.restored``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from random import Random
from typing import Final, TypeAlias

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    AlarmFired,
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    CancelArrived,
    ChannelEnded,
    Event,
)
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.model.elements import END_OF_INPUT, Barrier, CancelBarrier, CheckpointKind, EndOfInput
from tests.machines.barriers.interpreter import BarrierInterpreter, by_channel


@dataclass(frozen=True, slots=True)
class Record:
    """The ``number``-th record of a source."""

    source: int
    number: int


Batch: TypeAlias = tuple[Record, ...]
Element: TypeAlias = Batch | Barrier | CancelBarrier | EndOfInput
Action: TypeAlias = Callable[[], None]


class Mode(Enum):
    """Mode of the checkpoints of a job."""

    AT_LEAST_ONCE = "at least once"
    ALIGNED = "aligned"
    ALIGNED_FOR_A_WHILE = "aligned until a timeout"
    UNALIGNED = "unaligned, savepoints aligned"


_MACHINES: Final[Mapping[Mode, Callable[[int], Barriers]]] = {
    Mode.AT_LEAST_ONCE: BarrierTracker,
    Mode.ALIGNED: BarrierAligner,
    Mode.ALIGNED_FOR_A_WHILE: AlternatingBarriers,
    Mode.UNALIGNED: AlternatingBarriers,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes of a job, and its possible events."""

    sources: tuple[int, ...]
    """Number of records of each source. Sources are the first nodes."""
    tasks: tuple[tuple[int, ...], ...]
    """The nodes that each task reads: sources, and tasks before it; one channel for each."""
    mode: Mode
    checkpoints: int = 0
    concurrent: int = 1
    """Maximum of pending checkpoints."""
    aborts: int = 0
    """Number of checkpoints that are aborted without a reason."""
    timeout: int = 0
    shared_out: bool = False
    """True if each record is sent to one reader; otherwise to all."""


@dataclass(eq=False, slots=True)
class Link:
    """A channel."""

    sent: list[Record] = field(default_factory=list[Record])
    queue: deque[Element] = field(default_factory=deque[Element])
    announce: Callable[[Barrier], None] = lambda barrier: None

    def put(self, element: Element) -> None:
        self.queue.append(element)
        if isinstance(element, tuple):
            self.sent += element

    def put_barrier(self, barrier: Barrier) -> None:
        self.queue.append(barrier)
        if barrier.unaligned or barrier.timeout is not None:
            self.announce(barrier)

    def take(self, limit: int) -> Element:
        """The first element, at most ``limit`` records of it."""
        element = self.queue.popleft()
        if isinstance(element, tuple) and len(element) > limit:
            self.queue.appendleft(element[limit:])
            return element[:limit]
        return element

    def find(self, checkpoint: int) -> int | None:
        """Return the index of the barrier."""
        places = (
            place
            for place, one in enumerate(self.queue)
            if isinstance(one, Barrier) and one.id == checkpoint
        )
        return next(places, None)


@dataclass(slots=True)
class Part:
    """The part of one node in a checkpoint."""

    sent: list[list[Record]]
    """By link, the records sent before the cut."""
    position: int = 0
    """Number of records that a source had sent."""
    done: list[list[Record]] = field(default_factory=list[list[Record]])
    """By channel, the records that a task had processed."""
    in_flight: dict[int, list[Record]] | None = None
    """By channel; None until all barriers have arrived."""
    unaligned: bool = False


class Outputs:
    """The links downstream of a node."""

    def __init__(self, shared_out: bool) -> None:
        self.links: list[Link] = []
        self._shared_out = shared_out

    def emit(self, records: Sequence[Record]) -> None:
        for index, link in enumerate(self.links):
            mine = tuple(
                one
                for one in records
                if not self._shared_out or one.number % len(self.links) == index
            )
            if mine:
                link.put(mine)

    def barrier(self, barrier: Barrier) -> None:
        for link in self.links:
            link.put_barrier(barrier)

    def put(self, element: CancelBarrier | EndOfInput) -> None:
        for link in self.links:
            link.put(element)

    def sent(self) -> list[list[Record]]:
        return [list(link.sent) for link in self.links]


class Source:
    """Sends its records and an end; takes part in checkpoints after its end, too."""

    def __init__(self, number: int, records: int, outputs: Outputs) -> None:
        self._number = number
        self._records = records
        self.outputs = outputs
        self.position = 0
        self.ended = False
        #: Mails of the coordinator.
        self.mails: deque[Barrier | CancelBarrier] = deque()
        self.parts: dict[int, Part] = {}

    def actions(self, chance: Random) -> Iterator[Action]:
        if self.mails:
            yield self._mail
        if not self.ended:
            yield partial(self._send, chance)

    def _send(self, chance: Random) -> None:
        if self.position == self._records:
            self.ended = True
            self.outputs.put(END_OF_INPUT)
            return
        until = min(self._records, self.position + chance.randint(1, 3))
        self.outputs.emit([Record(self._number, one) for one in range(self.position, until)])
        self.position = until

    def _mail(self) -> None:
        match self.mails.popleft():
            case Barrier() as barrier:
                self.outputs.barrier(barrier)
                self.parts[barrier.id] = Part(self.outputs.sent(), self.position, in_flight={})
            case CancelBarrier() as cancel:
                self.outputs.put(cancel)


class Task:
    """A machine with its channels. Its state is all that it has processed."""

    def __init__(
        self, machine: Barriers, links: Sequence[Link], outputs: Outputs, job: Job
    ) -> None:
        self.barriers = BarrierInterpreter[Record](machine, self)
        self.links = links
        self.outputs = outputs
        self._job = job
        self.done: list[list[Record]] = [[] for _ in links]
        self.open = set(range(len(links)))
        #: True once all records are processed and the end is sent on.
        self.ended = False
        self.parts: dict[int, Part] = {}
        #: Announcements that are not processed yet.
        self.mails: deque[tuple[int, Barrier]] = deque()
        for channel, link in enumerate(links):
            link.announce = partial(self._announced, channel)

    def actions(self, chance: Random) -> Iterator[Action]:
        if self.mails:
            yield self._mail
        if self.barriers.alarm is not None and self.barriers.alarm <= self._job.now:
            yield self._on_alarm
        for channel, link in enumerate(self.links):
            if link.queue and channel not in self.barriers.blocked:
                yield partial(self._take, channel, chance.choice([1, 2, 9]))
        if not self.open and not self.ended:
            yield self._end

    def on_trigger(self, barrier: Barrier) -> None:
        assert barrier.id not in self.parts, "a checkpoint is taken once"
        done = [list(one) for one in self.done]
        self.parts[barrier.id] = Part(self.outputs.sent(), done=done, unaligned=barrier.unaligned)
        self.outputs.barrier(barrier)

    def on_abort(self, checkpoint: int) -> None:
        self.parts.pop(checkpoint, None)
        self.outputs.put(CancelBarrier(checkpoint))
        self._job.give_up(checkpoint)

    def on_all_arrived(self, checkpoint: int, in_flight: Sequence[tuple[int, Record]]) -> None:
        self.parts[checkpoint].in_flight = by_channel(in_flight)

    def overtake(self, channel: int, checkpoint: int) -> None:
        queue = self.links[channel].queue
        place = self.links[channel].find(checkpoint)
        assert place is not None
        barrier = queue[place]
        assert isinstance(barrier, Barrier)
        overtaken = [one for index, one in enumerate(queue) if index < place]
        del queue[place]
        records = [record for one in overtaken if isinstance(one, tuple) for record in one]
        self._handle(BarrierArrived(channel, replace(barrier, unaligned=True)), records)

    def _announced(self, channel: int, barrier: Barrier) -> None:
        self.mails.append((channel, barrier))

    def _mail(self) -> None:
        channel, barrier = self.mails.popleft()
        if self.links[channel].find(barrier.id) is None:
            return
        if barrier.unaligned:
            self.overtake(channel, barrier.id)
        else:
            self._handle(BarrierAnnounced(channel, barrier))

    def _on_alarm(self) -> None:
        self.barriers.alarm = None
        self._handle(AlarmFired())

    def _end(self) -> None:
        self.ended = True
        self.outputs.put(END_OF_INPUT)

    def _take(self, channel: int, limit: int) -> None:
        match self.links[channel].take(limit):
            case Barrier() as barrier:
                self._handle(BarrierArrived(channel, barrier))
            case CancelBarrier(checkpoint):
                self._handle(CancelArrived(channel, checkpoint))
            case EndOfInput():
                self.open.remove(channel)
                self._handle(ChannelEnded(channel))
            case records:
                for record in records:
                    self.barriers.on_record(channel, record)
                self.done[channel] += records
                self.outputs.emit(records)

    def _handle(self, event: Event, overtaken: Sequence[Record] = ()) -> None:
        self.barriers.handle(event, self._job.now, overtaken)


class Job:
    """Nodes and links of a plan, a coordinator, and a random choice of the next event."""

    def __init__(self, plan: Plan, chance: Random) -> None:
        self.plan = plan
        self._chance = chance
        self.now = 0
        self.sources = [
            Source(number, records, Outputs(plan.shared_out))
            for number, records in enumerate(plan.sources)
        ]
        self.tasks: list[Task] = []
        for inputs in plan.tasks:
            self._add_task(inputs)
        #: Checkpoints that were begun: those that may still complete, and those that were given up.
        self.begun: list[Barrier] = []
        self.given_up: set[int] = set()
        self._aborts = plan.aborts

    @property
    def nodes(self) -> list[Source | Task]:
        return [*self.sources, *self.tasks]

    def _add_task(self, inputs: Sequence[int]) -> None:
        links = [Link() for _ in inputs]
        for node, link in zip(inputs, links, strict=True):
            self.nodes[node].outputs.links.append(link)
        machine = _MACHINES[self.plan.mode](len(inputs))
        self.tasks.append(Task(machine, links, Outputs(self.plan.shared_out), self))

    # -------------------------------------------------------------------------------------------- events

    def run(self) -> None:
        """Process events until none is possible."""
        while actions := self._actions():
            self._chance.choice(actions)()
            self.now += self._chance.choice([0, 0, 1])

    def _actions(self) -> list[Action]:
        actions = [one for node in self.nodes for one in node.actions(self._chance)]
        pending = self._pending()
        if len(self.begun) < self.plan.checkpoints and len(pending) < self.plan.concurrent:
            actions.append(self._begin)
        if pending and self._aborts:
            actions.append(self._abort)
        alarms = [task.barriers.alarm for task in self.tasks if task.barriers.alarm is not None]
        return actions or ([partial(self._wait, min(alarms))] if alarms else [])

    def _begin(self) -> None:
        number = len(self.begun) + 1
        savepoint = self._chance.random() < 0.2
        barrier = Barrier(
            number, self.now, CheckpointKind.SAVEPOINT if savepoint else CheckpointKind.PERIODIC
        )
        if not savepoint and self.plan.mode is Mode.ALIGNED_FOR_A_WHILE:
            barrier = replace(barrier, timeout=self.plan.timeout)
        if not savepoint and self.plan.mode is Mode.UNALIGNED:
            barrier = replace(barrier, unaligned=True)
        self.begun.append(barrier)
        for source in self.sources:
            source.mails.append(barrier)

    def _abort(self) -> None:
        self._aborts -= 1
        self.give_up(self._chance.choice(self._pending()))

    def _wait(self, until: int) -> None:
        self.now = until

    def _pending(self) -> list[int]:
        done = {*self.given_up, *self.completed}
        return [one.id for one in self.begun if one.id not in done]

    def give_up(self, checkpoint: int) -> None:
        """Abort a checkpoint in the coordinator and in the sources."""
        if checkpoint not in self.given_up:
            self.given_up.add(checkpoint)
            for source in self.sources:
                source.mails.append(CancelBarrier(checkpoint))

    # --------------------------------------------------------------------------------------------- results

    @property
    def completed(self) -> list[int]:
        """Checkpoints with the parts of all nodes, aborted or not."""
        return [one.id for one in self.begun if self._is_complete(one.id)]

    def _is_complete(self, checkpoint: int) -> bool:
        parts = [node.parts.get(checkpoint) for node in self.nodes]
        return all(part is not None and part.in_flight is not None for part in parts)

    def cut(self, checkpoint: int) -> Iterator[tuple[list[Record], list[Record], list[Record]]]:
        """Yield for each link the records sent, processed and in flight at the cut."""
        for task, inputs in zip(self.tasks, self.plan.tasks, strict=True):
            part = task.parts[checkpoint]
            assert part.in_flight is not None
            for channel, (node, link) in enumerate(zip(inputs, task.links, strict=True)):
                writer = self.nodes[node]
                sent = writer.parts[checkpoint].sent[writer.outputs.links.index(link)]
                yield sent, part.done[channel], part.in_flight.get(channel, [])

    def totals(self) -> list[Counter[Record]]:
        """Return how often each task has processed each record."""
        return [Counter(one for done in task.done for one in done) for task in self.tasks]

    def restored(self, checkpoint: int) -> Job:
        """Return a job that is restored from a checkpoint, and takes no more of them."""
        job = Job(replace(self.plan, checkpoints=0, aborts=0), self._chance)
        for source, former in zip(job.sources, self.sources, strict=True):
            source.position = former.parts[checkpoint].position
        for task, before in zip(job.tasks, self.tasks, strict=True):
            part = before.parts[checkpoint]
            task.done = [list(one) for one in part.done]
            for channel, records in (part.in_flight or {}).items():
                if records:
                    task.links[channel].put(tuple(records))
        return job
