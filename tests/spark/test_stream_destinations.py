"""The results of an epoch: functions that fail, and output whose sink has changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest

from aflow.errors import FlowDefinitionError, SinkError
from aflow_connectors.spark import EachEpoch, Results, SparkSink
from aflow_connectors.spark.stream.destinations import EpochCall, EpochFolder, publish_former

pa: Any = pyarrow  # which has no types
SCHEMA: Any = pa.schema([("n", pa.int64())])


async def upsert(table: object, epoch: int = 0) -> None:
    """Would never be awaited."""


class Upsert:
    async def __call__(self, table: object, epoch: int = 0) -> None:
        """Would never be awaited."""


@pytest.mark.parametrize("function", [upsert, Upsert()])
def test_a_coroutine_function_is_refused_as_a_destination(function: Any) -> None:
    for destination in (EachEpoch, Results):
        with pytest.raises(FlowDefinitionError, match="is a coroutine function"):
            destination(function)


def test_an_error_of_a_function_names_its_sink_and_the_epoch() -> None:
    def fail(table: object, epoch: int) -> None:
        raise ConnectionError("the database is away")

    with pytest.raises(SinkError, match=r"sink 'totals': the function .* for epoch 3: .* is away"):
        EpochCall(EachEpoch(fail), "totals").call(cast("Any", None), 3)


def test_a_function_whose_result_would_be_awaited_fails() -> None:
    destination = EpochCall(EachEpoch(lambda table, epoch: upsert(table)), "totals")

    with pytest.raises(SinkError, match="returned an awaitable"):
        destination.call(cast("Any", None), 3)


def test_committed_output_is_published_though_the_sink_writes_elsewhere_now(
    tmp_path: Path,
) -> None:
    folder = EpochFolder(SparkSink[Any](tmp_path / "totals", schema=SCHEMA), "totals")
    folder.recover([])
    written = Path(folder.target.folder) / "records.parquet"
    written.write_bytes(b"records")
    prepared = folder.prepare(2, [written.name])
    folder.close()  # killed before it was published
    assert not shown(tmp_path / "totals")

    publish_former("totals", prepared)
    publish_former("totals", prepared)

    assert [one.read_bytes() for one in shown(tmp_path / "totals")] == [b"records"]


def shown(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if not one.name.startswith(".")]


def test_files_of_attempts_that_do_not_count_are_removed_after_each_epoch(tmp_path: Path) -> None:
    folder = EpochFolder(SparkSink[Any](tmp_path / "totals", schema=SCHEMA), "totals")
    folder.recover([])
    hidden = Path(folder.target.folder)
    for name in ("counts.parquet", "killed.parquet"):
        (hidden / name).write_bytes(b"records")

    folder.prepare(2, ["counts.parquet"])
    folder.publish()

    assert [one.name for one in hidden.iterdir()] == [".claim"]
    assert len(shown(tmp_path / "totals")) == 1
    folder.close()
    assert not hidden.exists()
