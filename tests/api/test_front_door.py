"""The front door: names that have moved to groups are found there, with a warning."""

from __future__ import annotations

import pytest

import aflow as af


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("RateLimit", "calls"),
        ("ExponentialDelay", "restart"),
        ("Unaligned", "checkpoints"),
        ("Trigger", "triggers"),
        ("Delivery", "connect"),
        ("Results", "streams"),
    ],
)
def test_a_name_that_has_moved_is_found_with_a_warning(name: str, place: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"aflow\.{name} is aflow\.{place}\.{name} now"):
        found = getattr(af, name)

    assert found is getattr(getattr(af, place), name)


@pytest.mark.parametrize("name", ["RateLimits", "Delta", "Chunk"])
def test_a_name_that_never_was_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'aflow' has no attribute '{name}'"):
        getattr(af, name)
