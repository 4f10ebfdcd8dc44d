"""The versions of an as-of join: their number and their cost."""

from __future__ import annotations

import pytest

from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.operators.joins.versions import Versions
from aflow.operators.pieces import OnePiece


def advance(versions: Versions, watermark: Timestamp) -> None:
    OnePiece().run(versions.advance(watermark, ChangedKeys().add))


@pytest.mark.parametrize("tolerance", [None, 5_000])
def test_a_key_is_checked_once_however_often_it_got_a_new_version(tolerance: int | None) -> None:
    versions = Versions(tolerance)

    for second in range(50):
        for watermark in range(second * 1_000, second * 1_000 + 1_000, 100):
            advance(versions, watermark)
            if watermark % 1_000 == 600:
                versions.put("key", watermark + 900, "a second after the one before")

    assert list(versions.expiry.due(MAX_TIMESTAMP - 1)) == ["key"]


def test_a_key_that_was_checked_is_checked_again_for_later_versions() -> None:
    versions = Versions(None)
    for at in (0, 1_000):
        versions.put("key", at, at)
    advance(versions, 1_000)
    for at in (2_000, 3_000):
        versions.put("key", at, at)

    advance(versions, 3_000)

    assert versions.size() == 1
