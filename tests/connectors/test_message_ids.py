"""The window of ids by which messages are recognised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow_connectors.message_ids import MessageIds, hashed


def id_of(number: int) -> bytes:
    return hashed(b"%d" % number)


def filled(count: int, *, remember: int) -> MessageIds:
    ids = MessageIds(remember)
    for number in range(1, count + 1):
        ids.add(id_of(number), number)
    return ids


def known(ids: MessageIds, count: int) -> list[int]:
    return [n for n in range(1, count + 1) if ids.number_of(id_of(n)) is not None]


def test_an_id_has_the_number_of_its_message() -> None:
    ids = filled(200, remember=10)

    assert ids.number_of(id_of(7)) == 7
    assert ids.number_of(id_of(201)) is None


def test_messages_that_are_not_settled_are_kept() -> None:
    ids = filled(1000, remember=0)

    ids.settle(320)

    assert known(ids, 1000) == list(range(321, 1001))


def test_the_last_settled_messages_are_kept_in_blocks() -> None:
    ids = filled(1000, remember=300)

    ids.settle(1000)

    kept = known(ids, 1000)
    assert kept == list(range(kept[0], 1001))
    assert 300 <= len(kept) < 364


def test_positions_share_their_complete_blocks() -> None:
    ids = filled(640, remember=1000)
    first = ids.position()
    ids.add(id_of(641), 641)

    second = ids.position()

    assert first[0] is second[0]
    assert second[1] == id_of(641)


@given(st.integers(0, 300), st.integers(0, 200), st.integers(0, 300))
def test_a_restored_window_knows_the_same_ids(count: int, remember: int, settled: int) -> None:
    ids = filled(count, remember=remember)
    ids.settle(min(settled, count))

    restored = MessageIds(remember, ids.position(), count)

    assert known(restored, count) == known(ids, count)
    assert restored.position() == ids.position()
