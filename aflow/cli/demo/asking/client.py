"""The side of the service that asks: one question over HTTP, and what went wrong when there was no answer."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

import aflow as af
from aflow.cli.demo.flights import Flight
from aflow.cli.demo.weather import Observation

_DECODER: Final[msgspec.json.Decoder[Observation | None]] = msgspec.json.Decoder(Observation | None)

#: The cause of what was refused since too many asked at once.
BUSY: Final = "429"


def session(url: str) -> aiohttp.ClientSession:
    """Connections to the service at ``url``, as many as are needed: the step says how many calls are made at once."""
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))


async def ask(flight: Flight, http: aiohttp.ClientSession) -> Observation | None:
    """The newest observation at the airport of ``flight`` up to the hour in which it is to leave; None: there is none.

    Not up to the minute: observations are of full hours, so the answer is the same for all flights of that hour.
    Raises ``aiohttp.ClientError`` for what is no answer, all of which are worth another try.
    """
    question = {"origin": flight.origin, "at": flight.time_hour.isoformat()}
    async with http.get("/weather", params=question) as answer:
        answer.raise_for_status()
        return _DECODER.decode(await answer.read())


class CountedRetry:
    """Retries as ``retry`` says, and counts why."""

    def __init__(self, retry: af.Retry) -> None:
        self._retry = retry
        self.causes: Counter[str] = Counter()

    def again(self, failed: af.Attempt, chance: float) -> timedelta | None:
        """A ``RetryPolicy``."""
        delay = self._retry.again(failed, chance)
        if delay is not None and failed.error is not None:
            self.causes[cause(failed.error)] += 1
        return delay


def cause(error: BaseException) -> str:
    """What went wrong, in a few words."""
    match error:
        case aiohttp.ClientResponseError(status=HTTPStatus.TOO_MANY_REQUESTS):
            return BUSY
        case aiohttp.ClientResponseError(status=status):
            return str(status)
        case aiohttp.ClientPayloadError():
            return "broken"
        case _:
            return type(error).__name__
