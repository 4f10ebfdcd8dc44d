"""Steps that call an async function for each record: what users write, and the settings that come of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, get_type_hints

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.on_error import Fail, OnError, check_on_error
from aflow.machines.calls.retry import RetryPolicy
from aflow.model.codecs import RECORDS, Codec
from aflow.model.resource import Resource
from aflow.model.time import Instant, positive_millis
from aflow.operators.calls.settings import (
    DEFAULT_CAPACITY,
    CallOrder,
    CallResults,
    CallSettings,
)
from aflow.runtime.calls.collecting import collecting
from aflow.state.layouts import state_codec

T = TypeVar("T")
U = TypeVar("U")


class CallOptions(TypedDict, Generic[T], total=False):
    """What ``map_async``, ``flat_map_async``, ``filter_async`` and ``map_batch_async`` can be told. All by keyword."""

    capacity: int
    """The most calls under way at once, in each subtask; 100 by default. The step may hold as many records again that
    wait for their call or for their turn to leave, and a batch of input; beyond that it takes no more."""
    ordered: bool
    """True, the default: results leave in the order of the stream. False: as they complete, but never past a watermark.
    Not for keyed streams, where each key keeps its order and nothing else."""
    timeout: timedelta
    """How long a record may take, from the beginning of its first call to its result, all attempts and the pauses
    between them together. Then the call is cancelled, and ``on_error`` gets a ``TimeoutError``."""
    deadline: Callable[[T], Instant]
    """The moment (aware ``datetime`` or epoch ms) after which the result for a value is of no use: as ``timeout``, for
    each record. One whose moment has passed is not called for."""
    retry: RetryPolicy
    """Whether, and when, a call that failed is made again: ``Retry(…)``, or a policy of your own. Default: never."""
    on_error: OnError[T]
    """What becomes of a record whose call failed for good: ``Fail()`` (the default), ``Drop()``, ``DeadLetter(tag)`` or
    ``Fallback(function)``."""
    of: type[T]
    """The type by which checkpoints store records whose calls are under way; needed only for values that are neither
    plain Python values nor dataclasses, named tuples, Structs or enums."""
    codec: Codec[T]
    """In place of ``of``: how they are stored, for instance ``Pickled[Model]()``."""


#: Known names, for a message that is better than none.
_NAMES = tuple(get_type_hints(CallOptions))


def call_settings(
    method: str,
    fn: Callable[..., Any],
    options: CallOptions[Any],
    results: CallResults,
    *,
    keyed: bool = False,
    using: Resource[Any] | None = None,
    into: Callable[..., Any] | None = None,
) -> CallSettings:
    """Check what a user gave to ``method``. Raises ``FlowDefinitionError``, and ``TypeError`` for unknown options."""
    for name in options:
        if name not in _NAMES:
            raise TypeError(f"{method}() has no argument {name!r}; it takes {', '.join(_NAMES)}")
    if not callable(fn):
        raise FlowDefinitionError(f"{method}() takes an async function, not {shown(fn)}")
    if into is not None and not callable(into):
        raise FlowDefinitionError(
            f"{method}(into=…) takes a function of a value and the result for it, not {shown(into)}"
        )
    timeout, deadline = options.get("timeout"), options.get("deadline")
    if deadline is not None and not callable(deadline):
        raise FlowDefinitionError(
            f"{method}(deadline=…) takes a function from a value to a moment, not {shown(deadline)}"
        )
    on_error = options.get("on_error", Fail())
    check_on_error(on_error)
    codec, typed = _codec(method, options)
    return CallSettings(
        call=collecting(fn),
        capacity=_capacity(method, options.get("capacity", DEFAULT_CAPACITY)),
        order=_order(method, options, keyed=keyed),
        results=results,
        into=into,
        timeout=None if timeout is None else positive_millis(timeout, what=f"{method}(timeout=…)"),
        deadline=deadline,
        retry=_retry(method, options.get("retry")),
        on_error=on_error,
        codec=codec,
        typed=typed,
        uses_resource=using is not None,
    )


def _capacity(method: str, capacity: object) -> int:
    if type(capacity) is not int or capacity < 1:
        raise FlowDefinitionError(
            f"{method}(capacity=…) takes the number of calls that may be under way at once, from 1 on, "
            f"not {shown(capacity)}"
        )
    return capacity


def _order(method: str, options: CallOptions[Any], *, keyed: bool) -> CallOrder:
    ordered = options.get("ordered")
    if ordered is not None and type(ordered) is not bool:
        raise FlowDefinitionError(f"{method}(ordered=…) takes True or False, not {shown(ordered)}")
    if not keyed:
        return CallOrder.UNORDERED if ordered is False else CallOrder.ORDERED
    if ordered is not None:
        raise FlowDefinitionError(
            f"{method}(ordered={ordered}) on a keyed stream: each key keeps its order there, and nothing else; leave "
            f"it out, or call {method}() before key_by()"
        )
    return CallOrder.BY_KEY


def _retry(method: str, retry: object) -> RetryPolicy | None:
    if retry is not None and (isinstance(retry, type) or not isinstance(retry, RetryPolicy)):
        raise FlowDefinitionError(
            f"{method}(retry=…) takes Retry(…) or an object with a method again(failed, chance), not {shown(retry)}"
        )
    return retry


def _codec(method: str, options: CallOptions[Any]) -> tuple[Codec[Any], bool]:
    of, codec = options.get("of"), options.get("codec")
    if of is None and codec is None:
        return RECORDS, False
    try:
        return state_codec(of, codec), True
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{method}(): {exc}") from exc


CallOne = Callable[[T], Awaitable[U]]
"""Gives one result for a value."""

CallMany = Callable[[T], Awaitable[Iterable[U]] | AsyncIterator[U]]
"""Gives any number of results for a value: awaited, or one by one."""

KeepAsync = Callable[[T], Awaitable[object]]
"""Says whether a value goes on."""
