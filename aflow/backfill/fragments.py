"""The parts of a flow that run over history one after the other, and what goes from one to the next.

A *fragment* begins at a source, or at a step that reads by key. It holds all steps that can be reached from there
without another keyed exchange; a step that is reached from several of them, behind a union, is in each. Only the step
at the head of a keyed fragment has state that belongs to keys.

Records leave a fragment by *exits*: into a sink, or into one of the inputs of another fragment, in which rows stand in
the order of event time. Other exchanges (``rebalance``, ``partition_by``) move nothing here: how records are spread is
decided by whoever runs the fragments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aflow.graph.nodes import Kind, Node
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP

#: For ``Fragment.end_margin``: so many ms that there are no records before.
NEVER: Final = MAX_TIMESTAMP - MIN_TIMESTAMP


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """One way by which records leave a fragment."""

    number: int
    """From 0, unique in the plan: it names the rows of this exit wherever they are stored."""
    origin: Node
    """The step, in this fragment, whose results these are."""
    side: str | None
    """The side output of ``origin``; None for its main output."""
    sink: Node | None = None
    """Where the records end; None if they go into another fragment."""
    reader: int | None = None
    """The fragment that reads them, by its index; None for a sink."""
    input: int = 0
    """By which input of the reader's head they come in: 0, or 1 for the right one of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Steps that run together over one partition of history."""

    index: int
    nodes: tuple[Node, ...]
    """The head first, every other one after those of its inputs that are here. Sinks are none of them."""
    exits: tuple[Exit, ...]
    cuts_at: frozenset[str] = frozenset()
    """Names of the steps here that give records of a source their timestamps: those from the end of the history on are
    left to the live job there."""
    watermark_per_timestamp: bool = False
    """True if the head runs users' code with timers, which has to see time pass between any two timestamps."""
    watermark_lag: int = 1
    """By how much (ms) the watermark stays behind the next record, and behind the end of the history. Windows that
    merge need 2: a record at the very end of one belongs to it, unless it has given its result, as it has at 1."""
    end_margin: int = 0
    """How far (ms) in front of the end of the history the time of records may be that only the live job gives the head,
    since a fragment before this one keeps back what they come of; the watermark ends so much earlier. ``NEVER`` or
    more: records have got a second time on their way here, which may be any. Then time does not begin, and the live job
    gives all that waits for it."""

    @property
    def head(self) -> Node:
        """A source, or the step that reads by key."""
        return self.nodes[0]

    @property
    def keyed(self) -> bool:
        """True if the fragment reads exchanges, by key and in the order of event time."""
        return self.head.kind is not Kind.SOURCE


@dataclass(frozen=True, slots=True, eq=False)
class FragmentPlan:
    """All fragments of a flow, each after those that feed it."""

    flow: str
    fragments: tuple[Fragment, ...]
    key_groups: int

    def inputs_of(self, fragment: Fragment) -> list[tuple[Fragment, Exit]]:
        """The exits that ``fragment`` reads, with the fragments that they leave."""
        return [
            (one, way)
            for one in self.fragments
            for way in one.exits
            if way.reader == fragment.index
        ]
