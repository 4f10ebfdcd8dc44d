"""Delta Lake: the rows of a table, version by version, its changes, and rows that are added exactly once.

::

    from aflow_connectors.delta import DeltaSink, DeltaSource

    orders = flow.source(DeltaSource("s3://lake/orders", of=Order), name="orders")
    totals.to(DeltaSink("s3://lake/totals"), name="totals")

Read ``output.py`` first, which has the protocol of exactly-once rows. The client is ``deltalake``.
"""

from __future__ import annotations

from aflow_connectors.delta.sink import DeltaSink
from aflow_connectors.delta.source import ChangeKind, DeltaChanges, DeltaSource, RowChange

__all__ = ["ChangeKind", "DeltaChanges", "DeltaSink", "DeltaSource", "RowChange"]
