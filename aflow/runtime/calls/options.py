"""Options of async steps, and the settings made of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, get_type_hints

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Fail, OnError, check_on_error
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import RetryPolicy
from aflow.machines.calls.settings import (
    DEFAULT_CAPACITY,
    CallOrder,
    CallResults,
    CallSettings,
)
from aflow.model.codecs import RECORDS, Codec
from aflow.model.resource import Resource
from aflow.model.time import Instant, positive_millis, short, to_millis
from aflow.runtime.calls.checks import check_names, check_plain
from aflow.runtime.calls.result_lists import collecting
from aflow.state.layouts import state_codec

T = TypeVar("T")
S = TypeVar("S")


class CallOptions(TypedDict, Generic[T], total=False):
    """Options of ``map_async``, ``flat_map_async``, ``filter_async`` and ``map_batch_async``. All by keyword.

    None means the default, where a type admits it.
    """

    capacity: int | Adaptive
    """The most calls under way at once, in each subtask; 100 by default. With ``Adaptive()`` as many as the service can
    take, found out by how it answers. The step holds as many records again that wait for their call or for
    emission (with ``Adaptive`` up to a thousand in all), and a batch of input; then it reads no more.
    Unless results are ordered, those that wait for an earlier watermark are counted apart: 64 for each call."""
    ordered: bool
    """True, the default: results in the order of the stream. False: in the order of completion, but never past a
    watermark. Not for keyed streams, where each key keeps its order."""
    timeout: timedelta | None
    """The longest time of a record, from the beginning of its first call to its result: all attempts, the pauses
    between them, and the time that it waits for a slot again. Then the call is cancelled, and ``on_error`` gets a
    ``TimeoutError``. While a job stops, the time also runs while a circuit breaker keeps the first call waiting."""
    attempt_timeout: timedelta | None
    """The longest time of one attempt, from the moment at which it has a slot. Then the call is cancelled, and the
    attempt has failed with a ``TimeoutError``: ``retry`` decides whether there is another one. Must be shorter than
    ``timeout``."""
    deadline: Callable[[T], Instant] | None
    """The moment (aware ``datetime`` or epoch ms) after which the result for a value is of no use: as ``timeout``, for
    each record. One whose moment has passed is not called for."""
    retry: RetryPolicy | None
    """The retry policy: ``Retry(…)``, or one of your own. Default: no retries."""
    on_error: OnError[T]
    """The policy for records whose calls were given up: ``Fail()`` (the default), ``Drop()``, ``DeadLetter(tag)`` or
    ``Fallback(function)``."""
    rate: RateLimit[T] | None
    """The most calls, or the most cost, in a time: a token bucket, which steps may share by name."""
    breaker: CircuitBreaker | None
    """The circuit breaker, which stops calls for a while when too many have failed."""
    cache: Cache[T, Any] | None
    """The cache of results: no call is made for records whose results are kept or in flight."""
    of: type[T]
    """The type by which checkpoints store records whose calls are under way; needed only for values that are neither
    plain Python values nor dataclasses, named tuples, Structs or enums."""
    codec: Codec[T]
    """In place of ``of``: how they are stored, for instance ``Pickled[Model]()``."""
    store_results: bool
    """True, the default: checkpoints contain the results of completed calls that were not emitted, and a restore does
    not make these calls again. False: it does."""
    result_of: type[object]
    """The type by which checkpoints store these results (of ``flat_map_async``: each of its values); needed only where
    ``of`` is for records. A result that cannot be stored is warned of, and its call is made again after a restore."""
    result_codec: Codec[Any]
    """In place of ``result_of``: how they are stored."""


#: The known names, for messages.
_NAMES = tuple(get_type_hints(CallOptions))

#: Options of stored results.
_RESULT_OPTIONS = ("store_results", "result_of", "result_codec")


def call_settings(
    method: str,
    fn: Callable[..., Any],
    options: CallOptions[Any],
    results: CallResults,
    *,
    keyed: bool = False,
    using: Resource[Any] | None = None,
    into: Callable[..., Any] | None = None,
    groups: GroupSize | None = None,
) -> CallSettings:
    """Check the options of ``method`` and return the settings.

    Raises ``FlowDefinitionError``, and ``TypeError`` for unknown options.
    """
    check_names(method, options, _NAMES)
    if not callable(fn):
        raise FlowDefinitionError(f"{method}() takes an async function, not {shown(fn)}")
    if into is not None and not callable(into):
        raise FlowDefinitionError(
            f"{method}(into=…) takes a function of a value and the result for it, not {shown(into)}"
        )
    timeout = _duration(method, "timeout", options.get("timeout"))
    attempt_timeout = _duration(method, "attempt_timeout", options.get("attempt_timeout"))
    if timeout is not None and attempt_timeout is not None and attempt_timeout >= timeout:
        raise FlowDefinitionError(
            f"{method}(attempt_timeout={short(attempt_timeout)}) never ends an attempt, since timeout={short(timeout)} "
            f"ends all attempts of a record before; make attempt_timeout shorter, or leave it out"
        )
    on_error = options.get("on_error", Fail())
    check_on_error(on_error)
    codec, typed = _codec(method, options)
    result_codec, results_typed = _result_codec(method, options, results)
    capacity, adaptive = _capacity(method, options.get("capacity", DEFAULT_CAPACITY))
    settings = CallSettings(
        call=collecting(fn) if results is CallResults.MANY else fn,
        capacity=capacity,
        adaptive=adaptive,
        rate=_one_of(method, "rate", options.get("rate"), RateLimit),
        breaker=_one_of(method, "breaker", options.get("breaker"), CircuitBreaker),
        cache=_one_of(method, "cache", options.get("cache"), Cache),
        groups=groups,
        order=_order(method, options, keyed=keyed),
        results=results,
        into=into,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        deadline=_deadline(method, options),
        retry=_retry(method, options.get("retry")),
        on_error=on_error,
        codec=codec,
        typed=typed,
        stores_results=options.get("store_results", True),
        result_codec=result_codec,
        results_typed=results_typed,
        uses_resource=using is not None,
    )
    check_plain(method, settings)
    return settings


def handler_settings(process: Callable[..., Any], options: CallOptions[Any]) -> CallSettings:
    """The settings of ``process_async``. Raises as ``call_settings`` does."""
    if "cache" in options:
        raise FlowDefinitionError(
            "process_async(cache=…): what a handler gives depends on the state of its key, so no other record can have "
            "it; keep what was asked for in the state"
        )
    for name in _RESULT_OPTIONS:
        if name in options:
            raise FlowDefinitionError(
                f"process_async({name}=…): a handler takes effect as a whole, state and timers included, so its "
                f"results are not stored without it; leave {name} out"
            )
    return call_settings("process_async", process, options, CallResults.MANY, keyed=True)


def _result_codec(
    method: str, options: CallOptions[Any], results: CallResults
) -> tuple[Codec[Any], bool]:
    """Return the codec of stored results, and whether it is for one type. Raises ``FlowDefinitionError``."""
    stores: object = options.get("store_results", True)
    if type(stores) is not bool:
        raise FlowDefinitionError(
            f"{method}(store_results=…) takes True or False, not {shown(stores)}"
        )
    of, codec = options.get("result_of"), options.get("result_codec")
    if of is None and codec is None:
        return RECORDS, False
    name = "result_of" if codec is None else "result_codec"
    if not stores:
        raise FlowDefinitionError(f"{method}({name}=…) has no effect with store_results=False")
    if results is CallResults.KEEP:
        raise FlowDefinitionError(
            f"{method}({name}=…): what is stored of a result is whether the record is kept; leave {name} out"
        )
    try:
        return state_codec(of, codec), True
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{method}(), for its results: {exc}") from exc


def group_size(method: str, size: object, delay: timedelta) -> GroupSize:
    """Return the size of groups. Raises ``FlowDefinitionError``."""
    if type(size) is not int or size < 1:
        raise FlowDefinitionError(
            f"{method}(size=…) takes the most records of a call, from 1 on, not {shown(size)}"
        )
    millis = to_millis(delay, what=f"{method}(delay=…)")
    if millis < 0:
        raise FlowDefinitionError(f"{method}(delay=…) must not be negative: {delay!r}")
    return GroupSize(size, millis)


def _duration(method: str, name: str, given: timedelta | None) -> int | None:
    return None if given is None else positive_millis(given, what=f"{method}({name}=…)")


def _deadline(method: str, options: CallOptions[Any]) -> Callable[[Any], Instant] | None:
    deadline = options.get("deadline")
    if deadline is not None and not callable(deadline):
        raise FlowDefinitionError(
            f"{method}(deadline=…) takes a function from a value to a moment, not {shown(deadline)}"
        )
    return deadline


def _capacity(method: str, capacity: object) -> tuple[int, Adaptive | None]:
    if isinstance(capacity, Adaptive):
        return capacity.most, capacity
    if type(capacity) is not int or capacity < 1:
        raise FlowDefinitionError(
            f"{method}(capacity=…) takes the number of calls in flight, at least 1, or aflow.calls.Adaptive(), "
            f"not {shown(capacity)}"
        )
    return capacity, None


def _one_of(method: str, name: str, given: S | None, kind: type[S]) -> S | None:
    if given is None or isinstance(given, kind):
        return given
    raise FlowDefinitionError(
        f"{method}({name}=…) takes aflow.calls.{kind.__name__}(…), not {shown(given)}"
    )


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
            f"{method}(retry=…) takes Retry(…) or an object with a method again(failed, random), not {shown(retry)}"
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
