"""The graph of one pipeline, and the validation rules of pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aflow.connect import Sink, Source
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import KEY_PRESERVING_METHODS, Edge, Kind, Node, upstream
from aflow.machines.calls.on_error import FAIL, Fail, OnError, dead_letter_tag, policy_text
from aflow.machines.calls.rate import RateLimit, rate_text
from aflow.model.resource import Resource
from aflow.model.tags import Tag
from aflow.operators.base import Operator
from aflow.operators.stateless import PassThroughOperator
from aflow.operators.watermark_use import WatermarkUse
from aflow.operators.windows.logic import WindowLogic


class FlowGraph:
    """An acyclic graph that only grows: each node is added once, after its inputs."""

    def __init__(self, name: str, on_error: OnError[Any] = FAIL) -> None:
        if not isinstance(name, str) or not name.strip():
            raise FlowDefinitionError(
                f"a flow needs a name, not {shown(name)}; for example Flow('orders')"
            )
        self.name = name
        #: The policy of steps without one of their own.
        self.on_error = on_error
        #: The step that merges the dead letters of ``on_error``; None before ``add_dead_letters``.
        self._dead_letters: Node | None = None
        self.nodes: list[Node] = []
        #: All names, given or generated. A name identifies a step across restarts, so it is unique.
        self._names: set[str] = set()
        #: The generated names.
        self._generated: set[str] = set()

    def __iter__(self) -> Iterator[Node]:
        """Iterate over all nodes, each after its inputs."""
        return iter(self.nodes)

    def add_source(
        self,
        source: Source[Any],
        name: str | None,
        parallelism: int | None,
        rate: RateLimit[Any] | None = None,
    ) -> Node:
        """Add a source. Raises ``FlowDefinitionError`` for an object that is no source."""
        if not isinstance(source, Source):
            raise FlowDefinitionError(
                f"source() takes an aflow.Source, an iterable or an async iterable, not {shown(source)}"
            )
        check_parallelism(parallelism)
        if rate is not None and not isinstance(rate, RateLimit):
            raise FlowDefinitionError(
                f"source(rate=…) takes a RateLimit, such as RateLimit(100, timedelta(seconds=1)), not {shown(rate)}"
            )
        kind = type(source).__name__
        return self._add(
            Kind.SOURCE,
            "source",
            name,
            source=source,
            parallelism=parallelism,
            rate=rate,
            detail=kind if rate is None else f"{kind}, {rate_text(rate)}",
        )

    def add_step(
        self,
        what: str,
        name: str | None,
        inputs: tuple[Edge, ...],
        operator: Callable[[], Operator] | None,
        *,
        stateful: bool = False,
        begins_time: bool = False,
        sides: bool = False,
        dead_letters: str | None = None,
        on_error: OnError[Any] = FAIL,
        resource: Resource[Any] | None = None,
        calls: bool = False,
        parallelism: int | None = None,
        detail: str = "",
        windows: WindowLogic | None = None,
        watermarks: WatermarkUse = WatermarkUse.CARRIED,
    ) -> Node:
        """Add a step that transforms its inputs. A stateful one must be named: the name identifies its state.

        ``sides`` is True if user code in it may write to side outputs. The inputs of a ``TwoInputOperator`` are the
        left and the right one, in this order. ``on_error`` is set for the operators of a step without calls.
        """
        dead_letters = dead_letters or dead_letter_tag(on_error)
        if stateful and name is None:
            raise FlowDefinitionError(
                f"{what}() keeps state, so it needs a name that stays the same when the pipeline changes; "
                f"write {what}(..., name='…')"
            )
        check_parallelism(parallelism)
        if resource is not None:
            self._check_resource(resource, what)
        return self._add(
            Kind.STEP,
            what,
            name,
            inputs=inputs,
            operator=None if operator is None else _with_policy(operator, on_error),
            stateful=stateful,
            begins_time=begins_time,
            has_time=begins_time or any(edge.origin.has_time for edge in inputs),
            sides=sides or dead_letters is not None,
            dead_letters=dead_letters,
            resource=resource,
            calls=calls,
            parallelism=parallelism,
            detail=", ".join(filter(None, (detail, policy_text(on_error)))),
            windows=windows,
            watermarks=watermarks,
        )

    def default_policy(self, *inputs: Edge) -> OnError[Any]:
        """Return the policy of a step that reads ``inputs`` and has none of its own.

        A step downstream of the dead letters of the flow fails the job. Raises ``FlowDefinitionError`` for another step
        that is added after those were merged.
        """
        merged = self._dead_letters
        if merged is None:
            return self.on_error
        if any(merged in upstream(edge.origin) for edge in inputs):
            return FAIL
        raise FlowDefinitionError(
            f"flow {self.name!r}: dead_letters() has merged the dead letters of all steps, and a step was added after "
            f"it; call dead_letters() after all other steps"
        )

    def add_dead_letters(self) -> Node:
        """Add the step that merges the dead letters of all steps by the policy of the flow.

        Raises ``FlowDefinitionError``.
        """
        tag = dead_letter_tag(self.on_error)
        if tag is None:
            raise FlowDefinitionError(
                f"flow {self.name!r} has no dead letters: its on_error is {self.on_error!r}; "
                f"write Flow({self.name!r}, on_error=DeadLetter(tag))"
            )
        if self._dead_letters is None:
            edges = [Edge(node, side=tag) for node in self.nodes if node.dead_letters == tag]
            if not edges:
                raise FlowDefinitionError(
                    f"flow {self.name!r} has no step with dead letters yet; call dead_letters() after all other steps"
                )
            self._dead_letters = self.add_step("union", None, tuple(edges), PassThroughOperator)
        return self._dead_letters

    def add_sink(self, sink: Sink[Any], name: str | None, edge: Edge) -> Node:
        """Add a sink at the end of a stream."""
        if not isinstance(sink, Sink):
            hint = "for a function use aflow.CallbackSink(fn)"
            if isinstance(sink, type) and issubclass(sink, Sink):
                hint = f"call the class to get one: {sink.__name__}(…)"
            raise FlowDefinitionError(f"to() takes an aflow.Sink, not {shown(sink)}; {hint}")
        return self._add(
            Kind.SINK, "to", name, inputs=(edge,), sink=sink, detail=type(sink).__name__
        )

    def _add(self, kind: Kind, what: str, name: str | None, **fields: Any) -> Node:
        node = Node(
            id=len(self.nodes),
            name=self._claim(name) if name is not None else self._generate_name(what),
            kind=kind,
            what=what,
            named=name is not None,
            **fields,
        )
        self.nodes.append(node)
        return node

    def _claim(self, name: str) -> str:
        if not isinstance(name, str) or not name.strip():
            raise FlowDefinitionError(
                f"a step's name must be a non-empty string, not {shown(name)}"
            )
        if name in self._generated:
            raise FlowDefinitionError(
                f"the name {name!r} was generated for a preceding step without a name; name that step too"
            )
        if name in self._names:
            raise FlowDefinitionError(
                f"flow {self.name!r} has two steps named {name!r}; names identify state and metrics, give each its own"
            )
        self._names.add(name)
        return name

    def _generate_name(self, what: str) -> str:
        """Generate a name such as ``map #1``; the ``#`` makes a collision with a name of the user unlikely."""
        number = 1 + sum(1 for node in self.nodes if node.what == what)
        while f"{what} #{number}" in self._names:
            number += 1
        name = self._claim(f"{what} #{number}")
        self._generated.add(name)
        return name

    def validate(self) -> None:
        """Raise ``FlowDefinitionError`` unless every stream leads from a source to a sink."""
        if not any(node.kind is Kind.SOURCE for node in self.nodes):
            raise FlowDefinitionError(
                f"flow {self.name!r} has no source; start it with flow.source(…)"
            )
        if not any(node.kind is Kind.SINK for node in self.nodes):
            raise FlowDefinitionError(
                f"flow {self.name!r} has no sink, so its results go nowhere; end a stream with .to(sink)"
            )
        self._check_dead_letters()
        read = {edge.origin.id for node in self.nodes for edge in node.inputs if edge.side is None}
        # A process function may well send everything to side outputs.
        read |= {e.origin.id for n in self.nodes for e in n.inputs if e.origin.sides}
        for node in self.nodes:
            if _is_keyed(node) and node.id not in read:
                raise FlowDefinitionError(
                    f"no step uses the keys of step {node.name!r} ({node.what}); add a keyed step such as "
                    f".fold(…), .process(…), .window(…).fold(…) or a join with .inner(…), or remove the key_by"
                )
            if node.kind is not Kind.SINK and node.id not in read:
                raise FlowDefinitionError(
                    f"no step reads the stream of step {node.name!r} ({node.what}); "
                    f"end it with .to(sink), or remove the step"
                )

    def _check_resource(self, resource: Resource[Any], what: str) -> None:
        """Raise ``FlowDefinitionError`` unless resources that are shared by one name are one object."""
        if not isinstance(resource, Resource):
            raise FlowDefinitionError(
                f"{what}(using=…) takes an aflow.Resource, not {shown(resource)}; for example "
                f"using=Resource(aiohttp.ClientSession)"
            )
        for node in self.nodes:
            other = node.resource
            if other is None or other is resource or resource.shared is None:
                continue
            if other.shared == resource.shared:
                raise FlowDefinitionError(
                    f"step {node.name!r} has another Resource that is shared as {resource.shared!r}; give both steps "
                    f"the same Resource object, or another shared=… name"
                )

    def _check_dead_letters(self) -> None:
        """Raise ``FlowDefinitionError`` if no step reads a dead-letter output: records are never dropped silently."""
        read = {(edge.origin.id, edge.side) for node in self.nodes for edge in node.inputs}
        for node in self.nodes:
            if node.source is not None and node.source.dead_letters is not None:
                tag, what = node.source.dead_letters.name, "bad records"
            elif node.dead_letters is not None:
                tag, what = node.dead_letters, "failed records"
            else:
                continue
            if (node.id, tag) not in read:
                raise FlowDefinitionError(_unread(node, tag, what))


