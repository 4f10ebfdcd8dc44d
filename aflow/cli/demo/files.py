"""The files that the demo reads and writes, all in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aflow.cli.demo.pipeline import MALFORMED, Flight, Results
from aflow_connectors.files import CsvSource, JsonLinesSink


@dataclass(frozen=True, slots=True)
class Files:
    """Files below ``folder``; those of an earlier run are replaced."""

    folder: Path

    @property
    def replay(self) -> Path:
        """The input: flights in order of departure."""
        return self.folder / "replay.csv"

    @property
    def hourly(self) -> Path:
        """Delays by airport and hour."""
        return self.folder / "hourly.jsonl"

    @property
    def daily(self) -> Path:
        """Delays by carrier and day."""
        return self.folder / "daily.jsonl"

    def source(self) -> CsvSource[Flight]:
        """Reads the replay."""
        return CsvSource(self.replay, of=Flight, missing=("NA",), dead_letters=MALFORMED)

    def results(self) -> Results:
        """Sinks for all results; ``late-hourly.jsonl`` and so on where nobody needs the path."""
        return Results(
            hourly=JsonLinesSink(self.hourly, overwrite=True),
            daily=JsonLinesSink(self.daily, overwrite=True),
            late_hourly=JsonLinesSink(self.folder / "late-hourly.jsonl", overwrite=True),
            late_daily=JsonLinesSink(self.folder / "late-daily.jsonl", overwrite=True),
            cancelled=JsonLinesSink(self.folder / "cancelled.jsonl", overwrite=True),
            malformed=JsonLinesSink(self.folder / "malformed.jsonl", overwrite=True),
        )
