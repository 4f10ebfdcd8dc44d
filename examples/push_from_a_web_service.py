"""A pipeline inside a web service: request handlers send records, the pipeline counts, other handlers read the
counts.

The service is plain asyncio here. A framework would call the three functions: ``lifespan`` at start and end,
``post_view`` and ``get_counts`` for requests. If the pipeline is slower than the requests, ``send`` waits, and the
clients wait with it (backpressure); ``send_nowait`` raises ``SourceFull`` instead, which a handler can turn into a
503.

Prints:

    POST /views: 30 requests, all 202
    GET /counts: {'/home': 20, '/prices': 10}
    closed: windows emitted [('/home', 20), ('/prices', 10)]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import aflow as af


@dataclass(frozen=True)
class View:
    page: str
    at: int  # epoch milliseconds


@dataclass(frozen=True)
class Count:
    page: str = ""
    views: int = 0

    def plus(self, view: View) -> Count:
        return Count(view.page, self.views + 1)


@dataclass
class Service:
    views: af.PushSource[View] = field(default_factory=lambda: af.PushSource[View](capacity=1000))
    counts: dict[str, int] = field(default_factory=dict[str, int])
    per_minute: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def build(self) -> af.Flow:
        flow = af.Flow("views")
        views = flow.source(self.views, name="views").event_time(lambda view: view.at)
        per_page = views.key_by(lambda view: view.page)
        running = per_page.fold(Count, lambda count, view: count.plus(view), name="running")
        running.to(af.CallbackSink(self.remember), name="remember")
        minutes = per_page.window(af.Tumbling(timedelta(minutes=1)))
        totals = minutes.fold(int, lambda count, view: count + 1, name="per minute")
        totals.map(lambda w: (w.key, w.value)).to(
            af.CallbackSink(self.per_minute.append), name="keep"
        )
        return flow

    def remember(self, count: Count) -> None:
        self.counts[count.page] = count.views


@asynccontextmanager
async def lifespan(service: Service) -> AsyncGenerator[af.Job]:
    """Run the job as long as the service, and drain it at the end."""
    async with service.build().start() as job:
        yield job
        await job.stop(drain=True)


async def post_view(service: Service, page: str) -> int:
    await service.views.send(View(page, at=1_000))
    return 202


async def get_counts(service: Service) -> dict[str, int]:
    return dict(sorted(service.counts.items()))


async def main() -> None:
    service = Service()
    async with lifespan(service):
        pages = ["/home", "/prices", "/home"] * 10
        answers = await asyncio.gather(*(post_view(service, page) for page in pages))
        assert set(answers) == {202}
        print(f"POST /views: {len(answers)} requests, all 202")
        while sum(service.counts.values()) < len(pages):  # noqa: ASYNC110 - as a client polls
            await asyncio.sleep(0.001)
        print("GET /counts:", await get_counts(service))
    print("closed: windows emitted", sorted(service.per_minute))


if __name__ == "__main__":
    asyncio.run(main())
