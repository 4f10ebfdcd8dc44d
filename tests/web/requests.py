"""A small pipeline, and requests to the ASGI application of its job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import aflow as af
import aflow.web
from aflow.web import Jobs

TOKEN = "secret-of-the-tests"
WRITE = {"authorization": f"Bearer {TOKEN}"}

#: A record that fails the step ``check`` once.
FAIL = "fail"


def visits(
    source: af.Source[str],
    *,
    failures: int = 1,
    name: str = "visits",
    sink: af.Sink[int] | None = None,
) -> af.Flow:
    """Count pages; the first ``failures`` records ``FAIL`` raise."""
    left = [failures]

    def check(page: str) -> str:
        if page == FAIL and left[0]:
            left[0] -= 1
            raise ValueError("as planned")
        return page

    flow = af.Flow(name)
    pages = flow.source(source, name="pages").map(check, name="check")
    keyed = pages.key_by(lambda page: page, name="page")
    keyed.fold(int, lambda count, _: count + 1, name="count").to(
        sink or af.CollectSink[int](), name="out"
    )
    return flow


def restarts() -> af.restart.FixedDelay:
    return af.restart.FixedDelay(3, timedelta(seconds=1))


@asynccontextmanager
async def requesting(
    jobs: Jobs, *, token: str | None = TOKEN, read_token: str | None = None
) -> AsyncGenerator[httpx.AsyncClient]:
    application = aflow.web.app(jobs, token=token, read_token=read_token)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://test"
    ) as client:
        yield client


async def error(response: httpx.Response) -> tuple[int, str, str]:
    """Return the status, code and message of an error. Fails for a response of another shape."""
    content: dict[str, Any] = response.json()
    assert set(content) == {"error"}
    assert set(content["error"]) == {"code", "message"}
    assert response.headers["content-type"] == "application/json"
    return response.status_code, content["error"]["code"], content["error"]["message"]


def samples(exposition: str) -> dict[tuple[str, ...], float]:
    """Return the values of an exposition by name and sorted values of labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families(exposition)
        for sample in family.samples
    }


def families(exposition: str) -> Iterator[Metric]:
    return iter(text_string_to_metric_families(exposition))
