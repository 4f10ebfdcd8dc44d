"""Methods that call an async function for each record, for streams with and without keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from aflow.api.call_detail import call_detail, dead_letters_of
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.settings import CallResults
from aflow.model.resource import Resource
from aflow.operators.base import Operator
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.watermark_use import WatermarkUse
from aflow.runtime.calls.checks import check_called
from aflow.runtime.calls.options import CallOptions, call_settings, group_size

if TYPE_CHECKING:
    from aflow.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
R = TypeVar("R")


class AsyncCallMethods(ABC, Generic[T]):
    """Async calls for the records of a stream: up to ``capacity`` at once. No checkpoint waits for calls or loses one.

    On a ``KeyedStream`` the calls of one key run one after the other, in the order of the stream; those of other keys
    run concurrently. After a crash, calls without a result in the checkpoint are made again, before all others. With
    ``using=`` the function gets the object that the ``Resource`` opened, for example an HTTP session, as its second
    argument. ``CallOptions`` lists the keyword arguments of all methods.
    """

    _keyed = False
    _graph: FlowGraph
    _edge: Edge

    @overload
    def map_async(
        self,
        fn: Callable[[T], Awaitable[U]],
        *,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[T], Awaitable[U]],
        *,
        into: Callable[[T, U], V],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[V]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[T, R], Awaitable[U]],
        *,
        using: Resource[R],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[T, R], Awaitable[U]],
        *,
        using: Resource[R],
        into: Callable[[T, U], V],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[V]: ...
    def map_async(
        self,
        fn: Callable[..., Awaitable[Any]],
        *,
        using: Resource[Any] | None = None,
        into: Callable[[T, Any], Any] | None = None,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[Any]:
        """Replace each value by the result of awaiting ``fn(value)``, or by ``into(value, result)`` to keep both.

        ``into`` is called, not awaited, when the result is emitted. An error that it raises fails the job, whatever
        ``on_error`` is.
        """
        return self._call("map_async", fn, using, name, options, CallResults.ONE, into)

    @overload
    def flat_map_async(
        self,
        fn: Callable[[T], Awaitable[Iterable[U]] | AsyncIterator[U]],
        *,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    @overload
    def flat_map_async(
        self,
        fn: Callable[[T, R], Awaitable[Iterable[U]] | AsyncIterator[U]],
        *,
        using: Resource[R],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    def flat_map_async(
        self,
        fn: Callable[..., Awaitable[Iterable[U]] | AsyncIterator[U]],
        *,
        using: Resource[Any] | None = None,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]:
        """Replace each value by all values that ``fn(value)`` returns as a list, or yields as an async generator.

        They are emitted together, once the call has completed, with the timestamp of the value.
        """
        return self._call("flat_map_async", fn, using, name, options, CallResults.MANY)

    @overload
    def filter_async(
        self,
        keep: Callable[[T], Awaitable[object]],
        *,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[T]: ...
    @overload
    def filter_async(
        self,
        keep: Callable[[T, R], Awaitable[object]],
        *,
        using: Resource[R],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[T]: ...
    def filter_async(
        self,
        keep: Callable[..., Awaitable[object]],
        *,
        using: Resource[Any] | None = None,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[T]:
        """Keep the values for which the result of awaiting ``keep(value)`` is true."""
        return self._call("filter_async", keep, using, name, options, CallResults.KEEP)

    @overload
    def map_batch_async(
        self,
        fn: Callable[[list[T]], Awaitable[Sequence[U | Exception]]],
        *,
        size: int,
        delay: timedelta = ...,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    @overload
    def map_batch_async(
        self,
        fn: Callable[[list[T]], Awaitable[Sequence[U | Exception]]],
        *,
        size: int,
        delay: timedelta = ...,
        into: Callable[[T, U], V],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[V]: ...
    @overload
    def map_batch_async(
        self,
        fn: Callable[[list[T], R], Awaitable[Sequence[U | Exception]]],
        *,
        size: int,
        delay: timedelta = ...,
        using: Resource[R],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...
    @overload
    def map_batch_async(
        self,
        fn: Callable[[list[T], R], Awaitable[Sequence[U | Exception]]],
        *,
        size: int,
        delay: timedelta = ...,
        using: Resource[R],
        into: Callable[[T, U], V],
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[V]: ...
    def map_batch_async(
        self,
        fn: Callable[..., Awaitable[Sequence[Any]]],
        *,
        size: int,
        delay: timedelta = timedelta(0),
        using: Resource[Any] | None = None,
        into: Callable[[T, Any], Any] | None = None,
        name: str | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[Any]:
        """Call once for several values: ``fn(values)`` returns a list with one result for each, in their order.

        A call takes up to ``size`` values. A value waits for others for at most ``delay``; with zero a call takes the
        values that are available when it starts. An exception in place of a result fails this value only: retries,
        deadlines and ``on_error`` apply to each value, ``capacity`` counts calls. ``into`` is that of ``map_async``.
        """
        groups = group_size("map_batch_async", size, delay)
        return self._call(
            "map_batch_async", fn, using, name, options, CallResults.ONE, into, groups
        )

    def _call(
        self,
        method: str,
        fn: Callable[..., Any],
        using: Resource[Any] | None,
        name: str | None,
        options: CallOptions[Any],
        results: CallResults,
        into: Callable[..., Any] | None = None,
        groups: GroupSize | None = None,
    ) -> Stream[Any]:
        check_called(method, fn, with_resource=using is not None)
        options = self._with_policy_of_flow(options)
        settings = call_settings(
            method, fn, options, results, keyed=self._keyed, using=using, into=into, groups=groups
        )
        dead_letters = dead_letters_of(settings)
        return self._step(
            method,
            name,
            lambda: AsyncOperator(settings),
            watermarks=WatermarkUse.APPLIED_FOR_READERS,
            sides=dead_letters is not None,
            dead_letters=dead_letters,
            resource=using,
            calls=True,
            detail=call_detail(settings, using),
        )

    def _with_policy_of_flow(self, options: CallOptions[Any]) -> CallOptions[Any]:
        """Return ``options`` with the ``on_error`` of the flow if they have none."""
        if "on_error" in options:
            return options
        return {**options, "on_error": self._graph.default_policy(self._edge)}

    @abstractmethod
    def _step(
        self, what: str, name: str | None, operator: Callable[[], Operator], **more: Any
    ) -> Stream[Any]:
        """Add a step; ``more`` are keyword arguments of ``FlowGraph.add_step``."""
