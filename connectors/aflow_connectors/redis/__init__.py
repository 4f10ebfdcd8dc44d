"""Redis as a source and a sink: streams, hashes and strings, with exactly-once results.

::

    from aflow_connectors.redis import RedisSink, RedisSource

    orders = flow.source(RedisSource("redis://localhost:6379/0", "orders", of=Order), name="orders")
    totals.to(RedisSink("redis://localhost:6379/0", "totals"), name="totals")

Needs redis (the extra ``redis``). Read ``source.py`` and ``stream.py`` first, then ``sink.py`` and ``epochs.py``, which
has the protocol of exactly-once output. ``client.py`` is the adapter to the client, ``scripts.py`` runs in the server.
"""

from __future__ import annotations

from aflow_connectors.redis.sink import RedisSink, RedisUpsert
from aflow_connectors.redis.source import RedisSource

__all__ = ["RedisSink", "RedisSource", "RedisUpsert"]
