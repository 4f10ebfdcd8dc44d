"""A flow that is built with placeholders for its ends, and planned: the first step of a backfill."""

from __future__ import annotations

from collections.abc import Mapping

from aflow.backfill.endpoints import Build, build_graph, check_ends
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragments import FragmentPlan
from aflow.graph.flow_graph import FlowGraph


def plan_build(
    build: Build,
    sources: Mapping[str, object],
    sinks: Mapping[str, object],
    key_groups: int,
    *,
    by_event_time: bool = False,
    can_be_late: bool = False,
) -> tuple[FlowGraph, FragmentPlan]:
    """Return the graph of ``build`` and its fragments over history.

    With ``by_event_time`` windows of processing time fire in event time where possible, and with ``can_be_late``
    records may be late. Raises ``FlowDefinitionError`` for a flow that cannot run over history, and for ends that are
    not those of the flow.
    """
    graph = build_graph(build, sources, sinks)
    plan = plan_fragments(
        graph,
        key_groups=key_groups,
        event_time_for_processing_time=by_event_time,
        can_be_late=can_be_late,
    )
    check_ends(plan, sources, sinks)
    return graph, plan
