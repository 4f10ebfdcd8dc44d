"""Destinations of the records of a stream, as users name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aflow_connectors.spark.backfill.results import check_blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import Schema
    from aflow_connectors.spark.tables.folder_sink import SparkSink

EpochFunction: TypeAlias = "Callable[[DataFrame, int], object]"
"""Takes the rows of an epoch and its number; called again with the same number after a crash."""


@dataclass(frozen=True, slots=True)
class EachEpoch:
    """A function that writes the records of a sink, by epoch: ``EachEpoch(upsert, schema="card string, n long")``.

    ``call`` takes the DataFrame and the number of the epoch, in a thread other than that of the event loop; it blocks,
    and is no coroutine function. It is not called for an epoch without records. If the driver is killed before the
    epoch is committed, it is called again with the same number, so let it replace what it has written for that number.
    The repeated epoch may have other records, or none: so with a ``schema`` the first epoch of a query is passed even
    if it has no records. ``schema`` is a DDL string, a ``StructType`` or a ``pyarrow.Schema``; without it the columns
    are those of the first records of each epoch.
    """

    call: EpochFunction
    schema: Schema | None = None

    def __post_init__(self) -> None:
        check_blocking(
            self.call, "EachEpoch takes a function of the DataFrame and the number of an epoch"
        )


StreamTarget: TypeAlias = "SparkSink[Any] | EachEpoch | None"
"""Destination of the records of a sink; None to drop them."""
