"""PostgreSQL: rows written exactly once, and rows that replace each other by key.

::

    from aflow_connectors.postgres import PostgresSink, PostgresUpsert

    payments.to(PostgresSink("postgresql://shop@localhost/shop", "payments"), name="payments")
    totals.to(PostgresUpsert("postgresql://shop@localhost/shop", "totals", key="card"), name="totals")

Read ``sink.py`` first, then ``staged_rows.py``, which has the protocol of exactly-once rows. The client is ``asyncpg``.
"""

from __future__ import annotations

from aflow_connectors.postgres.sink import PostgresSink, PostgresUpsert
from aflow_connectors.rows import RowOf

__all__ = ["PostgresSink", "PostgresUpsert", "RowOf"]
