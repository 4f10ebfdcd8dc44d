"""The table of weather as the service has it: looked up with a bisection, where the pipeline joins streams."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from aflow.cli.demo.weather import Observation, plausible


@dataclass(slots=True)
class _Airport:
    """Observations in the order of time, and when they were made."""

    hours: list[datetime] = field(default_factory=list[datetime])
    observations: list[Observation] = field(default_factory=list[Observation])


class Observed:
    """What was observed at each airport."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._airports: dict[str, _Airport] = {}
        for one in sorted(observations, key=lambda observation: observation.time_hour):
            there = self._airports.setdefault(one.origin, _Airport())
            there.hours.append(one.time_hour)
            there.observations.append(one)

    def at(self, airport: str, moment: datetime) -> Observation | None:
        """The newest observation at or before ``moment``, however old; None if there is none."""
        there = self._airports.get(airport)
        before = bisect_right(there.hours, moment) if there else 0
        return there.observations[before - 1] if there and before else None


def read_observed(folder: Path) -> Observed:
    """The files of ``folder``, as ``data.write_weather`` writes them, without what cannot be read or cannot be."""
    return Observed(one for path in sorted(folder.glob("*.csv")) for one in _read(path))


def _read(path: Path) -> Iterable[Observation]:
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            cells = {name: None if cell == "NA" else cell for name, cell in row.items()}
            try:
                yield plausible(msgspec.convert(cells, Observation, strict=False))
            except msgspec.ValidationError:
                continue  # the pipeline, which reads the same files, has it among the malformed lines
