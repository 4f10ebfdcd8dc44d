"""Runs the demo's pipeline over a replay, without the command around it."""

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
    """What stands in the files of results."""

    folder: Path

    def rows(self, name: str) -> Rows:
        """The rows of ``name``.jsonl, in an order that does not depend on the run."""
        return in_order(list(self.each(name)))

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of ``name``.jsonl as they come."""
        return map(orjson.loads, self.lines(name))

    def lines(self, name: str) -> list[str]:
        """The lines of ``name``.jsonl as they are."""
        return (self.folder / f"{name}.jsonl").read_text().splitlines()


#: pandas leaves numbers of numpy's in some cells.
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY


def answers(
    flights: af.Source[Flight],
    folder: Path,
    *,
    weather: af.Source[Observation] | None = None,
    parallelism: int = 1,
) -> Answers:
    """Run the pipeline from ``flights`` and ``weather``, which may be left out, into the files of ``folder``."""
    observed = af.IterableSource[Observation](()) if weather is None else weather
    flow = build(flights, observed, Files(folder).sinks(), max_delay=MAX_DELAY)
    asyncio.run(flow.run(parallelism=parallelism))
    return Answers(folder)


def in_order(rows: Rows) -> Rows:
    """``rows`` sorted by what stands in them."""
    return sorted(rows, key=lambda row: orjson.dumps(row, option=_SORTED))
