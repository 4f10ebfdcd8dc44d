"""The ends of a pipeline under load: sources that are replaced by loads, and sinks by recorders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aflow.api.flow import Flow
from aflow.connect import Position, Reader, Sink, Source, Split, Writer, WriterContext
from aflow.errors import FlowDefinitionError, SinkError, SourceError, shown
from aflow.graph.annotated_ends import EndKind, annotated_end
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Kind, Node, upstream
from aflow.operators.event_time import EventTimeOperator
from aflow.runtime.builtin_connectors.reply_sink import ReplySink
from aflow.runtime.builtin_connectors.result_sink import ResultSink

#: Records per second and source that are traced through a pipeline with async calls.
TRACED_RATE: Final = 1000.0


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """The sources and sinks of a flow, checked against those that a load names. Raises ``FlowDefinitionError``."""

    graph: FlowGraph
    loaded: Collection[str]
    """Sources to be replaced."""
    kept: Collection[str]
    """Sinks that are not replaced."""

    def __post_init__(self) -> None:
        self.graph.validate()
        flow = self.graph.name
        if not self.loaded:
            raise FlowDefinitionError(
                f"a load of flow {flow!r} needs at least one of its sources: {_listed(self._names(Kind.SOURCE))}"
            )
        for kind, names in ((Kind.SOURCE, self.loaded), (Kind.SINK, self.kept)):
            for name in names:
                if name not in self._names(kind):
                    method = "source" if kind is Kind.SOURCE else "to"
                    raise FlowDefinitionError(
                        f"flow {flow!r} has no {kind.value} {name!r}, but {_listed(self._names(kind))}; name the step: "
                        f".{method}(…, name={name!r})"
                    )
        for node in self.graph:
            self._check(node)

    def replaced(self) -> Iterator[Node]:
        """Yield the nodes of the sources that are replaced."""
        return (node for node in self.graph if node.source is not None and node.name in self.loaded)

    def sinks(self) -> Iterator[tuple[Node, Sink[Any]]]:
        """Yield all sinks."""
        return ((node, node.sink) for node in self.graph if node.sink is not None)

    def traced_rate(self, source: Node) -> float | None:
        """Return the records per second that are traced from ``source`` to the sinks; None: all.

        With async calls downstream each result of a traced record is emitted alone, which costs time.
        """
        calls = any(node.calls and source in upstream(node) for node in self.graph)
        return TRACED_RATE if calls else None

    def _names(self, kind: Kind) -> list[str]:
        return [node.name for node in self.graph if node.kind is kind]

    def _check(self, node: Node) -> None:
        if isinstance(node.source, PlaceholderSource) and node.name not in self.loaded:
            raise FlowDefinitionError(
                f"source {node.name!r} is a parameter of the build function and has no load; give it one"
            )
        if isinstance(node.sink, PlaceholderSink) and node.name in self.kept:
            raise FlowDefinitionError(
                f"sink {node.name!r} cannot be kept: it is a parameter of the build function; build the flow with its "
                f"sink in a function of your own, and load that"
            )
        if isinstance(node.sink, ResultSink | ReplySink) and node.name in self.kept:
            raise FlowDefinitionError(
                f"sink {node.name!r} is a {type(node.sink).__name__}, whose results the host of the job takes; it "
                f"cannot be kept under load: let it be replaced by a recorder"
            )
        if node.what != "event_time" or node.operator is None:
            return
        operator = node.operator()
        if isinstance(operator, EventTimeOperator) and operator.from_source:
            for one in upstream(node):
                if one.name in self.loaded:
                    raise FlowDefinitionError(
                        f"source {one.name!r} cannot be replaced by a load: step {node.name!r} takes the watermarks of "
                        f"the source, and a load has none; build the flow with max_delay=… for the load"
                    )


class PlaceholderSource(Source[Any]):
    """The argument of a build function for a source that a load replaces."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def splits(self) -> Sequence[Split]:
        raise SourceError(self._unloaded)

    async def reader(self, split: Split, position: Position | None) -> Reader[Any]:
        raise SourceError(self._unloaded)

    @property
    def _unloaded(self) -> str:
        return f"parameter {self.name!r} of the build function is a source without a load"


class PlaceholderSink(Sink[Any]):
    """The argument of a build function for a sink that a recorder replaces."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def writer(self, context: WriterContext) -> Writer[Any]:
        raise SinkError(
            f"parameter {self.name!r} of the build function is a sink, and cannot be kept under load"
        )


def with_placeholders(build: Callable[..., Any], sources: Collection[str]) -> Callable[..., Any]:
    """Return ``build`` with arguments for its ends: the parameters without a default that are named in ``sources``, or
    annotated as a source or sink."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return build
    ends: dict[str, object] = {}
    for one in parameters:
        if one.default is not one.empty or one.kind is one.POSITIONAL_ONLY:
            continue
        kind = EndKind.SOURCE if one.name in sources else annotated_end(one.annotation)
        if kind is EndKind.SOURCE:
            ends[one.name] = PlaceholderSource(one.name)
        elif kind is EndKind.SINK:
            ends[one.name] = PlaceholderSink(one.name)
    return partial(build, **ends) if ends else build


def flow_of(flow: Flow | Callable[..., Flow], sources: Collection[str]) -> Flow:
    """Return the flow, or the one that the function builds, with placeholders for its ends.

    Raises ``FlowDefinitionError``.
    """
    built: object = flow
    if not isinstance(flow, Flow):
        if not callable(flow):
            raise FlowDefinitionError(
                f"a load needs an aflow.Flow or a function that builds one, not {shown(flow)}"
            )
        built = with_placeholders(flow, sources)()
    if not isinstance(built, Flow):
        raise FlowDefinitionError(
            f"{shown(flow)} returned {shown(built)}, which is no aflow.Flow; does it end with 'return flow'?"
        )
    return built


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
