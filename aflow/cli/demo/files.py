"""The files that the demo reads and writes, all in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from aflow.cli.demo.flights import MALFORMED, Flight
from aflow.cli.demo.pipeline import Results
from aflow.cli.demo.weather import Observation
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
    def weather(self) -> Path:
        """The other input: a folder with the weather at each airport."""
        return self.folder / "weather"

    @property
    def checkpoints(self) -> Path:
        """Where a run that takes checkpoints keeps them."""
        return self.folder / "checkpoints"

    def result(self, name: str) -> Path:
        """The file of a stream of results; a run with checkpoints writes several, one for each of them."""
        return self.folder / f"{name}.jsonl"

    def results_of(self, name: str) -> list[Path]:
        """All files of a stream of results, whichever way they were written."""
        whole = self.result(name)
        pieces = sorted(self.folder.glob(f"{name}-[0-9]*-[0-9]*.jsonl"))
        return [whole, *pieces] if whole.exists() else pieces

    def clear(self) -> None:
        """Remove results and checkpoints of an earlier run."""
        for path in (*self.folder.glob("*.jsonl"), *self.folder.glob(".*.jsonl.*")):
            path.unlink()
        rmtree(self.checkpoints, ignore_errors=True)

    def source(self) -> CsvSource[Flight]:
        """Reads the replay."""
        return CsvSource(self.replay, of=Flight, missing=("NA",), dead_letters=MALFORMED)

    def weather_source(self) -> CsvSource[Observation]:
        """Reads the weather, all airports side by side: one after the other, the second would be a year late."""
        return CsvSource(
            self.weather,
            of=Observation,
            missing=("NA",),
            dead_letters=MALFORMED,
            concurrency=None,
        )

    def results(self) -> Results:
        """Sinks for all results, each with the name of its stream."""
        return Results(
            hourly=self.sink("hourly"),
            daily=self.sink("daily"),
            late_hourly=self.sink("late-hourly"),
            late_daily=self.sink("late-daily"),
            cancelled=self.sink("cancelled"),
            in_weather=self.sink("in-weather"),
            by_wind=self.sink("by-wind"),
            aircraft_days=self.sink("aircraft-days"),
            around_storms=self.sink("around-storms"),
            no_tail=self.sink("no-tail"),
            doubtful=self.sink("doubtful"),
            malformed=self.sink("malformed"),
        )

    def sink(self, name: str) -> JsonLinesSink[Any]:
        """Writes the file of a stream of results."""
        return JsonLinesSink(self.result(name), overwrite=True)
