"""SQLite as a sink: rows written exactly once, and rows that replace each other by key.

::

    from aflow_connectors.sqlite import SqliteSink, SqliteUpsert

    payments.to(SqliteSink("shop.db", "payments"), name="payments")
    totals.to(SqliteUpsert("shop.db", "totals", key="card"), name="totals")

Read ``sink.py`` first, then ``staged_rows.py``, which has the protocol of exactly-once rows. The module ``sqlite3`` of
the standard library runs in worker threads.
"""

from __future__ import annotations

from aflow_connectors.rows import RowOf
from aflow_connectors.sqlite.sink import SqliteSink, SqliteUpsert

__all__ = ["RowOf", "SqliteSink", "SqliteUpsert"]
