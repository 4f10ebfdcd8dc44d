"""What a pipeline is made of, as plain description: nodes, and the edges on which records go from one to the next.

Nothing here runs. A node knows how to make its operator, source reader or sink writer; the runtime does so once
for each subtask. Nodes point at their inputs, so a node never changes after it was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from aflow.connect import Sink, Source
from aflow.model.resource import Resource
from aflow.operators.base import Operator
from aflow.operators.windows.logic import WindowLogic


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i sends to subtask i: the only partitioning that can be chained into one task."""


@dataclass(frozen=True, slots=True)
class HashByKey:
    """Each record goes to the subtask that owns the key group of its key."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Batches go to the subtasks in turn, passing over those that have no room."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every record goes to every subtask."""


@dataclass(frozen=True, slots=True)
class Custom:
    """``choose(value, subtasks)`` says to which subtask (from 0) a record goes."""

    choose: Callable[[Any, int], int]


#: What the one step is called (in ``Node.what``) that reads several streams as if they were one.
MIXING: Final = "union"

Partitioning: TypeAlias = Forward | HashByKey | Rebalance | Broadcast | Custom


class Kind(Enum):
    """What a node does, for validation and drawing."""

    SOURCE = "source"
    STEP = "step"
    SINK = "sink"


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Records of ``origin`` (its main output, or side output ``side``) on their way to the node that holds the edge."""

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
    """The method that made it (``map``, ``window.fold`` …), for messages and drawings."""
    inputs: tuple[Edge, ...] = ()
    operator: Callable[[], Operator] | None = None
    source: Source[Any] | None = None
    sink: Sink[Any] | None = None
    resource: Resource[Any] | None = None
    """What the calls of the step need besides their record."""
    parallelism: int | None = None
    """Asked for at this node; None: as the inputs have it, or the job's where records are exchanged."""
    stateful: bool = False
    begins_time: bool = False
    """True if event time begins here: before it there are no watermarks (but that of the end)."""
    has_time: bool = False
    """True if event time began here or before, on one of the inputs at least."""
    sides: bool = False
    """True if it may have side outputs of any tag, and nothing but those."""
    dead_letters: str | None = None
    """The side output of a step that gets the records which have failed in it, so that somebody has to read it."""
    named: bool = True
    """False if the name was made up because the user gave none."""
    detail: str = ""
    """Parameters worth showing in a plan, for a person."""
    windows: WindowLogic | None = None
    """What a step with windows is told of them; its operator knows it too, but is not made to be asked."""

    @property
    def roles(self) -> tuple[str, ...]:
        """What the step takes each of its inputs for; empty if it makes no difference between them."""
        return ("left", "right") if len(self.inputs) == 2 and self.what != MIXING else ()
