"""SQLite as a sink: rows that are there exactly once, and rows that replace each other by key.

::

    from aflow_connectors.sqlite import SqliteSink, SqliteUpsert

    payments.to(SqliteSink("shop.db", "payments"), name="payments")
    totals.to(SqliteUpsert("shop.db", "totals", key="card"), name="totals")

The standard library's ``sqlite3`` does the work, in worker threads.
"""

from __future__ import annotations

from aflow_connectors.sqlite.sink import RowOf, SqliteSink, SqliteUpsert

__all__ = ["RowOf", "SqliteSink", "SqliteUpsert"]
