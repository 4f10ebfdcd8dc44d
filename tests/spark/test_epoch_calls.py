"""An epoch of a stream makes few calls of the JVM, since its plans reuse parts of those of earlier epochs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest

from aflow.backfill.fragments import Fragment
from aflow_connectors.spark import SparkStream, stream
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from tests.spark.stream_files import put_all, read_stream
from tests.spark.test_backfill import BIDS, UNTIL, Bid, build
from tests.spark.test_stream import SOON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class Calls:
    """Number of calls of the JVM that each fragment takes, in the order in which fragments run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_fragments: list[list[int]] = [[], []]
        self._thread: int | None = None
        self._count = 0
        connection: Any = import_module("py4j.clientserver").ClientServerConnection
        send, run = connection.send_command, FragmentRunner.run

        def counted(this: Any, *arguments: Any, **named: Any) -> Any:
            self._count += get_ident() == self._thread
            return send(this, *arguments, **named)

        def observed(runner: FragmentRunner, fragment: Fragment) -> None:
            self._thread, self._count = get_ident(), 0
            run(runner, fragment)
            self._thread = None
            self.of_fragments[fragment.index].append(self._count)

        monkeypatch.setattr(connection, "send_command", counted)
        monkeypatch.setattr(FragmentRunner, "run", observed)


async def test_later_epochs_make_fewer_calls_than_the_first_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(tmp_path / "bids", BIDS, 2)
    calls = Calls(monkeypatch)

    await stream(
        build,
        session=spark,
        sources={"bids": SparkStream(read_stream(spark, tmp_path / "bids"), of=Bid)},
        sinks={"sums": None},
        state=tmp_path / "state",
        every=SOON,
        until=UNTIL,
        savepoint=tmp_path / "savepoint",
    ).wait()

    of_source, of_keyed = calls.of_fragments
    assert len(of_source) >= 3  # two batches, and an epoch without rows
    assert max(of_source[:2]) <= 40
    # The columns by which rows are ordered, and the empty reports, are made once. The first epoch also looks up the
    # classes of the JVM that no earlier test has used.
    assert max(of_keyed[1:]) < of_keyed[0]
    assert max(of_keyed[1:]) <= 65
