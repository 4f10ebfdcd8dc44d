"""The methods that call an async function for each record, for streams with keys and without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from aflow.api.call_detail import call_detail, dead_letters_of
from aflow.machines.calls.grouping import GroupSize
from aflow.machines.calls.settings import CallResults
from aflow.model.resource import Resource
from aflow.operators.base import Operator
from aflow.operators.calls.fewer import calling_operator
from aflow.runtime.calls.checks import check_called
from aflow.runtime.calls.options import CallOptions, call_settings, group_size

if TYPE_CHECKING:
    from aflow.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
R = TypeVar("R")


class AsyncCallMethods(ABC, Generic[T]):
    """Calls are made at once for as many records as ``capacity`` allows; no checkpoint waits for them or loses any.

    On a ``KeyedStream`` the calls of a key are made one after the other, in the order of the stream, and calls of other
    keys meanwhile. After a crash the calls whose results had not left are made again, before all others. With
    ``using=`` a function gets what the ``Resource`` has opened, an HTTP session say, as its second argument. What else
    may be said to all methods, by keyword, is in ``CallOptions``.
    """

    _keyed = False

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
        """Replace each value by what awaiting ``fn(value)`` gives, or by ``into(value, result)`` to keep both.

        ``into`` is called, not awaited, as the result leaves. What it raises fails the job, whatever ``on_error`` says.
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
        """Replace each value by all values of the list that ``fn(value)`` gives, or that it yields as a generator.

        They leave together, when all are there, with the timestamp of the value.
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
        """Keep the values for which awaiting ``keep(value)`` gives something true."""
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
        """Call once for several values: ``fn(values)`` gives a list with one result for each, in their order.

        A call takes up to ``size`` values. A value waits for others for ``delay`` at most; zero takes what is there
        when a call may begin. An exception in place of a result says that this value alone has failed: retries,
        deadlines and ``on_error`` are for each value, ``capacity`` counts calls. ``into`` is that of ``map_async``.
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
        settings = call_settings(
            method, fn, options, results, keyed=self._keyed, using=using, into=into, groups=groups
        )
        dead_letters = dead_letters_of(settings)
        return self._calling_step(
            method,
            name,
            lambda: calling_operator(settings),
            sides=dead_letters is not None,
            dead_letters=dead_letters,
            resource=using,
            detail=call_detail(settings, using),
        )

    @abstractmethod
    def _calling_step(
        self, what: str, name: str | None, operator: Callable[[], Operator], **more: Any
    ) -> Stream[Any]:
        """Add a step; ``more`` is for ``FlowGraph.add_step``."""
