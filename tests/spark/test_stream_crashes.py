"""A stream whose driver fails between any two steps, and begins again, writes each record once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.backfill.epochs import EpochStore
from aflow_connectors.files.output.lock_file import Claim
from aflow_connectors.files.output.pieces import FolderRecovery, Pieces
from aflow_connectors.spark import SparkSink, SparkStream, StreamQuery, stream
from aflow_connectors.spark.backfill import prepared_folder
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from aflow_connectors.spark.stream import epochs
from aflow_connectors.spark.stream.destinations import EpochFolder
from aflow_connectors.spark.stream.epochs import Epochs
from tests.spark.stream_files import put, put_all, read_stream
from tests.spark.test_backfill import BIDS, UNTIL, Bid, Sum, build
from tests.spark.test_stream import COLUMNS, SOON, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class Crash(Exception):
    """Stands for the death of the driver."""


#: Methods at which the driver dies: before or after the call of this number.
POINTS: list[tuple[type, str, str, int]] = [
    (FolderRecovery, "recover", "after", 1),
    (EpochStore, "commit", "before", 1),
    (Epochs, "run_without_rows", "after", 1),
    (EpochStore, "commit", "before", 2),
    (EpochStore, "commit", "after", 2),
    (FragmentRunner, "counts", "after", 2),
    (Pieces, "wait", "after", 2),
    (EpochFolder, "prepare", "after", 2),
    (EpochFolder, "publish", "before", 2),
    (Pieces, "commit", "before", 2),
    (Pieces, "commit", "after", 2),
    (EpochStore, "clean", "before", 2),
    (Epochs, "run_batch", "after", 2),
]
#: Files that arrive before the third point, at which Spark waits for rows, and after it.
FEW, FILES = 3, 60


def crashing(method: Callable[..., Any], when: str, calls: int) -> Callable[..., Any]:
    """Return ``method``, which dies in the call of this number."""
    left = [calls]

    def crash(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            raise Crash
        result = method(*arguments, **named)
        if left[0] == 0:
            raise Crash
        return result

    return crash


def kept(folder: Path, *, last: str = "") -> None:
    """Keep the folder."""


def closed(claim: Any) -> None:
    """Release the lock as the system does, which removes no file."""
    claim._file.close()


async def test_a_stream_continues_after_a_crash_at_any_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()
    size = -(-len(BIDS) // FILES)
    for number in range(FEW):
        put(tmp_path / "bids", number, BIDS[number * size : (number + 1) * size])
    sums = SparkSink[Sum](tmp_path / "sums", schema=COLUMNS)
    staging: list[str] = []

    def runner(session: Any, plan: Any, folder: str, *arguments: Any, **named: Any) -> Any:
        staging.append(folder)
        return FragmentRunner(session, plan, folder, *arguments, **named)

    monkeypatch.setattr(epochs, "FragmentRunner", runner)

    def query(files: int = 1) -> StreamQuery:
        frame = read_stream(spark, tmp_path / "bids", files=files)
        return stream(
            build,
            session=spark,
            sources={"bids": SparkStream(frame, of=Bid)},
            sinks={"sums": sums},
            state=tmp_path / "state",
            every=SOON,
            until=UNTIL,
            savepoint=tmp_path / "savepoint",
        )

    for owner, name, when, calls in POINTS:
        with monkeypatch.context() as patch:
            # A killed process removes nothing.
            patch.setattr(prepared_folder, "remove_folder", kept)
            patch.setattr(Claim, "release", closed)
            patch.setattr(owner, name, crashing(getattr(owner, name), when, calls))
            with pytest.raises(Crash):
                await query().wait()
        if name == "run_without_rows":
            put_all(tmp_path / "bids", BIDS, FILES)
    done = await query(FILES).wait()

    assert done.savepoint == tmp_path / "savepoint"
    await build(BIDS, sums).run(
        restore=tmp_path / "savepoint",
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / "jobs"),
    )
    assert written(tmp_path / "sums") == sorted(whole.values, key=repr)
    state = {path.name for path in (tmp_path / "state").iterdir()}
    assert state >= {"spark", "parts"}
    assert not (tmp_path / "state" / "staging").exists()
    assert list((tmp_path / "sums").glob(".stream-*")) == []
    # Tasks of a killed driver may go on, and write where it has let them.
    assert len(staging) == len(set(staging))
