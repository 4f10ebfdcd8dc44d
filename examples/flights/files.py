"""Files of the replay, all in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from aflow_connectors.files import CsvSource, JsonLinesSink
from flights.flight import MALFORMED, Flight
from flights.pipeline import Sinks
from flights.weather import Observation


@dataclass(frozen=True, slots=True)
class Files:
    """Files in ``folder``. A run replaces those of an earlier run."""

    folder: Path

    @property
    def replay(self) -> Path:
        """Input: flights in the order of departure."""
        return self.folder / "replay.csv"

    @property
    def weather(self) -> Path:
        """Input: folder with one file of weather for each airport."""
        return self.folder / "weather"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of a replay that is killed."""
        return self.folder / "checkpoints"

    def result(self, name: str) -> Path:
        """Return the file of a result. A run with checkpoints writes several, one for each checkpoint."""
        return self.folder / f"{name}.jsonl"

    def results_of(self, name: str) -> list[Path]:
        """Return all files of a result, one or several."""
        whole = self.result(name)
        parts = sorted(self.folder.glob(f"{name}-[0-9]*-[0-9]*.jsonl"))
        return [whole, *parts] if whole.exists() else parts

    def clear(self) -> None:
        """Remove results and checkpoints of an earlier run."""
        for path in (*self.folder.glob("*.jsonl"), *self.folder.glob(".*.jsonl.*")):
            path.unlink()
        rmtree(self.checkpoints, ignore_errors=True)

    def source(self) -> CsvSource[Flight]:
        """Return the source of the flights."""
        return CsvSource(self.replay, of=Flight, missing=("NA",), dead_letters=MALFORMED)

    def weather_source(self) -> CsvSource[Observation]:
        """Return the source of the weather, which reads all airports in parallel.

        One after the other, the second airport would be late by a year.
        """
        return CsvSource(
            self.weather,
            of=Observation,
            missing=("NA",),
            dead_letters=MALFORMED,
            concurrency=None,
        )

    def sinks(self) -> Sinks:
        """Return the sinks of all results."""
        return Sinks(
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
        """Return the sink of one result."""
        return JsonLinesSink(self.result(name), overwrite=True)
