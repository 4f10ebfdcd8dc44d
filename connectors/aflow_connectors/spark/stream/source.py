"""``SparkStream``: a streaming DataFrame as a source of ``stream``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.files.jsonl import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


class SparkStream(Generic[T]):
    """Rows of a streaming DataFrame: ``SparkStream(spark.readStream.format("kafka")…, of=Payment)``.

    Without ``of`` a row becomes a dict. ``of`` is a dataclass, NamedTuple, ``msgspec.Struct`` or TypedDict whose fields
    have the names of columns. The DataFrame may have transformations of Spark that keep no state: ``select``,
    ``where``, joins with tables.

    ``split`` is the column with the split of a row, each of which is in order: ``split="partition"`` of Kafka. Then the
    watermark is the least of all splits that have had records, as in a live job, instead of that of the newest record.
    Its values should be few, and stay the same. Raises ``FlowDefinitionError`` for a DataFrame that is not streaming.
    """

    @overload
    def __init__(
        self: SparkStream[JsonObject],
        frame: DataFrame,
        *,
        of: None = None,
        split: str | None = None,
    ) -> None: ...

    @overload
    def __init__(self, frame: DataFrame, *, of: type[T], split: str | None = None) -> None: ...

    def __init__(
        self, frame: DataFrame, *, of: type[T] | None = None, split: str | None = None
    ) -> None:
        # Checked on the type: an instance takes any attribute for a column.
        if not hasattr(type(frame), "sparkSession"):
            raise FlowDefinitionError(
                f"SparkStream needs a streaming DataFrame, spark.readStream.…, not {shown(cast(object, frame))}"
            )
        if not frame.isStreaming:
            raise FlowDefinitionError(
                "SparkStream needs a streaming DataFrame, spark.readStream.…, and this one is not: its rows are for "
                "backfill()"
            )
        if split is not None and not isinstance(cast(object, split), str):
            raise FlowDefinitionError(
                f"split= is the name of the column with the split of a row, not {shown(cast(object, split))}"
            )
        self.frame = frame
        #: Class of the records; None for dicts.
        self.of = of
        #: Column with the split of a row; None for a source without splits.
        self.split = split
