"""A stand-in for a provider of language models: deterministic answers, limits, and failures as configured.

``POST /v1/chat/completions`` answers as OpenAI's API does. The model ``small`` answers tickets in German with prose
in place of JSON, and refuses long ones; ``large`` answers all. ``GET /counts`` returns the counts of all requests.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

_CATEGORIES: Final = {
    "invoice": "billing",
    "refund": "billing",
    "Rechnung": "billing",
    "password": "access",
    "login": "access",
    "crash": "bug",
}
_CONTEXT_TOKENS: Final = {"small": 500, "large": 100_000}
_MINUTE_S: Final = 60.0
#: Failures of a prompt in a row; the attempt after them succeeds.
_FAILURES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of the requests that fail, and the time of all others."""

    errors: float = 0.0
    """Status 500."""
    busy: float = 0.0
    """Status 429 with ``Retry-After``."""
    stalls: float = 0.0
    """No answer."""
    latency_s: float = 0.1
    retry_after_s: float = 1.0
    tokens_per_minute: int | None = None
    """A request beyond is answered with 429; None: no limit."""


@dataclass
class FakeProvider:
    """Answers requests, and counts them."""

    faults: Faults = field(default_factory=Faults)
    key: str = ""
    """The key that requests must have; empty: any."""
    counts: Counter[str] = field(default_factory=Counter[str])
    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Times (epoch seconds) of the answers, which are charged, by prompt. ``Idempotency-Key`` is not honoured."""
    in_flight: int = 0
    _attempts: Counter[str] = field(default_factory=Counter[str])
    #: Requests of the last minute: time and tokens.
    _recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.post("/v1/chat/completions", self._complete),
                web.get("/v1/models/{model}", self._model),
                web.get("/counts", self._counts),
            ]
        )
        return application

    async def _model(self, request: web.Request) -> web.Response:
        self._check_key(request)
        if request.match_info["model"] not in _CONTEXT_TOKENS:
            return _error(HTTPStatus.NOT_FOUND, "there is no such model")
        return web.json_response({"id": request.match_info["model"], "object": "model"})

    async def _counts(self, _: web.Request) -> web.Response:
        return web.json_response(self.counts)

    def _check_key(self, request: web.Request) -> None:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            raise web.HTTPUnauthorized(text="wrong key")

    async def _complete(self, request: web.Request) -> web.Response:
        self._check_key(request)
        self.in_flight += 1
        self.counts["most in flight"] = max(self.counts["most in flight"], self.in_flight)
        try:
            return await self._respond(await request.json())
        finally:
            self.in_flight -= 1

    async def _respond(self, query: dict[str, Any]) -> web.Response:
        model, prompt = query["model"], query["messages"][-1]["content"]
        prompt_tokens = sum(len(message["content"]) for message in query["messages"]) // 4
        self.counts["requests"] += 1
        if not self._is_within_limit(prompt_tokens + query["max_tokens"]):
            return self._busy("tokens per minute")
        if (failure := await self._failure(prompt)) is not None:
            return failure
        await asyncio.sleep(self.faults.latency_s)
        if prompt_tokens > _CONTEXT_TOKENS[model]:
            self.counts["refused"] += 1
            return _error(HTTPStatus.BAD_REQUEST, "the prompt is too long for this model")
        content = _answer(model, prompt)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(content) // 4}
        self.counts.update(answers=1, tokens=sum(usage.values()))
        self.answers[prompt].append(time.time())
        choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        return web.json_response({"model": model, "choices": [choice], "usage": usage})

    def _is_within_limit(self, tokens: int) -> bool:
        now = asyncio.get_running_loop().time()
        while self._recent and self._recent[0][0] <= now - _MINUTE_S:
            self._recent.popleft()
        limit = self.faults.tokens_per_minute
        if limit is not None and sum(used for _, used in self._recent) + tokens > limit:
            return False
        self._recent.append((now, tokens))
        return True

    async def _failure(self, prompt: str) -> web.Response | None:
        """Fail as a hash of the prompt and the number of the attempt decides; at most three times in a row."""
        attempt = self._attempts[prompt] % (_FAILURES + 1)
        self._attempts[prompt] += 1
        share = int.from_bytes(sha256(f"{prompt} {attempt}".encode()).digest()[:8]) / 2**64
        faults = self.faults
        if attempt == _FAILURES or share >= faults.errors + faults.busy + faults.stalls:
            return None
        if share < faults.errors:
            self.counts["errors"] += 1
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "failed on purpose")
        if share < faults.errors + faults.busy:
            return self._busy("requests")
        self.counts["stalls"] += 1
        await asyncio.sleep(3600)
        return None

    def _busy(self, limit: str) -> web.Response:
        self.counts[f"over the limit of {limit}"] += 1
        response = _error(HTTPStatus.TOO_MANY_REQUESTS, f"over the limit of {limit}")
        response.headers["Retry-After"] = f"{self.faults.retry_after_s:g}"
        return response


def _error(status: HTTPStatus, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


def _answer(model: str, prompt: str) -> str:
    if model == "small" and prompt.startswith("Die "):
        return "Here is the classification: it is about billing."
    category = next((name for word, name in _CATEGORIES.items() if word in prompt), "other")
    urgency = 5 if "urgent" in prompt else 3 if "today" in prompt else 1
    summary = prompt.partition(".")[0][:100]
    return json.dumps({"category": category, "urgency": urgency, "summary": summary})


@asynccontextmanager
async def served(provider: FakeProvider, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve during the block; yields the base URL of the API. Port 0 chooses a free one."""
    runner = web.AppRunner(
        provider.application(),
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host, chosen = runner.addresses[0]
        yield f"http://{host}:{chosen}/v1"
    finally:
        await runner.cleanup()
