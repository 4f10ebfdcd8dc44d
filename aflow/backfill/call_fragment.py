"""A fragment with one step that calls an async function for each record: for rows of another engine.

The names below configure such a step; users import them from ``aflow``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from aflow.backfill.fragments import Exit, Fragment
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import Edge, Kind, Node
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.on_error import DeadLetter, Fail, OnError
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import RetryPolicy
from aflow.machines.calls.settings import CallResults
from aflow.model.resource import Resource
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.calls.checks import check_called
from aflow.runtime.calls.options import CallOptions, call_settings

__all__ = [
    "Adaptive",
    "Cache",
    "CallOptions",
    "CircuitBreaker",
    "Fail",
    "OnError",
    "RateLimit",
    "RetryPolicy",
    "call_fragment",
]

T = TypeVar("T")

_METHOD: Final = "map_async"


def call_fragment(
    fn: Callable[..., Awaitable[Any]],
    options: CallOptions[Any],
    *,
    name: str,
    using: Resource[Any] | None = None,
    into: Callable[[Any, Any], Any] | None = None,
) -> Fragment:
    """Return a fragment that emits the results of ``fn`` by exit 0: ``map_async`` of a stream, without the stream.

    Raises ``FlowDefinitionError`` and ``TypeError`` as ``map_async`` does, and for ``DeadLetter``: there is one exit.
    """
    if not isinstance(name, str) or not name.strip():
        raise FlowDefinitionError(f"a step's name must be a non-empty string, not {shown(name)}")
    if using is not None and not isinstance(using, Resource):
        raise FlowDefinitionError(
            f"{_METHOD}(using=…) takes an aflow.Resource, not {shown(using)}; for example "
            f"using=Resource(aiohttp.ClientSession)"
        )
    check_called(_METHOD, fn, with_resource=using is not None)
    settings = call_settings(_METHOD, fn, options, CallResults.ONE, using=using, into=into)
    if isinstance(settings.on_error, DeadLetter):
        raise FlowDefinitionError(
            f"step {name!r} has one output, and {shown(settings.on_error)} needs another; say Drop(), or "
            f"Fallback(function) whose results tell the failures apart"
        )
    rows = Node(id=0, name="rows", kind=Kind.SOURCE, what="source")
    step = Node(
        id=1,
        name=name,
        kind=Kind.STEP,
        what=_METHOD,
        inputs=(Edge(rows),),
        operator=partial(AsyncOperator, settings),
        resource=using,
        calls=True,
    )
    results = Node(id=2, name="results", kind=Kind.SINK, what="to", inputs=(Edge(step),))
    return Fragment(0, (rows, step), (Exit(0, step, None, sink=results),))
