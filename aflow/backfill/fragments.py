"""Fragments of a flow over history, and the exits that connect them.

A *fragment* begins at a source, or at a step that reads by key. It holds all steps that are reachable from there
without another keyed exchange; a step downstream of a union, reachable from several heads, is in each. Only the head of
a keyed fragment has keyed state.

Records leave a fragment by *exits*: into a sink, or into an input of another fragment, which reads rows in the order of
event time. Other exchanges (``rebalance``, ``partition_by``) have no effect: the engine that runs the fragments
distributes the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aflow.graph.nodes import Kind, Node
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Value of ``Fragment.end_margin`` before all timestamps.
NEVER: Final = MAX_TIMESTAMP - MIN_TIMESTAMP


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """An output of a fragment."""

    number: int
    """From 0, unique in the plan: identifies the rows of this exit in storage."""
    origin: Node
    """Step of this fragment that emits the records."""
    side: str | None
    """The side output of ``origin``; None for its main output."""
    sink: Node | None = None
    """Sink of the records; None if another fragment reads them."""
    reader: int | None = None
    """Index of the fragment that reads the records; None for a sink."""
    input: int = 0
    """Input of the reader's head: 0, or 1 for the right one of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Steps that run together over one partition of history."""

    index: int
    nodes: tuple[Node, ...]
    """The head first, each other step after its inputs in this fragment. Sinks are not included."""
    exits: tuple[Exit, ...]
    cuts_at: frozenset[str] = frozenset()
    """Names of the steps that assign timestamps to records of a source; they exclude records from the end of the
    history on, which the live job processes.
    """
    watermark_per_timestamp: bool = False
    """True if the head runs user code with timers, which must observe the watermark between any two timestamps."""
    watermark_lag: int = 1
    """Lag (ms) of the watermark before the next record, and before the end of the history. Merging windows need 2: a
    record at the very end of a window belongs to it, unless the window has fired, as it has with a lag of 1.
    """
    end_margin: int = 0
    """Margin (ms) before the end of the history for records that only the live job sends to the head, since an
    upstream fragment holds their input in its state. The watermark ends earlier by this margin. ``NEVER`` or
    more: an upstream step assigned a second, arbitrary timestamp. Then no watermark is emitted, and the live job fires
    everything that waits for it.
    """

    @property
    def head(self) -> Node:
        """Return the source, or the step that reads by key."""
        return self.nodes[0]

    @property
    def keyed(self) -> bool:
        """Return True if the fragment reads exchanges, by key and in the order of event time."""
        return self.head.kind is not Kind.SOURCE


@dataclass(frozen=True, slots=True, eq=False)
class FragmentPlan:
    """All fragments of a flow, each after its upstream fragments."""

    flow: str
    fragments: tuple[Fragment, ...]
    key_groups: int

    @property
    def sinks(self) -> dict[str, Node]:
        """Return the sinks of the flow by name."""
        return {
            exit.sink.name: exit.sink
            for one in self.fragments
            for exit in one.exits
            if exit.sink is not None
        }

    @property
    def cuts(self) -> dict[str, Fragment]:
        """Return, by the names of the steps at which history is cut, the first fragment of each."""
        return {name: one for one in reversed(self.fragments) for name in one.cuts_at}

    def exits_into(self, sink: str) -> list[tuple[Fragment, Exit]]:
        """Return the exits into a sink, with their fragments."""
        return [
            (one, exit)
            for one in self.fragments
            for exit in one.exits
            if exit.sink is not None and exit.sink.name == sink
        ]

    def inputs_of(self, fragment: Fragment) -> list[tuple[Fragment, Exit]]:
        """Return the exits that ``fragment`` reads, with their fragments."""
        return [
            (one, exit)
            for one in self.fragments
            for exit in one.exits
            if exit.reader == fragment.index
        ]
