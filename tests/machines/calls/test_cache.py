"""Results that are kept for equal keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.cache import Cache, ResultCache, check_cache_key, without_tracebacks


def found(results: ResultCache, key: str, now: int = 0) -> Any:
    """Return the result kept for ``key``, which must exist."""
    kept = results.get(key, now)
    assert kept is not None
    return kept.result


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


class NotFoundError(Exception):
    """The wanted object does not exist."""


def test_a_result_is_given_to_equal_keys_and_to_no_others() -> None:
    results = ResultCache(Cache(10))

    results.put("a", 1, 0)

    assert found(results, "a") == 1
    assert results.get("b", 0) is None
    assert (results.hits, results.misses) == (1, 1)


def test_a_result_that_is_none_is_a_hit() -> None:
    results = ResultCache(Cache(10))

    results.put("a", None, 0)

    assert found(results, "a") is None
    assert results.hits == 1


def test_the_least_recently_used_result_is_evicted() -> None:
    results = ResultCache(Cache(2))
    results.put("a", 1, 0)
    results.put("b", 2, 0)
    results.get("a", 0)

    results.put("c", 3, 0)

    assert [results.get(key, 0) is not None for key in "abc"] == [True, False, True]
    assert (len(results), results.evictions) == (2, 1)


def test_a_result_is_too_old_once_its_time_has_passed_and_not_a_moment_before() -> None:
    results = ResultCache(Cache(10, ttl=seconds(1)))

    results.put("a", 1, 500)

    assert found(results, "a", 1499) == 1
    assert results.get("a", 1500) is None
    assert (len(results), results.expired, results.misses) == (0, 1, 1)


def test_using_a_result_does_not_prolong_its_time() -> None:
    results = ResultCache(Cache(10, ttl=seconds(1)))
    results.put("a", 1, 0)

    results.get("a", 999)

    assert results.get("a", 1000) is None


def test_a_newer_result_has_its_own_time_to_live() -> None:
    results = ResultCache(Cache(10, ttl=seconds(1)))
    results.put("a", 1, 0)

    results.put("a", 2, 900)

    assert found(results, "a", 1899) == 2
    assert results.get("a", 1900) is None


def test_without_a_time_a_result_is_never_too_old() -> None:
    results = ResultCache(Cache(10))

    results.put("a", 1, 0)

    assert found(results, "a", 10**15) == 1


def test_expired_results_are_evicted_before_valid_ones() -> None:
    results = ResultCache(Cache(2, ttl=seconds(1)))
    results.put("old", 1, 0)
    results.put("young", 2, 900)
    results.get("old", 950)

    results.put("new", 3, 1000)

    assert found(results, "young", 1000) == 2
    assert (results.expired, results.evictions) == (1, 0)


def test_expired_results_are_removed_without_a_lookup() -> None:
    results = ResultCache(Cache(1000, ttl=seconds(1)))
    for number in range(100):
        results.put(f"old {number}", number, 0)

    for number in range(100):
        results.put(f"new {number}", number, 1000)

    assert len(results) == 100
    assert (results.expired, results.evictions) == (100, 0)


def test_what_says_that_there_is_nothing_has_a_time_of_its_own() -> None:
    results = ResultCache(Cache(10, ttl=seconds(10), negative_ttl=seconds(1)))
    results.put("nothing", None, 0)
    results.put("something", 1, 0)

    assert results.get("nothing", 1000) is None
    assert found(results, "something", 1000) == 1


def test_what_says_that_there_is_nothing_is_kept_as_long_as_others_by_default() -> None:
    results = ResultCache(Cache(10, ttl=seconds(10)))

    results.put("nothing", None, 0)

    assert found(results, "nothing", 9999) is None
    assert results.get("nothing", 10_000) is None


def test_what_says_that_there_is_nothing_is_not_kept_for_no_time() -> None:
    results = ResultCache(Cache(10, negative_ttl=seconds(0)))
    results.put("a", 1, 0)

    results.put("a", None, 0)

    assert results.get("a", 0) is None


def test_a_function_says_which_results_say_that_there_is_nothing() -> None:
    def is_empty(result: list[int]) -> bool:
        return not result

    results = ResultCache(Cache(10, negative_ttl=seconds(0), negative=is_empty))

    results.put("none", None, 0)
    results.put("some", [1], 0)

    assert results.get("none", 0) is None
    assert found(results, "some") == [1]


def test_errors_are_not_kept_unless_they_say_that_there_is_nothing() -> None:
    results = ResultCache(Cache(10, ttl=seconds(9), negative_ttl=seconds(1), errors=NotFoundError))
    missing = NotFoundError("a")

    assert results.put_error("a", missing, 0)
    assert not results.put_error("b", ConnectionError(), 0)

    kept = results.get("a", 999)
    assert kept is not None
    assert kept.error is missing
    assert results.get("b", 0) is None
    assert results.get("a", 1000) is None


def test_an_error_that_is_kept_keeps_nothing_of_the_call_that_raised_it() -> None:
    try:
        try:
            raise ConnectionError("404")
        except ConnectionError as exc:
            raise LookupError("a") from exc
    except LookupError as exc:
        error = exc

    without_tracebacks(error)

    assert error.__traceback__ is None
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None


def test_the_error_for_an_unhashable_key_names_it_and_the_correction() -> None:
    with pytest.raises(
        TypeError,
        match=re.escape("the cache key [1] cannot be hashed (unhashable type: 'list'); give"),
    ):
        check_cache_key([1])


def test_a_key_that_can_be_hashed_is_fine() -> None:
    check_cache_key(("a", 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Cache[Any, Any](0),
            "Cache.size must be a whole number of results from 1 on, not 0",
        ),
        (
            lambda: Cache[Any, Any](True),
            "Cache.size must be a whole number of results from 1 on, not True",
        ),
        (lambda: Cache[Any, Any](1, ttl=seconds(0)), "Cache.ttl must be longer than zero"),
        (lambda: Cache[Any, Any](1, ttl=5), "Cache.ttl must be a timedelta, not int: 5"),  # type: ignore[arg-type]
        (lambda: Cache[Any, Any](1, negative_ttl=seconds(-1)), "zero keeps no such results"),
        (lambda: Cache[Any, Any](1, key="id"), "Cache.key takes a function, not 'id'"),  # type: ignore[arg-type]
        (lambda: Cache[Any, Any](1, negative=0), "Cache.negative takes a function, not 0"),  # type: ignore[arg-type]
        (
            lambda: Cache[Any, Any](1, errors=(KeyError, "x")),  # type: ignore[arg-type]
            "Cache.errors takes a class of exceptions or a tuple of them, not (<class 'KeyError'>, 'x')",
        ),
        (
            lambda: Cache[Any, Any](1, errors=KeyboardInterrupt),  # type: ignore[arg-type]
            "Cache.errors takes a class of exceptions or a tuple of them",
        ),
    ],
    ids=("size", "bool", "ttl", "number", "negative", "key", "function", "errors", "exit"),
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        make()
