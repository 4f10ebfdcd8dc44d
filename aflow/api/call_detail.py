"""The description of a step of async calls in a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aflow.machines.calls.on_error import dead_letter_tag, policy_text
from aflow.machines.calls.rate import rate_text
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.model.resource import Resource
from aflow.model.time import short

_ORDERS = {
    CallOrder.ORDERED: "ordered",
    CallOrder.UNORDERED: "unordered",
    CallOrder.BY_KEY: "ordered by key",
}


def call_detail(settings: CallSettings, using: Resource[Any] | None) -> str:
    """Return order, capacity and the other options: ``ordered, 100 at once, timeout 2s, up to 3 attempts``."""
    return ", ".join(_parts(settings, using))


def dead_letters_of(settings: CallSettings) -> str | None:
    """Return the name of the side output for failed records; None if there is none."""
    return dead_letter_tag(settings.on_error)


def _parts(settings: CallSettings, using: Resource[Any] | None) -> Iterator[str]:
    yield _ORDERS[settings.order]
    adaptive = settings.adaptive
    yield (
        f"{settings.capacity} at once"
        if adaptive is None
        else f"adaptive, {adaptive.least} to {adaptive.most} at once"
    )
    if settings.groups is not None:
        yield f"up to {settings.groups.size} together"
    if settings.timeout is not None:
        yield f"timeout {short(settings.timeout)}"
    if settings.attempt_timeout is not None:
        yield f"timeout of an attempt {short(settings.attempt_timeout)}"
    if settings.deadline is not None:
        yield "deadline"
    if settings.retry is not None:
        yield _retry(settings.retry)
    if settings.rate is not None:
        yield rate_text(settings.rate)
    if settings.breaker is not None:
        yield "circuit breaker"
    if settings.cache is not None:
        yield f"cache of {settings.cache.size}"
    if text := policy_text(settings.on_error):
        yield text
    if isinstance(using, Resource):  # the graph rejects all other objects
        yield f"using {using.label!r}"


def _retry(retry: object) -> str:
    return (
        f"up to {retry.attempts} attempts"
        if isinstance(retry, Retry)
        else f"retry {type(retry).__name__}"
    )
