"""One call for all records that need its result while it is under way."""

from __future__ import annotations

from aflow.machines.calls.cache import KeysInFlight


def test_the_first_call_of_a_key_leads_and_others_follow() -> None:
    keys: KeysInFlight[str] = KeysInFlight()

    assert [keys.join("k", call) for call in ("a", "b", "c")] == ["a", "a", "a"]
    assert keys.join("other", "d") == "d"
    assert [keys.leads("k", call) for call in ("a", "b")] == [True, False]
    assert keys.followers("k") == ("b", "c")
    assert (len(keys), keys.following) == (2, 2)


def test_followers_get_the_result_of_the_leader_in_the_order_of_arrival() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.finish("k") == ("b", "c")
    assert (len(keys), keys.following) == (0, 0)


def test_after_the_leader_has_its_result_the_next_call_of_the_key_leads() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    keys.join("k", "a")
    keys.join("k", "b")
    keys.finish("k")

    assert keys.join("k", "c") == "c"
    assert keys.finish("k") == ()


def test_the_oldest_follower_replaces_a_removed_leader() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.leave("k", "a") == "b"
    assert keys.finish("k") == ("c",)


def test_a_removed_leader_without_followers_frees_the_key() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    keys.join("k", "a")

    assert keys.leave("k", "a") is None
    assert len(keys) == 0
    assert keys.join("k", "b") == "b"


def test_a_follower_that_is_removed_gets_no_result_and_has_no_effect_on_others() -> None:
    keys: KeysInFlight[str] = KeysInFlight()
    for call in ("a", "b", "c"):
        keys.join("k", call)

    assert keys.leave("k", "b") is None
    assert keys.finish("k") == ("c",)


def test_equal_calls_are_distinguished() -> None:
    keys: KeysInFlight[list[int]] = KeysInFlight()
    first, second, third = [1], [1], [1]

    assert all(keys.join("k", call) is first for call in (first, second, third))
    assert keys.leave("k", second) is None
    following = keys.leave("k", first)
    assert following is third
