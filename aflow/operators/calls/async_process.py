"""``AsyncKeyedProcess``: the class that users subclass for async handlers with state and timers for each key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Hashable, Iterable
from dataclasses import dataclass
from inspect import getattr_static, isasyncgenfunction, iscoroutinefunction
from typing import Any, Generic, TypeGuard, TypeVar, cast

from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.model.resource import Resource
from aflow.model.tags import Tag
from aflow.model.time import Clock, Instant, TimeDomain, Timestamp
from aflow.operators.context import no_clock, timer_moment, undeclared
from aflow.operators.process import LifeCycle, check_kind
from aflow.state.broadcast import keyed_states
from aflow.state.specs import StateSpec
from aflow.state.transactions import Transaction

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
R = TypeVar("R")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """A timer whose handler failed: the value that ``Fallback`` functions and dead letters get in place of a record's.

    Dead letters have it as ``FailedRecord.value``.
    """

    key: Hashable
    at: Timestamp
    """The time for which it was registered (epoch ms)."""
    domain: TimeDomain


@dataclass(frozen=True, slots=True)
class TimerChange:
    """A timer that a handler registered, or deleted."""

    domain: TimeDomain
    at: Timestamp
    there: bool


class Effects:
    """The buffered effects of one attempt of a handler."""

    __slots__ = ("clocked", "sides", "step", "timers", "transaction")

    def __init__(self, step: str, transaction: Transaction, *, clocked: bool = True) -> None:
        self.step = step
        #: True if there is a clock for timers.
        self.clocked = clocked
        self.transaction = transaction
        #: In the order in which they were made.
        self.timers: list[TimerChange] = []
        #: Tags and values.
        self.sides: list[tuple[str, Any]] = []

    def check(self, what: str) -> None:
        """Raises ``OperatorError`` after the end of the handler."""
        if self.transaction.over:
            key = self.transaction.key
            raise OperatorError(
                f"step {self.step!r} used {what} of a handler of key {shown(key)} after its end; use the context "
                f"before the handler returns, and not at all once it was cancelled",
                operator=self.step,
                key=key,
            )


class AsyncContext(Generic[K]):
    """The context of a handler of an ``AsyncKeyedProcess``.

    Each call of a handler has its own, for the same record (or timer) from its start to its end, however often it
    awaits. Effects are applied when the results of the handler are emitted. After the end of the handler all methods
    raise ``OperatorError``.
    """

    __slots__ = ("_clock", "_effects", "_resource", "_timer_domain", "_timestamp", "_watermark")

    def __init__(
        self,
        effects: Effects,
        clock: Clock,
        timestamp: Timestamp | None,
        watermark: Timestamp,
        timer_domain: TimeDomain | None,
        resource: tuple[Resource[Any] | None, object] = (None, None),
    ) -> None:
        """``resource`` is the declaration in the function, and the object that it opened."""
        self._resource = resource
        self._effects = effects
        self._clock = clock
        self._timestamp = timestamp
        self._watermark = watermark
        self._timer_domain = timer_domain

    @property
    def key(self) -> K:
        """The key of the record or timer being handled."""
        self._effects.check("the key")
        return cast("K", self._effects.transaction.key)  # key_by made it: the stream's type says so

    @property
    def timestamp(self) -> Timestamp | None:
        """The timestamp of the record (epoch ms); None without event time, and in a processing-time timer."""
        self._effects.check("the timestamp")
        return self._timestamp

    @property
    def watermark(self) -> Timestamp:
        """The watermark at the arrival of the record (epoch ms); in an event timer, the one that it fires for.

        ``MIN_TIMESTAMP`` before the first watermark. It does not change while the handler awaits.
        """
        self._effects.check("the watermark")
        return self._watermark

    @property
    def timer_domain(self) -> TimeDomain | None:
        """The time domain of the timer in ``on_timer``; None in ``process``."""
        self._effects.check("the timer domain")
        return self._timer_domain

    @property
    def processing_time(self) -> Timestamp:
        """The time of the clock (epoch ms)."""
        self._effects.check("the clock")
        return self._clock.now()

    def side(self, tag: Tag[S], value: S) -> None:
        """Send ``value`` to side output ``tag``, with the timestamp of the record being handled."""
        self._effects.check(f"the side output {tag.name!r}")
        self._effects.sides.append((tag.name, value))

    def state(self, spec: StateSpec[C]) -> C:
        """The cell of a declaration, bound to the key of this handler: ``ctx.state(self.last).get()``.

        Reads show what is committed and what this handler has written. Raises ``FlowDefinitionError`` for a
        declaration that is no attribute of the process function.
        """
        transaction = self._effects.transaction
        try:
            return transaction.cell(spec)
        except KeyError:
            raise undeclared(spec, transaction.declared) from None

    def use(self, resource: Resource[R]) -> R:
        """Return the object that a ``Resource``, an attribute of the process function, opened: ``ctx.use(self.http)``.

        Raises ``FlowDefinitionError`` for another one.
        """
        self._effects.check("a resource")
        declared, opened = self._resource
        if resource is not declared:
            raise FlowDefinitionError(
                f"use() takes the Resource that is an attribute of the process function, not {shown(resource)}; "
                f"only that one has been opened"
            )
        return cast("R", opened)  # the resource has opened it: its type says so

    def set_event_timer(self, at: Instant) -> None:
        """Have ``on_timer`` called for this key once the watermark reaches ``at`` (aware ``datetime`` or epoch ms).

        Setting the same moment again changes nothing. One that the watermark has passed fires when it next advances.
        """
        self._change(TimeDomain.EVENT, at, there=True)

    def set_processing_timer(self, at: Instant) -> None:
        """Have ``on_timer`` called for this key once the clock reaches ``at`` (aware ``datetime`` or epoch ms).

        Setting the same moment again changes nothing. Timers that did not fire before the end of the input are
        dropped. Raises ``FlowDefinitionError`` over history, which has no clock.
        """
        if not self._effects.clocked:
            raise no_clock()
        self._change(TimeDomain.PROCESSING, at, there=True)

    def delete_event_timer(self, at: Instant) -> None:
        """Delete the event timer of this key at ``at``, if there is one."""
        self._change(TimeDomain.EVENT, at, there=False)

    def delete_processing_timer(self, at: Instant) -> None:
        """Delete the processing timer of this key at ``at``, if there is one."""
        self._change(TimeDomain.PROCESSING, at, there=False)

    def _change(self, domain: TimeDomain, at: Instant, *, there: bool) -> None:
        self._effects.check("a timer")
        moment = timer_moment(at)
        self._effects.timers.append(TimerChange(domain, moment, there))


class AsyncKeyedProcess(LifeCycle, Generic[K, T, U]):
    """Subclass it: async handlers of records ``T``, with state and timers for each key ``K``, and with results ``U``.

    Handlers are ``async def`` methods. One runs at a time for each key, in the order of the stream; handlers of
    other keys run concurrently. A handler is a transaction: its state, timers, side outputs and results take effect
    together, when the results are emitted. If it fails, times out or is retried, or if the job restarts, all of them
    are discarded. External effects may happen twice.

    State is declared as class attributes, ``last = ValueState("last", of=Payment)``, and accessed as
    ``ctx.state(self.last)``. A ``Resource`` may be an attribute too, ``http = Resource(aiohttp.ClientSession)``;
    ``ctx.use(self.http)`` returns the object that it opened. Other attributes of ``self`` are shared by all keys and
    all running handlers, and are in no snapshot.
    """

    preceding_call = ".key_by(…)"

    @abstractmethod
    def process(self, value: T, ctx: AsyncContext[K]) -> Awaitable[Iterable[U] | None]:
        """Return the results for ``value``, a list or None for none: ``async def process(self, value, ctx): …``.

        Results have the timestamp of the record.
        """

    def on_timer(self, at: Timestamp, ctx: AsyncContext[K]) -> Awaitable[Iterable[U] | None]:
        """Return the results for a timer of ``ctx.key`` at ``at`` (epoch ms) in the domain ``ctx.timer_domain``.

        Event timers fire when the watermark reaches them: those of a key in time order, between its records before the
        watermark and those after it, and before the watermark is emitted. Results have the timestamp ``at``. All event
        timers fire at the end of a bounded input. Processing timers fire by the clock, after the earlier records of
        their key, and not after the end of the input. Their results have no timestamp.
        """
        raise NotImplementedError(f"{type(self).__name__} sets timers and needs an on_timer method")


def resource_of(function: AsyncKeyedProcess[Any, Any, Any]) -> Resource[Any] | None:
    """Return the ``Resource`` that is an attribute of ``function``; None if there is none.

    Raises ``FlowDefinitionError`` if there are several.
    """
    names: dict[Resource[Any], str] = {}
    for name in (*dir(type(function)), *vars(function)):
        value = getattr_static(function, name, None)
        if _is_resource(value):
            names.setdefault(value, name)
    if len(names) > 1:
        raise FlowDefinitionError(
            f"{type(function).__name__} declares several resources ({', '.join(names.values())}); open them together "
            f"in one: an async context manager with an AsyncExitStack"
        )
    return next(iter(names), None)


def _is_resource(value: object) -> TypeGuard[Resource[Any]]:
    return isinstance(value, Resource)


def check_async_keyed_process(function: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``function`` is an ``AsyncKeyedProcess`` with valid methods and states."""
    check_kind(function, AsyncKeyedProcess, handlers=())
    for name in ("process", "on_timer"):
        if isasyncgenfunction(getattr(function, name)):
            raise FlowDefinitionError(
                f"{type(function).__name__}.{name} yields its results; return them as a list: they leave together, "
                f"once the handler has come to its end"
            )
    for name in ("open", "close"):
        method = getattr(function, name)
        if iscoroutinefunction(method) or isasyncgenfunction(method):
            raise FlowDefinitionError(
                f"{type(function).__name__}.{name} is a coroutine function, and is called without being awaited: make "
                f"it a plain method"
            )
    keyed_states(function)
