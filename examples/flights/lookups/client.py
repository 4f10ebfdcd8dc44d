"""Client of the weather service: one HTTP request, and the causes of failed ones."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

import aflow as af
from flights.flight import Flight
from flights.weather import Observation

_DECODER: Final[msgspec.json.Decoder[Observation | None]] = msgspec.json.Decoder(Observation | None)

#: Cause of a rejected request: the service is at its capacity.
BUSY: Final = "429"


def session(url: str) -> aiohttp.ClientSession:
    """Return connections to the service at ``url`` without a limit: the step limits its calls."""
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))


async def look_up(flight: Flight, http: aiohttp.ClientSession) -> Observation | None:
    """Request the newest observation at the airport of ``flight`` up to its scheduled hour; None: there is none.

    Observations are hourly, so all flights of one hour have the same answer. Raises ``aiohttp.ClientError`` for any
    failure; each may be retried.
    """
    query = {"origin": flight.origin, "at": flight.time_hour.isoformat()}
    async with http.get("/weather", params=query) as response:
        response.raise_for_status()
        return _DECODER.decode(await response.read())


class CountedRetry:
    """Retry as ``retry`` does, and count the causes."""

    def __init__(self, retry: af.Retry) -> None:
        self._retry = retry
        self.causes: Counter[str] = Counter()

    def again(self, failed: af.calls.Attempt, random: float) -> timedelta | None:
        """Return the delay of the next attempt, as a ``RetryPolicy`` does."""
        delay = self._retry.again(failed, random)
        if delay is not None and failed.error is not None:
            self.causes[cause(failed.error)] += 1
        return delay


def cause(error: BaseException) -> str:
    """Return the cause of a failed request in a few words."""
    match error:
        case aiohttp.ClientResponseError(status=HTTPStatus.TOO_MANY_REQUESTS):
            return BUSY
        case aiohttp.ClientResponseError(status=status):
            return str(status)
        case aiohttp.ClientPayloadError():
            return "broken"
        case _:
            return type(error).__name__
