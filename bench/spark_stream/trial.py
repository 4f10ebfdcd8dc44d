"""Verified runs of programs over the same files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from bench.spark.windows import by_arithmetic, checksum
from bench.spark_stream.batches import CLOSING, Batches
from bench.spark_stream.programs import Program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Trial:
    """The files of some batches in ``folder``, and the results of Spark SQL over them as a table."""

    def __init__(self, session: SparkSession, folder: Path, batches: Batches) -> None:
        folder.mkdir(parents=True)
        self._session = session
        self._out = folder / "out"
        self._batches = batches
        self._files = batches.write(folder / "files")
        events = session.read.parquet(str(self._files)).where(f"who <> '{CLOSING}'")
        self._expected = checksum(by_arithmetic(events))

    def seconds(self, program: Program) -> list[float]:
        """Run ``program``, and return the seconds of each measured batch. Raises ``SystemExit`` for other results."""
        with self._folder() as out:
            seconds = program(self._session, self._batches, self._files, out)
            found = checksum(self._session.read.parquet(str(out / "sums")))
        if found != self._expected:
            raise SystemExit(
                f"spark_stream: {program.__name__} gave {found}, not {self._expected}; nothing was measured"
            )
        return seconds

    def unverified_seconds(self, program: Program) -> list[float]:
        """Run a ``program`` without results, and return the seconds of each measured batch."""
        with self._folder() as out:
            return program(self._session, self._batches, self._files, out)

    @contextmanager
    def _folder(self) -> Generator[Path]:
        """Make the folder of a run, and remove it."""
        self._out.mkdir()
        try:
            yield self._out
        finally:
            rmtree(self._out)
