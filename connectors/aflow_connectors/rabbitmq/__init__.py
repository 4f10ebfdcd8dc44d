"""RabbitMQ: queues, which are acknowledged after checkpoints, streams by offset, and exchanges as a destination.

::

    from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource, RabbitmqStreamSource

    orders = flow.source(RabbitmqSource("amqp://shop@localhost/", "orders", of=Order), name="orders")
    clicks = flow.source(RabbitmqStreamSource("amqp://shop@localhost/", "clicks", of=Click), name="clicks")
    totals.to(RabbitmqSink("amqp://shop@localhost/", "totals", key=lambda total: total.card), name="totals")

Needs aio-pika (the extra ``rabbitmq``). Read ``source.py`` first, then ``queue_reader.py`` and ``deliveries.py``,
which have the protocol of exactly-once reading. ``client.py`` is the adapter to aio-pika.
"""

from __future__ import annotations

from aflow_connectors.rabbitmq.sink import RabbitmqSink
from aflow_connectors.rabbitmq.source import RabbitmqSource, RabbitmqStreamSource

__all__ = ["RabbitmqSink", "RabbitmqSource", "RabbitmqStreamSource"]
