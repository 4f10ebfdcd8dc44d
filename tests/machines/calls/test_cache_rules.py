"""Rules that hold for all caches and all keys in flight."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.cache import Cache, KeysInFlight, ResultCache

KEYS = st.sampled_from("abcdef")
TTLS = st.none() | st.integers(1, 20)


def duration(millis: int | None) -> timedelta | None:
    return None if millis is None else timedelta(milliseconds=millis)


class CacheRules(RuleBasedStateMachine):
    """Against a list of all that was put: the last one of a key counts, if it is young enough and was not evicted."""

    @initialize(size=st.integers(1, 4), ttl=TTLS, negative_ttl=TTLS | st.just(0))
    def begin(self, size: int, ttl: int | None, negative_ttl: int | None) -> None:
        self.size, self.ttl = size, ttl
        self.negative_ttl = ttl if negative_ttl is None else negative_ttl
        self.results = ResultCache(
            Cache(size, ttl=duration(ttl), negative_ttl=duration(negative_ttl), errors=LookupError)
        )
        self.now = 1000
        self.gets = 0
        #: By key, the least recently used first: the result, and until when it is kept.
        self.model: dict[str, tuple[object, float]] = {}

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        kept = self.results.get(key, self.now)

        self.gets += 1
        result, until = self.model.get(key, (None, 0))
        if until > self.now:
            assert kept is not None
            assert (kept.error or kept.result) == result
            self.model[key] = self.model.pop(key)
        else:
            assert kept is None
            self.model.pop(key, None)

    @rule(key=KEYS, result=st.none() | st.integers(1, 9))
    def put(self, key: str, result: int | None) -> None:
        self.results.put(key, result, self.now)

        self.note(key, result, self.negative_ttl if result is None else self.ttl)

    @rule(key=KEYS)
    def fail_with_what_is_kept(self, key: str) -> None:
        error = LookupError()
        self.results.put_error(key, error, self.now)

        self.note(key, error, self.negative_ttl)

    @rule(key=KEYS)
    def fail_with_what_is_not_kept(self, key: str) -> None:
        self.results.put_error(key, ValueError(), self.now)

    def note(self, key: str, result: object, ttl: int | None) -> None:
        self.model.pop(key, None)
        if ttl != 0:
            self.model[key] = result, float("inf") if ttl is None else self.now + ttl
        # Expired results are removed at any time, so only the eviction of valid ones is predictable.
        live = [key for key, (_, until) in self.model.items() if until > self.now]
        if len(live) > self.size:
            del self.model[live[0]]

    @rule(after=st.integers(1, 15))
    def wait(self, after: int) -> None:
        self.now += after

    @invariant()
    def there_are_never_too_many(self) -> None:
        if hasattr(self, "results"):
            assert len(self.results) <= self.size

    @invariant()
    def each_get_is_a_hit_or_a_miss(self) -> None:
        if hasattr(self, "results"):
            assert self.results.hits + self.results.misses == self.gets


TestCacheRules = CacheRules.TestCase


class InFlightRules(RuleBasedStateMachine):
    """Calls that are added, removed and completed, compared with one list for each key, the leader first."""

    calls: Bundle[tuple[str, list[str]]] = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.keys: KeysInFlight[list[str]] = KeysInFlight()
        self.model: dict[str, list[list[str]]] = {}

    def here(self, key: str, call: list[str]) -> bool:
        return any(one is call for one in self.model.get(key, ()))

    @rule(target=calls, key=KEYS)
    def join(self, key: str) -> tuple[str, list[str]]:
        call = [key]
        leader = self.keys.join(key, call)

        self.model.setdefault(key, []).append(call)
        assert leader is self.model[key][0]
        return key, call

    @rule(one=consumes(calls))
    def leave(self, one: tuple[str, list[str]]) -> None:
        key, call = one
        if not self.here(key, call):
            return
        led = self.model[key][0] is call
        following = self.keys.leave(key, call)

        left = [one for one in self.model.pop(key) if one is not call]
        if left:
            self.model[key] = left
        assert following is (left[0] if led and left else None)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        followers = self.keys.finish(key)

        expected = self.model.pop(key)[1:]
        assert list(map(id, followers)) == list(map(id, expected))

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert len(self.keys) == len(self.model)
        assert self.keys.following == sum(len(calls) - 1 for calls in self.model.values())


TestInFlightRules = InFlightRules.TestCase
