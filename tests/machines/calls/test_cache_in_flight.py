"""One call for all records that need its result while it is under way."""

from __future__ import annotations

import pytest

from aflow.machines.calls.cache import KeysInFlight


def test_the_first_call_of_a_key_leads_and_others_follow() -> None:
    keys: KeysInFlight[str] = KeysInFlight()

    assert [keys.join("k", call) for call in ("a", "b", "c")] == [True, False, False]
    assert keys.join("other", "d")
    assert (len(keys), keys.following) == (2, 2)


def test_followers_share_what_the_leader_gets_in_the_order_in_which_they_came() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.finish("k") == ("b", "c")
    assert (len(keys), keys.following) == (0, 0)


def test_once_the_leader_has_its_result_the_next_call_of_the_key_leads() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    keys.join("k", "a")
    keys.join("k", "b")
    keys.finish("k")

    assert keys.join("k", "c")
    assert keys.finish("k") == ()


def test_a_leader_that_leaves_is_followed_by_the_oldest_of_those_that_wait() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.leave("k", "a") == "b"
    assert keys.finish("k") == ("c",)


def test_a_leader_that_leaves_alone_frees_the_key() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    keys.join("k", "a")

    assert keys.leave("k", "a") is None
    assert len(keys) == 0
    assert keys.join("k", "b")


def test_a_follower_that_leaves_gets_nothing_and_harms_nobody() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.leave("k", "b") is None
    assert keys.finish("k") == ("c",)


def test_calls_are_told_apart_even_if_they_are_equal() -> None:
    keys: KeysInFlight[list[int]] = KeysInFlight()
    first, second, third = [1], [1], [1]

    assert [keys.join("k", call) for call in (first, second, third)] == [True, False, False]
    assert keys.leave("k", second) is None
    following = keys.leave("k", first)
    assert following is third


def test_a_key_that_cannot_be_hashed_is_named() -> None:
    keys: KeysInFlight[str] = KeysInFlight()

    with pytest.raises(TypeError, match=r"the cache key \{\} cannot be hashed"):
        keys.join({}, "a")  # type: ignore[arg-type]
