"""The front door: names that have moved to groups are found there, with a warning."""

from __future__ import annotations

import pytest

import aflow as af


@pytest.mark.parametrize(
    ("name", "place"),
    [("RateLimit", "calls"), ("ExponentialDelay", "restart"), ("Unaligned", "checkpoints")],
)
def test_a_name_that_has_moved_is_found_with_a_warning(name: str, place: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"aflow\.{name} is aflow\.{place}\.{name} now"):
        found = getattr(af, name)

    assert found is getattr(getattr(af, place), name)


def test_a_name_that_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'aflow' has no attribute 'RateLimits'"):
        getattr(af, "RateLimits")  # noqa: B009 — as a user writes it, but type checkers refuse that
