"""Fewer calls than records: results are kept for equal keys, and records that need the same result share one call.

Theory. A record has a *cache key*: its value, or what ``Cache.key`` gives for it. When it is its turn to be called for,
the step asks two machines, in this order:

1. ``ResultCache``: is a result for that key kept? Then that is the record's result.
2. ``KeysInFlight``: is a call for that key under way? Then the record is a *follower*: it is not called for, and gets
   what the *leader* gets, a result or the failure for which no attempt is left. A leader whose own time is up says
   nothing about the others: the oldest follower takes its place, and is called for. If no call is under way, the record
   is the leader.

So a key is kept or in flight, never both. Nothing here is state: a restored step begins without results and with no key
in flight, and calls for the records of its snapshot again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from math import inf
from typing import Any, Final, Generic, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.call import Call
from aflow.model.time import Timestamp, positive_millis, to_millis

C = TypeVar("C")
T_contra = TypeVar("T_contra", contravariant=True)
U_contra = TypeVar("U_contra", contravariant=True)

#: Expired entries that each ``put`` removes. It adds one entry, so they are removed faster than added.
_SWEPT: Final = 2


@dataclass(frozen=True)  # not slotted: on Python 3.11 a frozen, slotted generic raises
class Cache(Generic[T_contra, U_contra]):
    """Results of calls are kept, and given to later records with an equal key instead of a call.

    At most ``size`` of them in each subtask: the least recently used one is evicted. Each is kept for ``ttl`` from its
    arrival (None: until it is evicted), however often it is used. Records whose key is being called for wait for
    that one call. A result that says "there is nothing" (None, or what ``negative`` is true for) is kept for
    ``negative_ttl`` instead (None: for ``ttl``, zero: not at all). Failures are not kept, except those of the classes
    ``errors``, which say "there is nothing" too: ``on_error`` applies to each record with such a failure.

    ``key`` gives what must be equal, and can be hashed; by default that is the value. Equal is what Python calls so: 1,
    1.0 and True are. All records with a key get the same object, so later steps must not change it. Results are kept
    in memory, and are no part of checkpoints. Raises ``FlowDefinitionError``.
    """

    size: int
    _: KW_ONLY
    ttl: timedelta | None = None
    negative_ttl: timedelta | None = None
    key: Callable[[T_contra], Hashable] | None = None
    negative: Callable[[U_contra], bool] | None = None
    errors: type[Exception] | tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise FlowDefinitionError(
                f"Cache.size must be a whole number of results from 1 on, not {shown(self.size)}"
            )
        if self.ttl is not None:
            positive_millis(self.ttl, what="Cache.ttl")
        if self.negative_ttl is not None:
            to_millis(self.negative_ttl, what="Cache.negative_ttl")
            if self.negative_ttl < timedelta(0):
                raise FlowDefinitionError(
                    f"Cache.negative_ttl must not be negative, not {self.negative_ttl!r}; "
                    f"zero keeps no such results"
                )
        for what, function in (("key", self.key), ("negative", self.negative)):
            if function is not None and not callable(function):
                raise FlowDefinitionError(f"Cache.{what} takes a function, not {shown(function)}")
        several = self.errors if isinstance(self.errors, tuple) else (self.errors,)
        if not all(isinstance(one, type) and issubclass(one, Exception) for one in several):
            raise FlowDefinitionError(
                f"Cache.errors takes a class of exceptions or a tuple of them, not {shown(self.errors)}"
            )


class CachedResult:
    """The entry of a key: a result, which may be None, or an error."""

    __slots__ = ("ages", "error", "result", "until")

    result: Any
    error: Exception | None
    """Not None if the call failed with it; then there is no result."""
    until: Timestamp | None
    """The first moment (epoch ms) at which it is too old; None: never."""
    ages: OrderedDict[Hashable, Timestamp]
    """The index of its expiry, if it has one; used by the cache."""

    def __repr__(self) -> str:
        what = self.result if self.error is None else self.error
        return f"Kept({what!r}, until={self.until})"


class ResultCache:
    """Results by key, for a time, and at most so many. Moments are epoch ms of one clock; keys can be hashed."""

    __slots__ = (
        "_entries",
        "_negative_ages",
        "_negative_ttl",
        "_next_at",
        "_positive_ages",
        "_positive_ttl",
        "_settings",
        "evictions",
        "expired",
        "hits",
        "misses",
    )

    def __init__(self, settings: Cache[Any, Any]) -> None:
        self._settings = settings
        self.hits = 0
        self.misses = 0
        #: Entries that went as there were too many.
        self.evictions = 0
        #: Entries that went as they were too old.
        self.expired = 0
        #: The least recently used first; never more than ``size``.
        self._entries: OrderedDict[Hashable, CachedResult] = OrderedDict()
        #: In ms; None: for ever.
        self._positive_ttl = _millis(settings.ttl)
        self._negative_ttl = (
            self._positive_ttl if settings.negative_ttl is None else _millis(settings.negative_ttl)
        )
        #: Until when each entry is kept that is not kept for ever, by key. As all in one of the two are kept equally
        #: long, and are in order of arrival, the first expires before the others.
        self._positive_ages: OrderedDict[Hashable, Timestamp] = OrderedDict()
        self._negative_ages: OrderedDict[Hashable, Timestamp] = OrderedDict()
        #: Before this moment no entry is too old.
        self._next_at: Timestamp | float = inf

    def __len__(self) -> int:
        """Return the number of entries, expired ones included that were not removed yet."""
        return len(self._entries)

    def get(self, key: Hashable, now: Timestamp) -> CachedResult | None:
        """Return the entry of ``key``; None if there is none."""
        # Hot path: once for each record of a step with a cache, as is `put` for each call.
        kept = self._entries.get(key)
        if kept is None:
            self.misses += 1
            return None
        if kept.until is not None and kept.until <= now:
            self._drop(key)
            self.expired += 1
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return kept

    def put(self, key: Hashable, result: Any, now: Timestamp) -> None:
        """Keep ``result`` of a call for ``key``. Raises what ``Cache.negative`` raises."""
        negative = self._settings.negative
        if result is None if negative is None else negative(result):
            self._keep(key, result, None, now, self._negative_ttl, self._negative_ages)
        else:
            self._keep(key, result, None, now, self._positive_ttl, self._positive_ages)

    def put_error(self, key: Hashable, error: BaseException, now: Timestamp) -> bool:
        """Keep ``error`` of a call for ``key`` if its class is one to keep; return True then."""
        if not (isinstance(error, Exception) and isinstance(error, self._settings.errors)):
            return False
        self._keep(key, None, error, now, self._negative_ttl, self._negative_ages)
        return True

    def _keep(
        self,
        key: Hashable,
        result: Any,
        error: Exception | None,
        now: Timestamp,
        ttl: int | None,
        ages: OrderedDict[Hashable, Timestamp],
    ) -> None:
        if self._next_at <= now:
            self._sweep(now)
        entries, kept = self._entries, CachedResult()
        before = entries.pop(key, None)
        if before is not None and before.until is not None:
            del before.ages[key]
        if ttl == 0:
            return
        kept.result, kept.error, kept.until = result, error, None
        if ttl is not None:
            until = kept.until = ages[key] = now + ttl
            kept.ages = ages
            if until < self._next_at:
                self._next_at = until
        entries[key] = kept
        if len(entries) > self._settings.size:
            oldest, kept = entries.popitem(last=False)
            if kept.until is not None:
                del kept.ages[oldest]
            self.evictions += 1

    def _sweep(self, now: Timestamp) -> None:
        """Take out some of the entries that are too old: ``_SWEPT`` of each kind."""
        entries, next_at = self._entries, inf
        for ages in (self._positive_ages, self._negative_ages):
            left = _SWEPT
            while ages:
                until = ages[key := next(iter(ages))]
                if until > now or not left:
                    next_at = min(next_at, until)
                    break
                del entries[key], ages[key]
                self.expired += 1
                left -= 1
        self._next_at = next_at

    def _drop(self, key: Hashable) -> None:
        del self._entries.pop(key).ages[key]


class KeysInFlight(Generic[C]):
    """One call for each hashable key: its leader, and its followers. Calls are compared by identity."""

    __slots__ = ("_followers", "_leaders")

    def __init__(self) -> None:
        self._leaders: dict[Hashable, C] = {}
        #: By key: the followers, by identity, in order of arrival.
        self._followers: dict[Hashable, OrderedDict[int, C]] = {}

    def __len__(self) -> int:
        """Return the number of keys in flight."""
        return len(self._leaders)

    @property
    def following(self) -> int:
        """The number of calls that wait for another one."""
        return sum(map(len, self._followers.values()))

    def join(self, key: Hashable, call: C) -> C:
        """Return the leader of ``key``: ``call`` itself if the key was not in flight. It has to finish or leave."""
        # Hot path: once for each record of a step with a cache.
        leader = self._leaders.setdefault(key, call)
        if leader is not call:
            followers = self._followers.get(key)
            if followers is None:
                followers = self._followers[key] = OrderedDict()
            followers[id(call)] = call
        return leader

    def leads(self, key: Hashable, call: C) -> bool:
        """Return True if ``call`` is the leader."""
        return self._leaders.get(key) is call

    def followers(self, key: Hashable) -> Sequence[C]:
        """Return the calls that wait for the leader, in order of arrival."""
        followers = self._followers.get(key)
        return () if followers is None else tuple(followers.values())

    def finish(self, key: Hashable) -> Sequence[C]:
        """End the flight of ``key``: the leader has its result or failed. Return its followers, in order."""
        del self._leaders[key]
        followers = self._followers.pop(key, None)
        return () if followers is None else tuple(followers.values())

    def leave(self, key: Hashable, call: C) -> C | None:
        """Remove ``call``. Return the follower that leads in its place and has to be called, if any."""
        followers = self._followers.get(key)
        if self._leaders[key] is not call:
            assert followers is not None
            del followers[id(call)]
            following = None
        elif followers is None:
            del self._leaders[key]
            return None
        else:
            _, following = followers.popitem(last=False)
            self._leaders[key] = following
        if not followers:
            del self._followers[key]
        return following


class SharedResults:
    """The results that records share: those that are kept, and those in flight."""

    def __init__(self, settings: Cache[Any, Any]) -> None:
        self.results: Final = ResultCache(settings)
        self.keys: Final[KeysInFlight[Call]] = KeysInFlight()


def _millis(ttl: timedelta | None) -> int | None:
    return None if ttl is None else to_millis(ttl, what="the time that results are kept")


def check_cache_key(key: object) -> None:
    """Raises ``TypeError``, with what to do, for a key that cannot be hashed."""
    try:
        hash(key)
    except TypeError as exc:
        raise TypeError(
            f"the cache key {shown(key)} cannot be hashed ({exc}); give the step a Cache(key=…) that returns "
            f"something that can be, for example a str or a tuple of them"
        ) from exc


def without_tracebacks(error: BaseException) -> None:
    """Take them from an error that is kept: they would keep all that the call has held in its variables."""
    inner: BaseException | None = error
    while inner is not None and inner.__traceback__ is not None:
        inner.__traceback__ = None
        inner = inner.__context__
