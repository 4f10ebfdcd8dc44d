"""A load for a service over HTTP: a flow of this module sends the requests, and is measured as any other.

It is meant for a process of its own, which ``aflow bench http`` is: a load on the event loop of the service would take
its processor time. Each request is an async call; the most in flight is ``in_flight``, and requests beyond it wait with
their intended times running.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import cycle
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from aflow.api.flow import Flow
from aflow.bench.load_run import run
from aflow.bench.record_supply import Records, SourceLoad
from aflow.bench.result import BenchResult, Finding, LoadSample, Severity
from aflow.errors import FlowDefinitionError
from aflow.model.distribution import install_command
from aflow.model.resource import Resource
from aflow.runtime.builtin_connectors.collect_sink import CollectSink

#: Names of the ends of the flow.
REQUESTS: Final = "requests"
RESPONSES: Final = "responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """The service, and the form of requests. Raises ``FlowDefinitionError`` for addresses that are none."""

    urls: Sequence[str]
    """Requests are sent to them in turn. One that is listed twice gets twice as many."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: timedelta = timedelta(seconds=30)
    """From the start of a request to the end of its response."""
    in_flight: int = 1000

    def __post_init__(self) -> None:
        if isinstance(self.urls, str) or not self.urls:
            raise FlowDefinitionError(
                f"HttpTarget.urls takes a list of addresses, not {self.urls!r}"
            )
        for url in self.urls:
            if not _is_address(url):
                raise FlowDefinitionError(
                    f"{url!r} is no address; write http://127.0.0.1:8000/score, for example"
                )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is no number
        return False


def _shown(url: str) -> str:
    """Return ``url`` without user, query and fragment, which may have secrets: it is in reports."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def http_load(
    target: HttpTarget,
    bodies: Records | SourceLoad,
    *,
    rate: float | None = None,
    duration: timedelta = timedelta(seconds=30),
    warmup: timedelta | None = None,
    on_sample: Callable[[LoadSample], None] | None = None,
    stop: asyncio.Event | None = None,
) -> BenchResult:
    """Send requests with ``bodies`` and measure the time from the intended time to the end of the response.

    A body is bytes or text, or a value that is encoded as JSON; None sends none. Responses with a status from 400 on,
    and requests that fail or time out, are errors in the findings. Needs aiohttp. Raises as ``run`` does.
    """
    outcomes: Counter[tuple[str, str]] = Counter()
    result = await run(
        _requests(target, outcomes),
        {REQUESTS: bodies},
        rate=rate,
        duration=duration,
        warmup=warmup,
        on_sample=on_sample,
        stop=stop,
    )
    return replace(result, findings=[*_failed(outcomes), *result.findings])


def _requests(target: HttpTarget, outcomes: Counter[tuple[str, str]]) -> Flow:
    """Return the flow that sends the requests. It counts ``outcomes`` by the shown address, '' for a single one."""
    try:
        import aiohttp
    except ModuleNotFoundError as exc:
        raise ImportError(
            f"a load over HTTP needs aiohttp, which is in the extra 'http': {install_command('bench', 'http')}"
        ) from exc

    def open_session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=target.in_flight),
            timeout=aiohttp.ClientTimeout(total=target.timeout.total_seconds()),
            headers=dict(target.headers),
        )

    several = len(target.urls) > 1
    turns = cycle([(url, _shown(url) if several else "") for url in target.urls])

    async def request(body: Any, session: aiohttp.ClientSession) -> str:
        url, place = next(turns)
        data, kind = _encoded(body)
        headers = {} if kind is None else {"Content-Type": kind}
        headers.update(target.headers)
        try:
            async with session.request(target.method, url, data=data, headers=headers) as response:
                await response.read()
                outcome = str(response.status)
        except (aiohttp.ClientError, TimeoutError) as exc:
            outcome = type(exc).__name__
        outcomes[outcome, place] += 1
        return outcome

    others = f" and {len(target.urls) - 1} more" if several else ""
    flow = Flow(f"{target.method} {_shown(target.urls[0])}{others}")
    flow.source([None], name=REQUESTS).map_async(
        request,
        capacity=target.in_flight,
        ordered=False,
        using=Resource(open_session),
        name="request",
    ).to(CollectSink[str](), name=RESPONSES)
    return flow


def _encoded(body: object) -> tuple[bytes | None, str | None]:
    """Return the bytes of a body, and their content type."""
    if body is None:
        return None, None
    if isinstance(body, bytes):
        return body, None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return orjson.dumps(body), "application/json"


def _failed(outcomes: Counter[tuple[str, str]]) -> list[Finding]:
    """Return an error for each kind of failed request of each address. The counts are those of the whole run."""
    total = outcomes.total()
    return [
        Finding(
            severity=Severity.ERROR,
            text=f"{count:,} of {total:,} requests failed: "
            + (f"status {outcome}" if outcome.isdigit() else outcome)
            + (f" at {place}" if place else ""),
        )
        for (outcome, place), count in outcomes.most_common()
        if not (outcome.isdigit() and int(outcome) < 400)
    ]
