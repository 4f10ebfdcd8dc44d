"""What kind of aircraft is a tail number? A service that one has to ask, and that takes its time.

It lives in the process that asks, so each of Spark's executors has one as the live job has: what it costs is waiting,
as with a service behind a network, without the network.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from aflow.errors import SourceError

#: How long answers take, in ms: one of so many whole ones, always the same for a tail number.
_LATENCIES: Final = range(1, 6)

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Kind:
    """An aircraft, as the registry knows it."""

    maker: str
    model: str
    seats: int


class Registry:
    """The table of aircraft, behind a door that opens after some ms."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self._kinds = kinds

    async def kind(self, tail: str) -> Kind | None:
        """The kind of aircraft; None for a sixth of the tail numbers of 2013, which the registry does not know."""
        await asyncio.sleep(_LATENCIES[crc32(tail.encode()) % len(_LATENCIES)] / 1000)
        return self._kinds.get(tail)


@asynccontextmanager
async def opened(table: Path) -> AsyncGenerator[Registry]:
    """The registry of the file ``planes.csv``. Raises ``SourceError`` if it cannot be read."""
    yield Registry(_read(table))


def _read(table: Path) -> dict[str, Kind]:
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            return {
                row["tailnum"]: Kind(row["manufacturer"], row["model"], int(row["seats"]))
                for row in csv.DictReader(lines)
            }
    except (OSError, KeyError, ValueError) as exc:
        raise SourceError(f"cannot read the registry of aircraft from {table}: {exc}") from exc
