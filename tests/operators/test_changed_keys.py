"""Records of changed keys: their content, their start, and their limits."""

from __future__ import annotations

import pytest

from aflow.operators import changed_keys
from aflow.operators.changed_keys import ChangedKeys, too_many


def test_nothing_is_noted_before_the_first_capture() -> None:
    changed = ChangedKeys()
    changed.add(["a"])

    assert not changed.noted
    assert changed.take(changes=True) is None


def test_changes_since_the_last_capture_are_recorded() -> None:
    changed = ChangedKeys()
    changed.take(changes=False)
    changed.add(["a", "b"])
    changed.add(["a"])

    assert changed.take(changes=True) == {"a", "b"}
    assert changed.take(changes=True) == set()


def test_recording_also_restarts_at_a_complete_capture() -> None:
    changed = ChangedKeys()
    changed.begin()
    changed.add(["a"])

    assert changed.take(changes=False) is None
    assert changed.take(changes=True) == set()


def test_recorded_changes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_keys, "_MOST", 10)
    changed = ChangedKeys()
    changed.begin()

    changed.add(range(11))

    assert not changed.noted
    assert changed.take(changes=True) is None
    assert changed.noted


@pytest.mark.parametrize(
    ("keys", "rows", "all_rows", "expected"),
    [(400, 400, 1_000, False), (600, 600, 1_000, True), (600, 1_200, 3_000, False),
     (600, 1_800, 3_000, True), (600, 0, 500, True), (200, 200, 200, False)],
)  # fmt: skip
def test_more_than_half_of_all_is_too_much_unless_it_is_little(
    keys: int, rows: int, all_rows: int, expected: bool
) -> None:
    assert too_many(range(keys), rows, all_rows) is expected


def test_changes_of_equal_keys_of_several_types_cannot_be_identified() -> None:
    changed = ChangedKeys()
    changed.observe([1, 2])
    changed.begin()

    changed.add([True])

    assert changed.take(changes=True) is None
    changed.add([2])
    assert changed.take(changes=True) is None
