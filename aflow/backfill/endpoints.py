"""Sources and sinks of a flow that runs over history: placeholders for rows that the engine reads and writes.

A pipeline is a function of its sources and sinks, so it is built with these instead of those of the live job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

from aflow.backfill.fragments import FragmentPlan
from aflow.connect import Position, Reader, Sink, Source, Split, Writer, WriterContext
from aflow.errors import FlowDefinitionError, SinkError, SourceError, shown
from aflow.graph.annotated_ends import EndKind, annotated_end
from aflow.graph.flow_graph import FlowGraph


class DescribedFlow(Protocol):
    """An ``aflow.Flow``."""

    @property
    def graph(self) -> FlowGraph:
        """Steps of the flow."""
        ...


Build: TypeAlias = DescribedFlow | Callable[..., DescribedFlow]
"""A flow, or the function that builds it and whose parameters are its sources and sinks."""


class HistorySource(Source[Any]):
    """Placeholder for rows that the engine reads."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def splits(self) -> Sequence[Split]:
        raise SourceError(self._only)

    async def reader(self, split: Split, position: Position | None) -> Reader[Any]:
        raise SourceError(self._only)

    @property
    def _only(self) -> str:
        return f"source {self.name!r} is a placeholder for history, which a job cannot read: use it in a backfill"


class HistorySink(Sink[Any]):
    """Placeholder for results that the engine writes."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def writer(self, context: WriterContext) -> Writer[Any]:
        raise SinkError(
            f"sink {self.name!r} is a placeholder for results of a backfill, which a job cannot write"
        )


def build_graph(build: Build, sources: Collection[str], sinks: Collection[str]) -> FlowGraph:
    """Return the graph of a flow, built with placeholders for its sources and sinks.

    A parameter of ``build`` receives a placeholder if it is named in ``sources`` or ``sinks``, or has no default and is
    annotated as a source or sink; others need a default.
    Raises ``FlowDefinitionError`` for a parameter without one, and if the result is no flow.
    """
    flow: object = build
    if not hasattr(build, "graph"):
        if not callable(build):
            raise FlowDefinitionError(
                f"backfill() takes a flow, or the function that builds it, not {shown(build)}"
            )
        flow = build(**_placeholders(build, sources, sinks))
    graph = getattr(flow, "graph", None)
    if not isinstance(graph, FlowGraph):
        raise FlowDefinitionError(f"build() must return an aflow.Flow, not {shown(flow)}")
    return graph


def check_ends(plan: FragmentPlan, sources: Collection[str], sinks: Collection[str]) -> None:
    """Raise ``FlowDefinitionError`` unless ``sources`` and ``sinks`` are exactly those of the flow.

    They are identified by the names of their steps in the flow.
    """
    of_flow = [one.head.name for one in plan.fragments if not one.keyed]
    _check_names(of_flow, sources, "source", "sources={'%s': dataframe}")
    _check_names(sorted(plan.sinks), sinks, "sink", "sinks={'%s': 'folder/'}, or None to drop them")


def _check_names(of_flow: Collection[str], given: Collection[str], what: str, how: str) -> None:
    missing = [name for name in of_flow if name not in given]
    if missing:
        raise FlowDefinitionError(
            f"{what} {missing[0]!r} of the flow is not in {what}s: say {how % missing[0]}"
        )
    beyond = [name for name in given if name not in of_flow]
    if beyond:
        method = "source" if what == "source" else "to"
        raise FlowDefinitionError(
            f"{what}s names {beyond[0]!r}, and the flow has no {what} of that name, but {_listed(of_flow)}; name the "
            f"step: .{method}(…, name={beyond[0]!r})"
        )


def _placeholders(
    build: Callable[..., object], sources: Collection[str], sinks: Collection[str]
) -> dict[str, object]:
    ends: dict[str, object] = {}
    for name, parameter in inspect.signature(build).parameters.items():
        if name in sources:
            ends[name] = HistorySource(name)
        elif name in sinks:
            ends[name] = HistorySink(name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            ends[name] = _annotated_end(name, parameter.annotation) or _refuse(name, sources, sinks)
    return ends


def _annotated_end(name: str, annotation: object) -> HistorySource | HistorySink | None:
    match annotated_end(annotation):
        case EndKind.SOURCE:
            return HistorySource(name)
        case EndKind.SINK:
            return HistorySink(name)
        case None:
            return None


def _refuse(name: str, sources: Collection[str], sinks: Collection[str]) -> NoReturn:
    raise FlowDefinitionError(
        f"build() has a parameter {name!r}, which is none of the sources ({_listed(sources)}) and none of the sinks "
        f"({_listed(sinks)}): if it is one, name it as its step, or annotate it with aflow.Source or aflow.Sink; else "
        f"give it a value by functools.partial(build, {name}=…)"
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "there are none"
