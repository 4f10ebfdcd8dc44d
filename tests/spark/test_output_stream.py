"""The output of Spark's worker is flushed after each batch, which ``limit`` needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.map_async import flush_each_batch


class Stream:
    """Target of Spark's serializer."""

    closed = False

    def __init__(self) -> None:
        self.flushed = 0

    def write(self, data: Any) -> int:
        return len(memoryview(data))

    def flush(self) -> None:
        self.flushed += 1


def batches(begin: Callable[[], object]) -> Iterator[Any]:
    begin()
    for _ in range(3):
        yield pa.record_batch({"n": [1]})


@pytest.mark.parametrize(("begin", "flushed"), [(flush_each_batch, True), (int, False)])
def test_each_batch_is_flushed_where_it_was_asked_for(
    begin: Callable[[], object], flushed: bool
) -> None:
    stream = Stream()
    serializer: Any = ArrowStreamSerializer(write_start_stream=True)

    serializer.dump_stream(batches(begin), stream)

    assert (stream.flushed >= 3) == flushed


def test_outside_of_a_worker_there_is_nothing_to_flush() -> None:
    assert not flush_each_batch()
