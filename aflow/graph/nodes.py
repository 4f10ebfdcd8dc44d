"""Nodes of a pipeline, and the edges that carry records from one node to the next, as plain description.

Nothing here runs. A node holds the factory of its operator, or its source or sink; the runtime makes one operator,
reader or writer for each subtask. Nodes point at their inputs, so a node never changes after it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from aflow.connect import Sink, Source
from aflow.machines.calls.rate import RateLimit
from aflow.model.resource import Resource
from aflow.operators.base import Operator
from aflow.operators.watermark_use import WatermarkUse
from aflow.operators.windows.logic import WindowLogic


@dataclass(frozen=True, slots=True)
class Forward:
    """Send from subtask i to subtask i: the only partitioning that can be chained into one task."""


@dataclass(frozen=True, slots=True)
class HashByKey:
    """Send each record to the subtask that owns the key group of its key."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Send batches to the subtasks in turn, skipping those without capacity."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send every record to every subtask."""


@dataclass(frozen=True, slots=True)
class Custom:
    """Send each record to the subtask ``choose(value, subtasks)`` (from 0)."""

    choose: Callable[[Any, int], int]


#: ``Node.what`` of the step that merges several streams.
UNION_METHOD: Final = "union"

#: ``Node.what`` of the steps that keep the keys of a keyed stream.
KEY_PRESERVING_METHODS: Final = frozenset({"map", "filter", "flat_map"})

Partitioning: TypeAlias = Forward | HashByKey | Rebalance | Broadcast | Custom


class Kind(Enum):
    """The role of a node, for validation and drawing."""

    SOURCE = "source"
    STEP = "step"
    SINK = "sink"


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Records of ``origin``, from its main output or side output ``side``, to the node that holds the edge."""

    origin: Node
    side: str | None = None
    partitioning: Partitioning = field(default_factory=Forward)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One step of the pipeline, made by one call of the fluent API. Compared by identity."""

    id: int
    name: str
    kind: Kind
    what: str
    """The method that added it (``map``, ``window.fold`` …), for messages and drawings."""
    inputs: tuple[Edge, ...] = ()
    operator: Callable[[], Operator] | None = None
    source: Source[Any] | None = None
    sink: Sink[Any] | None = None
    rate: RateLimit[Any] | None = None
    """The limit of the records that a source emits."""
    resource: Resource[Any] | None = None
    """The second argument of its async calls."""
    calls: bool = False
    """True if the step makes async calls."""
    parallelism: int | None = None
    """The number of subtasks; None: that of the inputs, or of the job if records are exchanged."""
    stateful: bool = False
    begins_time: bool = False
    """True if event time begins here: upstream of it there are no watermarks (except that of the end)."""
    has_time: bool = False
    """True if event time begins here or upstream, on at least one input."""
    sides: bool = False
    """True if user code may write to side outputs of any tag."""
    dead_letters: str | None = None
    """The side output for failed records of the step; a step must read it."""
    named: bool = True
    """False if the name was generated."""
    detail: str = ""
    """Parameters to show in a plan."""
    windows: WindowLogic | None = None
    """The windows of the step, as its operator has them."""
    watermarks: WatermarkUse = WatermarkUse.CARRIED
    """The use of watermarks between records; that of a step with ``windows`` follows from those."""
    divides: bool = False
    """True if the link into the operator applies watermarks between records; set in the plan."""
    fires_in_order: bool = False
    """True if results of a watermark carry watermarks, for steps downstream; set in the plan."""
    delay: int = 0
    """Milliseconds by which the watermarks of the step are behind those of its inputs; set in the plan."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the inputs; empty if the step treats them alike."""
        return ("left", "right") if len(self.inputs) == 2 and self.what != UNION_METHOD else ()


def upstream(node: Node) -> Iterator[Node]:
    """Yield ``node`` and all nodes that it reads, directly or through others, once each."""
    waiting, seen = [node], {node.id}
    while waiting:
        one = waiting.pop()
        yield one
        for edge in one.inputs:
            if edge.origin.id not in seen:
                seen.add(edge.origin.id)
                waiting.append(edge.origin)
