"""A copy of a graph with other sources and sinks: the same steps, in the same order, with the same names."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aflow.connect import Sink, Source
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge, Node


def with_ends(
    graph: FlowGraph, sources: Mapping[str, Source[Any]], sinks: Mapping[str, Sink[Any]]
) -> FlowGraph:
    """Return a graph whose sources and sinks with these names are replaced; ``graph`` remains as it is.

    The names must be those of sources and sinks of the graph. The limits of rates of replaced sources are kept.
    """
    copied = copy.copy(graph)
    copied.nodes = []
    new: dict[int, Node] = {}
    for node in graph:
        inputs = tuple(
            Edge(new[edge.origin.id], edge.side, edge.partitioning) for edge in node.inputs
        )
        source, sink = sources.get(node.name), sinks.get(node.name)
        detail = next(
            (type(one).__name__ for one in (source, sink) if one is not None), node.detail
        )
        new[node.id] = replace(
            node,
            inputs=inputs,
            source=node.source if source is None else source,
            sink=node.sink if sink is None else sink,
            detail=detail,
        )
        copied.nodes.append(new[node.id])
    return copied
