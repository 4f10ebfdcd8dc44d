"""The rate limit of a source.

A chunk is read, waits for its units, and is queued then. So the limit counts records that the pipeline gets, whatever
the connector does, and the units of all splits and subtasks of a source are those of one token bucket. While a chunk
waits, its split is not read: that is backpressure, as if the pipeline were slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aflow.machines.calls.rate import RateLimit, TokenBucket


class ReadRate:
    """Delays the chunks of all readers of a source."""

    def __init__(self, settings: RateLimit[Any], bucket: TokenBucket) -> None:
        self._settings = settings
        self._bucket = bucket

    @property
    def most(self) -> int:
        """The records of a read, at most: more would wait for a full bucket. Costs are known after the read only."""
        return self._settings.units_at_once if self._settings.cost is None else 1

    async def wait(self, taker: tuple[str, int, str], values: Sequence[Any]) -> None:
        """Return once the bucket has given the units of ``values`` to ``taker``: source, subtask and split.

        Raises what ``RateLimit.cost_of`` does.
        """
        settings = self._settings
        cost = float(len(values)) if settings.cost is None else sum(map(settings.cost_of, values))
        now = asyncio.get_running_loop().time
        try:
            delay = self._bucket.take(taker, now(), cost)
            while delay > 0:
                await asyncio.sleep(delay)
                delay = self._bucket.take(taker, now(), cost)
        finally:
            self._bucket.leave(taker)
