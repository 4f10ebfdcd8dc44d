"""``DeliveryLedger``: messages from their delivery to the acknowledgement."""

from __future__ import annotations

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
