"""PostgreSQL: rows written exactly once, rows that replace each other by key, the rows of a table, and its changes.

::

    from aflow_connectors.postgres import PostgresChanges, PostgresSink, PostgresTable, PostgresUpsert

    changes = flow.source(PostgresChanges("postgresql://shop@localhost/shop", "orders", of=Order, slot="shop"))
    orders = flow.source(PostgresTable("postgresql://shop@localhost/shop", "orders", key="id", of=Order))
    payments.to(PostgresSink("postgresql://shop@localhost/shop", "payments"), name="payments")
    totals.to(PostgresUpsert("postgresql://shop@localhost/shop", "totals", key="card"), name="totals")

Read ``sink.py`` first, then ``staged_rows.py``, which has the protocol of exactly-once rows. The client is ``asyncpg``.
``changes`` is the source of changes.
"""

from __future__ import annotations

from aflow_connectors.postgres.changes.change import Change, ChangeKind
from aflow_connectors.postgres.changes.source import PostgresChanges
from aflow_connectors.postgres.sink import PostgresSink, PostgresUpsert
from aflow_connectors.postgres.table_source import PostgresTable
from aflow_connectors.rows import RowOf

__all__ = [
    "Change",
    "ChangeKind",
    "PostgresChanges",
    "PostgresSink",
    "PostgresTable",
    "PostgresUpsert",
    "RowOf",
]
