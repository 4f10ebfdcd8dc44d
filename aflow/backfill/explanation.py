"""Explanation of a plan of fragments for a terminal: fragments, exchanges and written results.

The text depends only on the plan and the end of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from aflow.backfill.fragment_planner import before_time
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.live_savepoint import LiveState
from aflow.errors import readable
from aflow.graph.nodes import Edge, Node
from aflow.graph.tree import branches, counted, side_mark
from aflow.model.time import Timestamp

__all__ = ["explain"]

_Follower: TypeAlias = tuple[Edge, Node] | Exit
"""Line below a step in the tree: another step, by one of its inputs, or an exit of the fragment."""


def explain(
    plan: FragmentPlan,
    *,
    begins: Timestamp | None = None,
    until: Timestamp | None = None,
    live: LiveState | None = None,
) -> str:
    """Return fragments with their steps and exchanges, then written results, as text for a terminal.

    ``begins`` and ``until`` bound the history (epoch ms). Without ``begins`` it is not continued from a savepoint;
    without ``until`` nothing is left for a live job. ``live`` is the state of a live job, if it continues from that.
    """
    return "\n".join(_PlanText(plan, begins, until, live).lines()) + "\n"


class _PlanText:
    """Text of one plan, with the lookups it needs."""

    def __init__(
        self,
        plan: FragmentPlan,
        begins: Timestamp | None,
        until: Timestamp | None,
        live: LiveState | None,
    ) -> None:
        self._plan: Final = plan
        self._live: Final = live
        self._begins: Final = begins
        self._until: Final = until
        #: Fragments of each step, by its number.
        self._homes: Final[dict[int, list[int]]] = {}
        for fragment in plan.fragments:
            for node in fragment.nodes:
                self._homes.setdefault(node.id, []).append(fragment.index)

    def lines(self) -> Iterator[str]:
        plan = self._plan
        exchanges = sum(exit.reader is not None for one in plan.fragments for exit in one.exits)
        begin = "" if self._begins is None else f"from {readable(self._begins)} "
        end = "to its end" if self._until is None else f"up to {readable(self._until)}"
        yield (
            f"flow {plan.flow!r} over history {begin}{end}: {counted(len(plan.fragments), 'fragment')}, "
            f"{counted(exchanges, 'keyed exchange')}, {counted(plan.key_groups, 'key group')}"
        )
        for fragment in plan.fragments:
            yield ""
            yield from self._fragment(fragment)
        yield ""
        yield from self._written()

    # ------------------------------------------------------------------------------------------- fragments

    def _fragment(self, fragment: Fragment) -> Iterator[str]:
        head = fragment.head
        if fragment.keyed:
            yield f"fragment {fragment.index}: by key, in the order of event time"
            for one, exit in self._plan.inputs_of(fragment):
                role = f", as its {head.roles[exit.input]} input" if head.roles else ""
                yield f"  reads {exit.origin.name} of fragment {one.index}{role}"
        else:
            rows = (
                "the rows"
                if self._live is None
                else "the records that the live job has not read, as rows"
            )
            yield f"fragment {fragment.index}: {rows} given for source {head.name!r}, in any order"
        calls = None if self._live is None else self._live.calls.get(fragment.index)
        if calls:
            yield f"  first ends the calls that were under way in {', '.join(calls)}"
        yield f"  {self._step(fragment, head)}"
        yield from self._tree(fragment)

    def _tree(self, fragment: Fragment) -> Iterator[str]:
        """Yield the tree below the head. A step that is below several others is shown in full once."""
        seen: set[int] = set()

        def below(follower: _Follower) -> list[_Follower]:
            # Asked after the line of the follower is complete, and again for each of its further places.
            if isinstance(follower, Exit) or follower[1].id in seen:
                return []
            seen.add(follower[1].id)
            return _followers(fragment, follower[1])

        for start, follower in branches(_followers(fragment, fragment.head), below, "  "):
            if isinstance(follower, Exit):
                yield start + self._exit(follower)
                continue
            edge, node = follower
            text = (
                f"{node.name}  as above"
                if node.id in seen
                else self._step(fragment, node, edge.origin)
            )
            yield f"{start}{text}{side_mark(edge.side)}"

    def _step(self, fragment: Fragment, node: Node, upstream: Node | None = None) -> str:
        facts = [f"{node.what} {node.detail}".rstrip() if node.source is None else node.what]
        if node is fragment.head and fragment.watermark_per_timestamp:
            facts.append("sees time pass from each timestamp to the next")
        if node.name in fragment.cuts_at and self._begins is not None:
            facts.append(
                f"skips records before {readable(self._begins)}, which belong to the restored run"
            )
        if node.name in fragment.cuts_at and self._until is not None:
            facts.append(
                f"cut: leaves records at {readable(self._until)} and later to the live job"
            )
        homes = self._homes[node.id]
        if len(homes) > 1 and (upstream is None or homes != self._homes[upstream.id]):
            others = ", ".join(str(home) for home in homes if home != fragment.index)
            facts.append(f"a copy from here on, others in fragment {others}")
        return f"{node.name}  {' · '.join(facts)}"

    def _exit(self, exit: Exit) -> str:
        if exit.sink is not None:
            return f"→ sink {exit.sink.name}{side_mark(exit.side)}"
        assert exit.reader is not None  # an exit has a sink or a reader
        head = self._plan.fragments[exit.reader].head
        role = f" as its {head.roles[exit.input]} input" if head.roles else ""
        return f"→ fragment {exit.reader} ({head.name}){role}, by key"

    # --------------------------------------------------------------------------------------------- written

    def _written(self) -> Iterator[str]:
        if self._live is not None:
            newest = self._live.newest
            upto = "" if newest is None else f", of records up to {readable(newest)}"
            yield f"restored: state of a live job{upto}"
        elif self._begins is not None:
            yield f"restored: state as it is at {readable(self._begins)}"
        yield "written, from one pass"
        for sink, exit_list in self._sinks().items():
            origins = dict.fromkeys(
                f"{exit.origin.name}{_of_side(exit.side)}{self._uncut_note(one, exit)}"
                for one, exit in exit_list
            )
            yield f"  sink {sink}: {', '.join(origins)}"
        state = [one.head.name for one in self._plan.fragments if one.keyed and one.head.stateful]
        if not state:
            yield "  state: none, since no step keeps any"
        elif self._until is None:
            yield "  state: not kept, since no end of the history was given for a live job to start from"
        else:
            yield f"  state as it is at {readable(self._until)}: {', '.join(state)}"

    def _sinks(self) -> dict[str, list[tuple[Fragment, Exit]]]:
        found: dict[str, list[tuple[Fragment, Exit]]] = {}
        for fragment in self._plan.fragments:
            for exit in fragment.exits:
                if exit.sink is not None:
                    found.setdefault(exit.sink.name, []).append((fragment, exit))
        return found

    def _uncut_note(self, fragment: Fragment, exit: Exit) -> str:
        """Return a note for results without event time, to which the end of the history does not apply."""
        bounded = self._begins is not None or self._until is not None
        if not bounded or exit.origin.id not in before_time(fragment.nodes):
            return ""
        return f" (all rows of source {fragment.head.name!r}: it has no event time to be cut at)"


def _followers(fragment: Fragment, parent: Node) -> list[_Follower]:
    """Return the lines below ``parent``."""
    found: list[_Follower] = [
        (edge, node)
        for node in fragment.nodes[1:]
        for edge in node.inputs
        if edge.origin.id == parent.id
    ]
    return [*found, *(exit for exit in fragment.exits if exit.origin.id == parent.id)]


def _of_side(side: str | None) -> str:
    return "" if side is None else f", side output {side!r}"
