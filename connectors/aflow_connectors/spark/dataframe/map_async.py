"""Async calls for the rows of a DataFrame, on Spark's executors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from inspect import currentframe
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aflow.backfill.blocks import ExitBatch
from aflow.backfill.call_fragment import (
    Adaptive,
    Cache,
    CallOptions,
    CircuitBreaker,
    Fail,
    OnError,
    RateLimit,
    RetryPolicy,
    call_fragment,
)
from aflow.backfill.fragment_run import Partition, run_fragment
from aflow.backfill.fragments import Fragment
from aflow.backfill.portable_fragment import check_picklable, portable_copy
from aflow.model.resource import Resource
from aflow.model.time import Instant
from aflow_connectors.spark.environment import check_packages, use_this_python
from aflow_connectors.spark.executor.bridge import BridgeInput, BridgeOutput, bridged, check_bound
from aflow_connectors.spark.executor.functions import Payload, executor_function
from aflow_connectors.spark.executor.resource_pool import pooled_resources
from aflow_connectors.spark.executor.serialization import dumps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import ArrowSchema, DeclaredColumns, Schema


T = TypeVar("T")

#: Rows that are converted to records at once.
_ROWS_IN: Final = 1_000
#: Batches of results that may wait for Spark.
_CREDITS: Final = 2
#: Results that are converted to an Arrow batch at once, unless the first of them has waited for ``_LINGER`` seconds. A
#: task starts with the first number of both and doubles them with each batch, up to the second: its first results may
#: be all that the query needs (``limit(5)``), which Spark notices only when it receives them.
_ROWS_OUT: Final = 50, 4_000
_LINGER: Final = 0.001, 0.05


def map_async(
    df: DataFrame,
    fn: Callable[..., Awaitable[object]],
    *,
    schema: Schema,
    name: str | None = None,
    of: type[Any] | None = None,
    using: Resource[Any] | None = None,
    into: Callable[[Any, Any], object] | None = None,
    capacity: int | Adaptive = 100,
    ordered: bool = False,
    timeout: timedelta | None = None,
    attempt_timeout: timedelta | None = None,
    deadline: Callable[[Any], Instant] | None = None,
    retry: RetryPolicy | None = None,
    on_error: OnError[Any] | None = None,
    rate: RateLimit[Any] | None = None,
    breaker: CircuitBreaker | None = None,
    cache: Cache[Any, Any] | None = None,
    prefetch: int = 4,
) -> DataFrame:
    """Replace each row by the result of awaiting ``fn(row)``, or by ``into(row, result)``; ``capacity`` calls run
    concurrently.

    Calls stay in flight while the next batches of rows arrive, so a slow call delays no other. Nothing runs before an
    action on the result needs it, and each action repeats the calls: write the result once and read the written data.

    A row is passed as a dict, or as an instance of ``of`` (a dataclass, NamedTuple or ``msgspec.Struct``) by the names
    of the columns. A result is a dict or an instance of such a class, with exactly the columns of ``schema``: Spark's
    DDL (``"id long, score double"``), a ``StructType`` or a ``pyarrow.Schema``. Timestamps are aware datetimes in UTC.

    ``capacity`` and the other options are those of ``Stream.map_async`` and apply to each Spark task; executors run one
    task per core. Only ``ordered`` has another default, False, since rows of a DataFrame have no order; with True the
    rows of a partition keep their order. There is one output, so ``DeadLetter`` is refused. The resource that ``using``
    opens, once in each worker process, is the second argument of ``fn``. Up to ``prefetch`` thousand rows of a
    partition are read ahead of the calls.

    ``fn`` and all objects that it references are pickled. Raises ``FlowDefinitionError`` for objects that cannot be
    pickled and for invalid arguments. A failure in a task fails the Spark job with step, record and the frames of
    ``fn``.
    """
    check_packages()
    check_bound("prefetch", prefetch)
    options: CallOptions[Any] = {
        "capacity": capacity,
        "ordered": ordered,
        "timeout": timeout,
        "attempt_timeout": attempt_timeout,
        "deadline": deadline,
        "retry": retry,
        "on_error": Fail() if on_error is None else on_error,
        "rate": rate,
        "breaker": breaker,
        "cache": cache,
    }
    step = _name_of(fn) if name is None else name
    fragment = call_fragment(fn, options, name=step, using=using, into=into)
    return _enriched(df, step, fragment, schema, of, prefetch)


def _enriched(
    df: DataFrame,
    step: str,
    fragment: Fragment,
    schema: Schema,
    of: type[Any] | None,
    prefetch: int,
) -> DataFrame:
    from aflow_connectors.spark.dataframe.columns import RowsIn
    from aflow_connectors.spark.dataframe.schema import declared, spark_schema

    owner = f"step {step!r}"
    use_this_python(df.sparkSession)
    spark = spark_schema(schema, owner=owner)
    RowsIn(df.columns, of, owner=owner).check(declared(df.schema, owner=owner).arrow)
    check_picklable(fragment, dumps)
    enrichment = Enrichment(
        name=step,
        fragment=portable_copy(fragment),
        columns=tuple(df.columns),
        of=of,
        schema=declared(spark, owner=owner),
        prefetch=prefetch,
    )
    frame: Any = df  # mapInArrow has types of pyarrow, which has none
    enriched: DataFrame = frame.mapInArrow(
        executor_function(enrich, dumps(enrichment), what=owner), spark
    )
    return enriched


def schema_of(records: Sequence[object]) -> ArrowSchema:
    """Return the ``pyarrow.Schema`` of ``records``, sample results of ``fn``: for ``schema=`` of ``map_async``.

    Integers have 64 bits, timestamps microseconds, and decimals 38 digits, 18 of them after the point, or more if the
    records have more. Raises ``FlowDefinitionError`` for a column that is None in all records or has values of several
    types.
    """
    check_packages()
    from aflow_connectors.spark.dataframe.schema import inferred

    return inferred(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """Description of the step for executors."""

    name: str
    fragment: Fragment
    columns: Sequence[str]
    of: type[Any] | None
    schema: DeclaredColumns
    prefetch: int


def enrich(payload: Payload[Enrichment], batches: Iterator[Any]) -> Generator[Any, None, None]:
    """Yield Arrow batches of results for the Arrow batches of a partition."""
    from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut, pieces

    step = payload.content
    owner = f"step {step.name!r}"
    rows_in: RowsIn[Any] = RowsIn(step.columns, step.of, owner=owner)
    rows_out = RowsOut(step.schema, owner=owner)
    flush_each_batch()
    blocks = (rows_in.records(piece) for batch in batches for piece in pieces(batch, _ROWS_IN))
    with closing(
        bridged(blocks, partial(_call, payload), prefetch=step.prefetch, credits=_CREDITS)
    ) as results:
        for records in results:
            yield rows_out.batch(records)


async def _call(
    payload: Payload[Enrichment], inbox: BridgeInput[list[Any]], outbox: BridgeOutput[list[Any]]
) -> None:
    step = payload.content
    collected = CollectedResults(outbox)
    async with (
        pooled_resources(payload.digest, step.fragment, step.name) as resources,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(collected.send_lingering(), name="results that linger")
        await run_fragment(
            step.fragment,
            Partition(),
            inbox,
            collected,
            resources=resources,
            flow=step.name,
            together=1,  # `collected` gathers them, and knows when they have waited for long enough
        )
        collected.end()


class RecordsOutput(Protocol):
    """Takes batches of results; a ``BridgeOutput``."""

    async def put(self, result: list[Any]) -> None:
        """Pass ``result`` on; wait while there is no room."""
        ...


class CollectedResults:
    """Results that are buffered until an Arrow batch of them is worthwhile."""

    def __init__(self, outbox: RecordsOutput) -> None:
        self._outbox = outbox
        self._records: list[Any] = []
        #: Set when the first of the results has waited for long enough, and at the end.
        self._lingers = asyncio.Event()
        self._ended = False
        self._rows_out, self._linger = _ROWS_OUT[0], _LINGER[0]
        #: Keeps concurrent senders in order.
        self._sending = asyncio.Lock()

    def put(self, exit_batch: ExitBatch, /) -> Awaitable[None] | None:
        """Buffer results; wait while too many have not been fetched."""
        if not self._records:
            asyncio.get_running_loop().call_later(self._linger, self._lingers.set)
        self._records += exit_batch.batch.values
        return None if len(self._records) < self._rows_out else self._send()

    def end(self) -> None:
        """End the output. Cancelling instead would lose results that are being sent."""
        self._ended = True
        self._lingers.set()

    async def send_lingering(self) -> None:
        """Emit results that have waited for ``_LINGER`` seconds, and the remaining ones at the end."""
        while not self._ended:
            await self._lingers.wait()
            self._lingers.clear()
            await self._send()
        await self._send()  # results that came, with the end, while the others were being sent

    async def _send(self) -> None:
        async with self._sending:
            records, self._records = self._records, []
            if records:
                await self._outbox.put(records)
                self._rows_out = min(2 * self._rows_out, _ROWS_OUT[1])
                self._linger = min(2 * self._linger, _LINGER[1])


def _name_of(fn: object) -> str:
    inner: object = getattr(fn, "func", fn)  # of a functools.partial
    return str(getattr(inner, "__name__", type(fn).__name__))


def flush_each_batch() -> bool:
    """Make Spark's worker flush its output after each batch; call it in the generator that yields the batches.

    By default it flushes every 64 KiB (``spark.buffer.size``): until then ``limit(5)`` receives no results and the
    calls continue. Spark's workers can flush each batch, but only a cluster-wide setting turns that on, so this
    searches the call stack for their serializer. Returns False if there is none.
    """
    frame = currentframe()
    while frame is not None:
        if frame.f_code.co_name == "dump_stream":
            serializer: Any = frame.f_locals.get("self")  # private to Spark, and without types
            if hasattr(serializer, "_flush_per_batch"):
                serializer._flush_per_batch = True
                return True
        frame = frame.f_back
    return False
