"""Kafka as a source and a sink, with exactly-once results.

::

    from aflow_connectors.kafka import KafkaSink, KafkaSource

    orders = flow.source(KafkaSource("localhost:9092", "orders", of=Order), name="orders")
    totals.to(KafkaSink("localhost:9092", "totals", key=lambda total: total.customer), name="totals")

Needs aiokafka (the extra ``kafka``). Read ``source.py`` and ``partition.py`` first, then ``sink.py`` and
``transactions.py``, which has the protocol of exactly-once output. ``client.py`` is the adapter to aiokafka.
"""

from __future__ import annotations

from aflow_connectors.kafka.sink import KafkaSink
from aflow_connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
