"""``DeliveryLedger``: messages from their delivery to the acknowledgement."""

from __future__ import annotations

from typing import cast

from aflow_connectors.deliveries import DeliveryLedger
from aflow_connectors.message_ids import hashed


def test_a_restored_message_is_recognised_though_a_checkpoint_completes_before_its_redelivery() -> (
    None
):
    ids = [hashed(b"%d" % number) for number in range(200)]
    tags = list(range(1, 201))
    before = DeliveryLedger("queue", None, remember=0, prefetch=200)
    before.read(before.recognise(ids), tags)
    restored = DeliveryLedger("queue", before.position(), remember=0, prefetch=200)

    restored.read(restored.recognise(ids[:100]), tags[:100])
    restored.settle(restored.last)

    assert restored.recognise(ids[100:]).fresh == []


def test_messages_are_recognised_though_a_restart_has_a_smaller_prefetch() -> None:
    ids = [hashed(b"%d" % number) for number in range(400)]
    tags = list(range(1, 401))
    before = DeliveryLedger("queue", None, remember=0, prefetch=400)
    before.read(before.recognise(ids), tags)
    restored = DeliveryLedger("queue", before.position(), remember=0, prefetch=10)

    for start in range(0, 200, 10):  # the server delivers ten messages at a time
        part = slice(start, start + 10)
        recognised = restored.recognise(ids[part])
        assert recognised.fresh == []
        restored.read(recognised, tags[part])
        restored.settle(restored.last)
    again = DeliveryLedger("queue", restored.position(), remember=0, prefetch=10)
    again.settle(again.last)

    assert again.recognise(ids[200:]).fresh == []


def test_a_position_of_an_earlier_version_is_restored() -> None:
    ids = [hashed(b"%d" % number) for number in range(100)]
    ledger = DeliveryLedger("queue", None, remember=0, prefetch=100)
    ledger.read(ledger.recognise(ids), range(100))
    last, blocks, tail, _ = cast("tuple[object, ...]", ledger.position())

    restored = DeliveryLedger("queue", (last, blocks, tail), remember=0, prefetch=100)

    assert restored.last == 100
    assert restored.recognise(ids).fresh == []
