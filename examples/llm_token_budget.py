"""Tickets are sorted by a language model, within a budget of tokens per minute.

Providers of models count tokens rather than requests. So the rate limit has a ``cost``: what is asked, as far as it can
be estimated, and the most that may be answered. Each attempt pays anew, as it does with the provider. The limit is half
of what the provider allows: others use the same key.

Answers come token by token, as server-sent events. One that falls silent in the middle is broken off by the client
(``sock_read``) and asked for again, as is one that the provider refuses with 429; ``timeout`` is for all of that
together. The endpoint at the bottom stands for a provider's, and its minute is a second.

Needs aiohttp (``pip install aiohttp``); any other asynchronous client works the same way.

Prints:

    ticket 1: billing, since there is something about "invoice"
    ticket 2: access, since there is something about "password"
    ticket 3: other, since nothing fits
    ticket 4: billing, since there is something about "refund"
    ticket 5: access, since there is something about "login"
    ticket 6: billing, since there is something about "invoice"
    ticket 7: other, since nothing fits
    ticket 8: access, since there is something about "password"
    10 requests for 8 tickets: 1 refused, 1 fell silent, 0 over the limit
    1,342 tokens at 1,000 a minute: it took 1.1 minutes or more
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
from aiohttp import web

import aflow as af

MINUTE = timedelta(seconds=1)  # so that you need not wait; timedelta(minutes=1) where it is real
TOKENS_PER_MINUTE = 1_000
AT_ONCE = 200
LONGEST_ANSWER = 100


@dataclass(frozen=True)
class Ticket:
    id: int
    text: str

    @property
    def prompt(self) -> str:
        return f"Sort this ticket: is it about billing, about access, or about something else? {self.text}"


@dataclass(frozen=True)
class Sorted:
    ticket: Ticket
    answer: str


def tokens(ticket: Ticket) -> int:
    """What a request for ``ticket`` costs at most; four letters are about a token."""
    return len(ticket.prompt) // 4 + LONGEST_ANSWER


async def sort(ticket: Ticket, http: aiohttp.ClientSession) -> str:
    asked = {"prompt": ticket.prompt, "max_tokens": LONGEST_ANSWER, "stream": True}
    said = ""
    async with http.post("/v1/completions", json=asked) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            event = line.decode().strip().removeprefix("data: ")
            if event == "[DONE]":
                return said
            if event:
                said += json.loads(event)["token"]
    raise aiohttp.ClientPayloadError("the answer has no end")


def build(tickets: list[Ticket], url: str) -> af.Flow:
    def connect() -> aiohttp.ClientSession:
        patience = aiohttp.ClientTimeout(total=None, sock_read=0.3)  # seconds between two tokens
        return aiohttp.ClientSession(url, timeout=patience)

    flow = af.Flow("tickets")
    flow.source(tickets, name="tickets").map_async(
        sort,
        into=Sorted,
        name="sort",
        using=af.Resource(connect),
        capacity=20,
        rate=af.RateLimit(TOKENS_PER_MINUTE, MINUTE, burst=AT_ONCE, cost=tokens),
        retry=af.Retry(attempts=5, delay=MINUTE / 20, factor=2, jitter=0.2, on=aiohttp.ClientError),
        timeout=10 * MINUTE,
    ).to(af.CallbackSink(show), name="show")
    return flow


def show(one: Sorted) -> None:
    print(f"ticket {one.ticket.id}: {one.answer}")


# ------------------------------------------------------------------------------------------------ a provider of models

TOPICS = {"invoice": "billing", "refund": "billing", "password": "access", "login": "access"}


class Provider:
    """Allows 2,000 tokens a minute. Has too much to do at the fourth request, and falls silent in the sixth answer."""

    limit = 2 * TOKENS_PER_MINUTE

    def __init__(self) -> None:
        self.counts = Counter[str]()
        #: When how many tokens were asked for, in the last minute.
        self.recent = deque[tuple[float, int]]()

    async def completions(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        needed = len(asked["prompt"]) // 4 + asked["max_tokens"]
        self.counts.update({"requests": 1, "tokens": needed})
        if self.counts["requests"] == 4:
            self.counts["refused"] += 1
            raise web.HTTPTooManyRequests(text="overloaded")
        if self.used(needed) > self.limit:
            self.counts["over the limit"] += 1
            raise web.HTTPTooManyRequests(text="too many tokens")
        silent = self.counts["requests"] == 6
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for token in self.tokens_of(asked["prompt"]):
            await asyncio.sleep(0.01)
            await answer.write(f"data: {json.dumps({'token': token})}\n\n".encode())
            if silent:
                self.counts["silent"] += 1
                await asyncio.sleep(60)
        await answer.write(b"data: [DONE]\n\n")
        return answer

    def used(self, more: int) -> int:
        now = asyncio.get_running_loop().time()
        while self.recent and self.recent[0][0] <= now - MINUTE.total_seconds():
            self.recent.popleft()
        self.recent.append((now, more))
        return sum(tokens for _, tokens in self.recent)

    def tokens_of(self, prompt: str) -> list[str]:
        for word, topic in TOPICS.items():
            if word in prompt:
                return [topic, ", since there is", " something about", f' "{word}"']
        return ["other", ", since", " nothing fits"]


@asynccontextmanager
async def running(provider: Provider) -> AsyncGenerator[str]:
    application = web.Application()
    application.router.add_post("/v1/completions", provider.completions)
    runner = web.AppRunner(application, handle_signals=False, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def main() -> None:
    tickets = [
        Ticket(1, "The invoice of May came twice. Which of the two am I to pay?"),
        Ticket(2, "I forgot my password, and the mail to set a new one does not arrive."),
        Ticket(3, "Do you have an office in Lisbon?"),
        Ticket(4, "When do I get my refund for April? You said two weeks, and that was in June."),
        Ticket(5, "The login page says that it is closed for maintenance since yesterday."),
        Ticket(6, "Please write the name of our company on each invoice."),
        Ticket(7, "Thank you, everything works again!"),
        Ticket(8, "Is a password of forty letters too long? It seems to be cut off."),
    ]
    provider, loop = Provider(), asyncio.get_running_loop()
    began = loop.time()
    async with running(provider) as url:
        await build(tickets, url).run()
        minutes = (loop.time() - began) / MINUTE.total_seconds()
    counts = provider.counts
    print(
        f"{counts['requests']} requests for {len(tickets)} tickets: {counts['refused']} refused, "
        f"{counts['silent']} fell silent, {counts['over the limit']} over the limit"
    )
    asked = counts["tokens"]
    least = (asked - AT_ONCE) / TOKENS_PER_MINUTE
    assert minutes >= least
    print(
        f"{asked:,} tokens at {TOKENS_PER_MINUTE:,} a minute: it took {least:.1f} minutes or more"
    )


if __name__ == "__main__":
    asyncio.run(main())
