"""A pipeline, from its sources to the call that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any, TypeVar, Unpack, overload

from aflow.api.stream import Stream
from aflow.connect import Source
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.graph.plan import Plan, make_plan
from aflow.machines.calls.on_error import (
    FAIL,
    DeadLetter,
    Drop,
    Fail,
    FailedRecord,
    Fallback,
    check_on_error,
)
from aflow.machines.calls.rate import RateLimit
from aflow.runtime.builtin_connectors.async_iterable_source import AsyncIterableSource
from aflow.runtime.builtin_connectors.iterable_source import IterableSource
from aflow.runtime.builtin_connectors.thread_source import ThreadSource
from aflow.runtime.job import Job
from aflow.runtime.options import Options
from aflow.runtime.start_options import StartOptions, check_start_names, recovery_of

T = TypeVar("T")


class Flow:
    """The description of a pipeline; nothing runs before ``run`` or ``start``.

    >>> import asyncio, aflow as af
    >>> flow, doubled = af.Flow("double"), af.CollectSink[int]()
    >>> flow.source([1, 2, 3]).map(lambda n: n * 2).to(doubled)
    >>> asyncio.run(flow.run())
    >>> doubled.values
    [2, 4, 6]
    """

    def __init__(
        self, name: str, *, on_error: Fail | Drop | DeadLetter[object] | None = None
    ) -> None:
        """``on_error`` is the policy of all steps that take one and have none: ``Fail()`` by default.

        With ``DeadLetter(tag)``, ``dead_letters`` returns the failed records of all steps. Raises
        ``FlowDefinitionError``, also for a ``Fallback``: its result depends on the step.
        """
        if on_error is not None:
            check_on_error(on_error)
        if isinstance(on_error, Fallback):
            raise FlowDefinitionError(
                "Flow(on_error=Fallback(…)): the result of a fallback depends on the step; give it to the step, "
                "and Fail(), Drop() or DeadLetter(tag) to the flow"
            )
        self.graph = FlowGraph(name, FAIL if on_error is None else on_error)

    @property
    def name(self) -> str:
        """The flow's name, which also names its job."""
        return self.graph.name

    @overload
    def source(
        self,
        source: Source[T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        rate: RateLimit[T] | None = None,
    ) -> Stream[T]: ...

    @overload
    def source(
        self,
        source: Iterable[T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        rate: RateLimit[T] | None = None,
    ) -> Stream[T]: ...

    @overload
    def source(
        self,
        source: AsyncIterable[T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        rate: RateLimit[T] | None = None,
    ) -> Stream[T]: ...

    def source(
        self,
        source: Source[T] | Iterable[T] | AsyncIterable[T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        rate: RateLimit[T] | None = None,
    ) -> Stream[T]:
        """Begin a stream with the records of ``source``.

        An iterable is wrapped in an ``IterableSource``, an async iterable in an ``AsyncIterableSource``. Wrap a
        blocking iterator in a ``ThreadSource``, which does not block the event loop. ``parallelism`` is the number of
        subtasks that read, by default that of the job; a source that cannot be divided has one.

        ``rate`` limits the records that all of them emit together; meanwhile the source is not read.
        """
        made = _as_source(source)
        self._check_unread(made)
        node = self.graph.add_source(made, name, parallelism, rate)
        return Stream(self.graph, Edge(node))

    def dead_letters(self) -> Stream[FailedRecord[object]]:
        """Return the failed records of all steps, for a flow with ``on_error=DeadLetter(tag)``.

        Call it after all other steps. Steps that read the stream have no dead letters: they fail the job, unless they
        have an ``on_error`` of their own. Raises ``FlowDefinitionError``.
        """
        return Stream(self.graph, Edge(self.graph.add_dead_letters()))

    def _check_unread(self, source: Source[T]) -> None:
        iterator = _iterator_of(source)
        if iterator is None:
            return
        for node in self.graph:
            if node.source is not None and _iterator_of(node.source) is iterator:
                raise FlowDefinitionError(
                    f"source {node.name!r} already reads {shown(iterator)}, and an iterator yields each record "
                    f"only once; use that stream several times, or give each source an iterator of its own"
                )

    def plan(self, *, parallelism: int = 1, options: Options | None = None) -> Plan:
        """Return the plan of a job of this flow. Raises ``FlowDefinitionError`` as ``run`` does."""
        chosen = options or Options()
        return make_plan(
            self.graph,
            parallelism=parallelism,
            key_groups=chosen.key_groups,
            chaining=chosen.chaining,
        )

    def start(self, **options: Unpack[StartOptions]) -> Job:
        """Return a job of this flow, for ``async with flow.start() as job:``; it runs on the running event loop.

        ``parallelism`` (1) is the number of subtasks of each keyed step, and of each source that can be divided;
        ``options`` are settings of the run. With ``checkpointing`` the job takes checkpoints and continues from them:
        from the one that ``restore`` names, ``"latest"``, ``"fresh"`` or a path, and after a failure as ``restart``
        allows. ``allow_dropped_state=True`` accepts stored state without a place in the pipeline. ``on_event`` is
        called with the outcome of each checkpoint and with each restart and its cause.

        Nothing runs before the ``async with``: a job that is collected without it emits a ``RuntimeWarning``.

        Raises ``FlowDefinitionError`` if the pipeline is incomplete or an argument is invalid.
        """
        check_start_names("start", options)
        chosen = options.get("options") or Options()
        plan = self.plan(parallelism=options.get("parallelism", 1), options=chosen)
        return Job(plan, chosen, recovery_of(options))

    async def run(self, **options: Unpack[StartOptions]) -> None:
        """Run until all sources have ended and the sinks have flushed. Cancel it to end the job at once.

        The arguments are those of ``start``. Raises the error that failed the job: ``OperatorError`` for a user
        function, ``SourceError`` and ``SinkError`` for connectors, ``CheckpointError`` and ``RestoreError`` for
        storage.
        """
        check_start_names("run", options)
        async with self.start(**options) as job:
            await job.wait()


def _iterator_of(source: Source[Any]) -> object:
    """Return the iterator of a source that can be read only once; None if it can be read again."""
    match source:
        case IterableSource() | ThreadSource() | AsyncIterableSource():
            return source.iterator
        case _:
            return None


def _as_source(source: Source[T] | Iterable[T] | AsyncIterable[T]) -> Source[T]:
    if isinstance(source, Source):
        return source
    if isinstance(source, AsyncIterable):
        return AsyncIterableSource(source)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return IterableSource(source)
    hint = "; call it to get one" if callable(source) else ""
    raise FlowDefinitionError(
        f"source() takes an aflow.Source, an iterable or an async iterable, not {shown(source)}{hint}"
    )