def _with_policy(create: Callable[[], Operator], on_error: OnError[Any]) -> Callable[[], Operator]:
    return create if isinstance(on_error, Fail) else lambda: create().with_policy(on_error)


def _is_keyed(node: Node) -> bool:
    """Return True for ``key_by``, and for steps of its keyed stream that keep the keys."""
    while node.what in KEY_PRESERVING_METHODS and node.inputs:
        node = node.inputs[0].origin
    return node.what == "key_by"


def _all_letters(node: Node) -> str:
    return (
        "; flow.dead_letters() reads those of all steps of a flow with on_error=DeadLetter(…)"
        if node.source is None
        else ""
    )


def _unread(node: Node, tag: str, what: str) -> str:
    kind, instead = (
        ("step", "write on_error=Drop() to drop them")
        if node.source is None
        else ("source", "leave dead_letters out")
    )
    return (
        f"{kind} {node.name!r} sends {what} to side output {tag!r}, which no step reads; read them with .side(tag) "
        f"directly after the {kind}, or {instead}{_all_letters(node)}"
    )


def check_side(edge: Edge, tag: Tag[Any]) -> None:
    """Raise ``FlowDefinitionError`` if the origin of ``edge`` cannot write to side output ``tag``."""
    origin = edge.origin
    if edge.side is not None:
        raise FlowDefinitionError(
            f"side({tag.name!r}) belongs directly after the step that writes to it, "
            f"not after its side output {edge.side!r}"
        )
    if origin.source is not None:
        # A source without dead letters may replace one that has some, for example in a test: then the stream is empty.
        if origin.source.dead_letters not in (None, tag):
            raise FlowDefinitionError(
                f"source {origin.name!r} sends nothing to side output {tag.name!r}; "
                f"its dead_letters are {origin.source.dead_letters!r}"
            )
    elif not origin.sides:
        raise FlowDefinitionError(
            f"step {origin.name!r} ({origin.what}) has no side outputs; side({tag.name!r}) belongs directly after "
            f"process(), a step with on_error=DeadLetter(…) or a source with dead_letters"
        )


def check_parallelism(parallelism: int | None) -> None:
    """Raise ``FlowDefinitionError`` unless ``parallelism`` is None or a positive number of subtasks."""
    if parallelism is None:
        return
    if type(parallelism) is not int or parallelism < 1:
        raise FlowDefinitionError(
            f"parallelism is a number of subtasks from 1 on, not {shown(parallelism)}"
        )
