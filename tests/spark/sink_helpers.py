"""Helpers for the tests of Spark's sinks: writers called as a job calls them, and a program that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aflow.connect import Batch, Committable, Sink, Writer, WriterContext
from aflow.model.codecs import PLAIN
from aflow_connectors.spark.tables.spark_table import SparkTable
from aflow_connectors.spark.tables.table_sink import SparkTableSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: The name of the sinks.
NAME = "out"


def numbers(*range_of: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(*range_of)]


@asynccontextmanager
async def opened(
    sink: Sink[Any], writers: int = 1, *, checkpoints: bool = True
) -> AsyncGenerator[list[Writer[Any]]]:
    async with AsyncExitStack() as open_writers:
        yield [
            await open_writers.enter_async_context(
                closing(
                    await sink.writer(
                        WriterContext(
                            NAME, subtask=number, parallelism=writers, checkpoints=checkpoints
                        )
                    )
                )
            )
            for number in range(writers)
        ]


@asynccontextmanager
async def closing(writer: Writer[Any]) -> AsyncGenerator[Writer[Any]]:
    try:
        yield writer
    finally:
        await writer.close()


async def put(writer: Writer[Any], records: Sequence[object]) -> None:
    writing = writer.write(Batch(list(records)))
    if writing is not None:
        await writing


async def prepared(writer: Writer[Any], checkpoint: int, records: Sequence[object]) -> Committable:
    """Committables for ``records``, after storage."""
    await put(writer, records)
    return PLAIN.decode(PLAIN.encode(await writer.prepare(checkpoint)))


# A program that writes from 2 writers into table argv[1], staged in argv[2], and is killed where argv[3] says. It tells
# what checkpoint 1 has stored. Its Spark is that of the test's process, which goes on, as a cluster would.


def killed_at(moment: str) -> Callable[[SparkTable, Sequence[Path], StructType], None]:
    """Replacement for ``SparkTable.replace``."""
    write_pieces = SparkTable.replace

    def replace(table: SparkTable, files: Sequence[Path], columns: StructType) -> None:
        if moment == "behind":
            write_pieces(table, files, columns)
        os.kill(os.getpid(), signal.SIGKILL)

    return replace


def attached_session() -> SparkSession:
    """Session of the process whose gateway is in the environment."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = import_module("pyspark.java_gateway").launch_gateway()
    jvm = gateway.jvm.org.apache.spark
    context = jvm.api.java.JavaSparkContext.fromSparkContext(jvm.SparkContext.getOrCreate())
    return SparkSession(SparkContext(gateway=gateway, jsc=context))


async def write(table: str, staging: str) -> None:
    sink = SparkTableSink[Any](table, session=attached_session(), staging=staging, schema="n long")
    await sink.recover(NAME, [])
    async with opened(sink, 2) as writers:
        committables = [
            await prepared(writer, 1, numbers(first, 1000, 2))
            for first, writer in enumerate(writers)
        ]
        print(json.dumps(committables), flush=True)
        for writer, committable in zip(writers, committables, strict=True):
            await writer.commit(committable)


if __name__ == "__main__":
    with patch.object(SparkTable, "replace", killed_at(sys.argv[3])):
        asyncio.run(write(sys.argv[1], sys.argv[2]))
