"""Classify tickets with a language model, within a budget of tokens per minute.

Providers of models limit tokens, not requests. The rate limit therefore has a ``cost``: the estimated tokens of the
prompt plus the maximum of the answer. Each attempt is charged, as it is by the provider. The limit is half of the
provider's, since other programs use the same key.

The answer is a stream of tokens, as server-sent events. The client aborts a stream that stalls (``sock_read``) and
retries it, as it does a request that the provider rejects with 429; ``timeout`` covers all attempts together. The
endpoint at the end of this file is a stand-in for a provider, with minutes of one second.

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
    10 requests for 8 tickets: 1 rejected, 1 stalled, 0 over the limit
    1,342 tokens at 1,000 a minute: at least 1.1 minutes
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

MINUTE = timedelta(seconds=1)  # timedelta(minutes=1) outside of this example
TOKENS_PER_MINUTE = 1_000
BURST = 200
LONGEST_ANSWER = 100


@dataclass(frozen=True)
class Ticket:
    id: int
    text: str

    @property
    def prompt(self) -> str:
        return f"Sort this ticket: is it about billing, about access, or about something else? {self.text}"


@dataclass(frozen=True)
class Classified:
    ticket: Ticket
    answer: str


def tokens(ticket: Ticket) -> int:
    """Return the maximum cost of a request for ``ticket``; four letters are about one token."""
    return len(ticket.prompt) // 4 + LONGEST_ANSWER


async def classify(ticket: Ticket, http: aiohttp.ClientSession) -> str:
    query = {"prompt": ticket.prompt, "max_tokens": LONGEST_ANSWER, "stream": True}
    text = ""
    async with http.post("/v1/completions", json=query) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            event = line.decode().strip().removeprefix("data: ")
            if event == "[DONE]":
                return text
            if event:
                text += json.loads(event)["token"]
    raise aiohttp.ClientPayloadError("the answer has no end")


def build(tickets: list[Ticket], url: str) -> af.Flow:
    def connect() -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=0.3)  # seconds between two tokens
        return aiohttp.ClientSession(url, timeout=timeout)

    flow = af.Flow("tickets")
    flow.source(tickets, name="tickets").map_async(
        classify,
        into=Classified,
        name="classify",
        using=af.Resource(connect),
        capacity=20,
        rate=af.calls.RateLimit(TOKENS_PER_MINUTE, MINUTE, burst=BURST, cost=tokens),
        retry=af.Retry(attempts=5, delay=MINUTE / 20, factor=2, jitter=0.2, on=aiohttp.ClientError),
        timeout=10 * MINUTE,
    ).to(af.CallbackSink(show), name="show")
    return flow


def show(one: Classified) -> None:
    print(f"ticket {one.ticket.id}: {one.answer}")


# ----------------------------------------------------------------------------------- a stand-in for a model provider

TOPICS = {"invoice": "billing", "refund": "billing", "password": "access", "login": "access"}


class Provider:
    """Allow 2,000 tokens a minute, reject the fourth request as overloaded, and stall in the sixth answer."""

    limit = 2 * TOKENS_PER_MINUTE

    def __init__(self) -> None:
        self.counts = Counter[str]()
        #: Requests of the last minute: time and tokens.
        self.recent = deque[tuple[float, int]]()

    async def completions(self, request: web.Request) -> web.StreamResponse:
        query = await request.json()
        needed = len(query["prompt"]) // 4 + query["max_tokens"]
        self.counts.update({"requests": 1, "tokens": needed})
        if self.counts["requests"] == 4:
            self.counts["rejected"] += 1
            raise web.HTTPTooManyRequests(text="overloaded")
        if self.used(needed) > self.limit:
            self.counts["over the limit"] += 1
            raise web.HTTPTooManyRequests(text="too many tokens")
        stalls = self.counts["requests"] == 6
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for token in self.tokens_of(query["prompt"]):
            await asyncio.sleep(0.01)
            await answer.write(f"data: {json.dumps({'token': token})}\n\n".encode())
            if stalls:
                self.counts["stalled"] += 1
                await asyncio.sleep(60)
        await answer.write(b"data: [DONE]\n\n")
        return answer

    def used(self, tokens: int) -> int:
        now = asyncio.get_running_loop().time()
        while self.recent and self.recent[0][0] <= now - MINUTE.total_seconds():
            self.recent.popleft()
        self.recent.append((now, tokens))
        return sum(number for _, number in self.recent)

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
    started = loop.time()
    async with running(provider) as url:
        await build(tickets, url).run()
        minutes = (loop.time() - started) / MINUTE.total_seconds()
    counts = provider.counts
    print(
        f"{counts['requests']} requests for {len(tickets)} tickets: {counts['rejected']} rejected, "
        f"{counts['stalled']} stalled, {counts['over the limit']} over the limit"
    )
    used = counts["tokens"]
    least = (used - BURST) / TOKENS_PER_MINUTE
    assert minutes >= least
    print(f"{used:,} tokens at {TOKENS_PER_MINUTE:,} a minute: at least {least:.1f} minutes")


if __name__ == "__main__":
    asyncio.run(main())
