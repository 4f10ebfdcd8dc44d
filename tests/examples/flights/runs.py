"""Runs of the pipeline without its command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

import aflow as af
from flights.files import Files
from flights.flight import Flight
from flights.pipeline import build
from flights.weather import Observation

MAX_DELAY = timedelta(hours=2)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Answers:
    """Files of results."""

    folder: Path

    def rows(self, name: str) -> Rows:
        """Return the rows of ``name``.jsonl in a stable order."""
        return in_order(list(self.each(name)))

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """Iterate over the rows of ``name``.jsonl in the order of the file."""
        return map(orjson.loads, self.lines(name))

    def lines(self, name: str) -> list[str]:
        """Return the lines of ``name``.jsonl."""
        return (self.folder / f"{name}.jsonl").read_text().splitlines()


#: Some cells of pandas are numbers of numpy.
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY


def answers(
    flights: af.Source[Flight],
    folder: Path,
    *,
    weather: af.Source[Observation] | None = None,
    parallelism: int = 1,
) -> Answers:
    """Run the pipeline from ``flights`` and ``weather`` (None: no weather) into the files of ``folder``."""
    observed = af.IterableSource[Observation](()) if weather is None else weather
    flow = build(flights, observed, Files(folder).sinks(), max_delay=MAX_DELAY)
    asyncio.run(flow.run(parallelism=parallelism))
    return Answers(folder)


def in_order(rows: Rows) -> Rows:
    """Return ``rows`` sorted by their contents."""
    return sorted(rows, key=lambda row: orjson.dumps(row, option=_SORTED))
