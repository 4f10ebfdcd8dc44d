"""The client of the model: prompt, request, validation of the answer, and the errors that a call may raise.

The API is that of OpenAI for chat completions, which most providers and local servers offer, too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

import aflow as af
from llm_enrichment.tickets import Classification, Ticket

INSTRUCTIONS: Final = (
    "Classify the support ticket. Answer with one JSON object and nothing else: "
    '{"category": "billing" | "access" | "bug" | "other", "urgency": 1 to 5, "summary": one short sentence}'
)
#: Most tokens of an answer; a longer one is cut by the provider and refused here.
ANSWER_TOKENS: Final = 100
#: US dollars for a million tokens of prompts and of answers.
PRICES: Final = {"small": (0.15, 0.60), "large": (2.50, 10.00)}


class Unavailable(Exception):
    """The provider is overloaded, refuses more requests for now, or fails: another attempt may succeed."""

    def __init__(self, status: int, message: str, retry_after: timedelta | None) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.retry_after = retry_after
        """The pause that the provider asks for; None if it did not say."""


class InvalidAnswer(Exception):
    """The model answered something else than the JSON that it was asked for."""


class Refused(Exception):
    """The provider refuses this request, and would refuse it again."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    """The tokens of a call, as the provider charges them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Usage = msgspec.field(default_factory=Usage)


_read_completion = msgspec.json.Decoder(_Completion).decode
_read_classification = msgspec.json.Decoder(Classification).decode


@dataclass
class Spending:
    """The tokens of all answers that this process has received, valid or not."""

    model: str
    prompt_tokens: int = 0
    answer_tokens: int = 0

    def add(self, usage: Usage) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.answer_tokens += usage.completion_tokens

    @property
    def dollars(self) -> float | None:
        """None if the price of the model is unknown."""
        if (price := PRICES.get(self.model)) is None:
            return None
        return (self.prompt_tokens * price[0] + self.answer_tokens * price[1]) / 1_000_000


class Model:
    """Asks one model over an open session."""

    def __init__(self, http: aiohttp.ClientSession, spending: Spending) -> None:
        self._http = http
        self._spending = spending

    async def classify(self, ticket: Ticket) -> Classification:
        """Make one attempt. Raises ``Unavailable``, ``InvalidAnswer``, ``Refused`` or ``aiohttp.ClientError``."""
        request = {
            "model": self._spending.model,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": ticket.text},
            ],
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "response_format": {"type": "json_object"},
        }
        body = msgspec.json.encode(request)
        headers = {
            "Content-Type": "application/json",
            # For providers that honour it: an attempt after a crash has the same key, another model or prompt has not.
            "Idempotency-Key": sha256(b"%d %s" % (ticket.id, body)).hexdigest(),
        }
        async with self._http.post("chat/completions", data=body, headers=headers) as response:
            await check_status(response)
            completion = _read_completion(await response.read())
        self._spending.add(completion.usage)
        return _classification(completion)


@asynccontextmanager
async def connected(url: str, key: str, spending: Spending) -> AsyncGenerator[Model]:
    """Open a session, and check the key and the name of the model before the first ticket is sent.

    With a wrong key each ticket would become a dead letter; an error here fails the job instead.
    """
    async with aiohttp.ClientSession(
        f"{url.rstrip('/')}/",
        headers={"Authorization": f"Bearer {key}"},
        connector=aiohttp.TCPConnector(limit=0),  # the step limits its calls
        timeout=aiohttp.ClientTimeout(total=None),  # and their time
    ) as http:
        async with http.get(f"models/{spending.model}") as response:
            await check_status(response)
        yield Model(http, spending)


async def check_status(response: aiohttp.ClientResponse) -> None:
    """Raise ``Unavailable`` or ``Refused`` unless the provider accepted the request."""
    status = response.status
    if status < HTTPStatus.BAD_REQUEST:
        return
    message = (await response.text())[:500]
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unavailable(status, message, _retry_after(response.headers.get("Retry-After")))
    raise Refused(f"status {status}: {message}")


def _retry_after(header: str | None) -> timedelta | None:
    """Read a header in seconds; the other form, a date, is ignored."""
    try:
        return None if header is None else timedelta(seconds=float(header))
    except (ValueError, OverflowError):
        return None


def _classification(completion: _Completion) -> Classification:
    answer = completion.choices[0].message.content if completion.choices else None
    try:
        return _read_classification(answer or "")
    except msgspec.MsgspecError as invalid:
        raise InvalidAnswer(f"{invalid}: {(answer or '')[:200]!r}") from invalid


def most_tokens(ticket: Ticket) -> int:
    """Return the most tokens that a call for ``ticket`` is charged for.

    Three characters for a token are a cautious estimate for most languages. For exact numbers use the tokenizer of the
    model; it must not take long, since it runs on the event loop.
    """
    return (len(INSTRUCTIONS) + len(ticket.text)) // 3 + ANSWER_TOKENS


_AGAIN: Final = af.Retry(
    attempts=6,
    delay=timedelta(milliseconds=500),
    factor=2,
    max_delay=timedelta(seconds=20),
    jitter=0.3,
    on=(Unavailable, InvalidAnswer, aiohttp.ClientError, TimeoutError),
)
#: Answers are paid, so after this many attempts an invalid one is final.
_ATTEMPTS_WITH_INVALID_ANSWER: Final = 2


def is_overload(error: BaseException) -> bool:
    """Return True for errors after which fewer calls should be in flight; a status 500 is none of them."""
    match error:
        case Unavailable(status=HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.SERVICE_UNAVAILABLE):
            return True
        case _:
            return isinstance(error, TimeoutError)


class RetryAsAsked:
    """Retry with growing pauses, and never sooner than the provider asks for by ``Retry-After``."""

    def again(self, failed: af.calls.Attempt, random: float) -> timedelta | None:
        """Return the pause before the next attempt, as a ``RetryPolicy`` does."""
        pause = _AGAIN.again(failed, random)
        match failed.error:
            case InvalidAnswer() if failed.number >= _ATTEMPTS_WITH_INVALID_ANSWER:
                return None
            case Unavailable(retry_after=timedelta() as asked) if pause is not None:
                return max(pause, asked * (1 + 0.1 * random))
            case _:
                return pause
