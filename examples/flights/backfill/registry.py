"""The registry of aircraft: an asynchronous lookup by tail number, with a latency.

It runs in the process that makes the calls, so each executor of Spark has one as the live job does. A call waits as
for a service in a network, without the network.
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

import aflow as af

#: Latencies in ms; a tail number always has the same.
_LATENCIES: Final = range(1, 6)

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of an aircraft."""

    maker: str
    model: str
    seats: int


class Registry:
    """Table of aircraft with an asynchronous lookup."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self._kinds = kinds

    async def kind(self, tail: str) -> Kind | None:
        """Return the kind of aircraft; None for a sixth of the tail numbers of 2013, which are not registered."""
        await asyncio.sleep(_LATENCIES[crc32(tail.encode()) % len(_LATENCIES)] / 1000)
        return self._kinds.get(tail)


@asynccontextmanager
async def open_registry(table: Path) -> AsyncGenerator[Registry]:
    """Open the registry of the file ``planes.csv``. Raises ``SourceError`` if it cannot be read."""
    yield Registry(_read(table))


def _read(table: Path) -> dict[str, Kind]:
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            return {
                row["tailnum"]: Kind(row["manufacturer"], row["model"], int(row["seats"]))
                for row in csv.DictReader(lines)
            }
    except (OSError, KeyError, ValueError) as exc:
        raise af.errors.SourceError(
            f"cannot read the registry of aircraft from {table}: {exc}"
        ) from exc
