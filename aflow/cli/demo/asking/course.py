"""How many calls were under way in the course of time, beside how many the service could take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import aiohttp
import msgspec

from aflow.cli.demo.asking.apart import Apart
from aflow.cli.demo.asking.service import Counts
from aflow.errors import SourceError
from aflow.runtime.job import Job

_EVERY_S: Final = 0.05

#: From the lowest to the highest.
_BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at_s: float
    limit: int
    """How many calls the pipeline allowed itself."""
    capacity: int
    """How many the service worked on at once."""


class Course:
    """Samples of a run."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()

    async def watch(self, job: Job, service: Apart, step: str) -> None:
        """Take samples of ``job`` until cancelled. Raises ``SourceError`` if ``service`` is no more."""
        async with aiohttp.ClientSession(service.url) as http:
            while True:
                await asyncio.sleep(_EVERY_S)
                counts = await _counts(http)
                calls = job.metrics().steps[step].calls
                if calls is not None:
                    at = time.monotonic() - self._began
                    self.samples.append(Sample(at, calls.limit, counts.capacity))


async def _counts(http: aiohttp.ClientSession) -> Counts:
    try:
        async with http.get("/counts") as answer:
            return msgspec.json.decode(await answer.read(), type=Counts)
    except aiohttp.ClientError as exc:
        # Better the end than a year of flights that ask nobody, twenty times each.
        raise SourceError(f"the weather service has ended before the flights: {exc}") from exc


def drawn(values: Sequence[int], *, width: int, most: int) -> str:
    """``values`` as bars side by side, at most ``width``; where there are more values, each bar is the mean of some."""
    bars = min(width, len(values))
    cuts = [len(values) * bar // bars for bar in range(bars + 1)] if bars else []
    pieces = [values[start:end] for start, end in pairwise(cuts)]
    means = [sum(piece) / len(piece) for piece in pieces]
    return "".join(_BARS[min(len(_BARS) - 1, int(mean / most * len(_BARS)))] for mean in means)
