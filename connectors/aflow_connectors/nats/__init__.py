"""NATS JetStream as a source and a sink, with exactly-once results.

::

    from aflow_connectors.nats import NatsSink, NatsSource

    orders = flow.source(NatsSource("nats://localhost:4222", "orders", of=Order), name="orders")
    totals.to(NatsSink("nats://localhost:4222", "totals"), name="totals")

Needs nats-py (the extra ``nats``). Read ``source.py`` and ``stream.py`` first, then ``sink.py`` and ``epochs.py``,
which has the protocol of exactly-once output. ``client.py`` is the adapter to the client.
"""

from __future__ import annotations

from aflow_connectors.nats.sink import NatsSink
from aflow_connectors.nats.source import NatsSource

__all__ = ["NatsSink", "NatsSource"]
