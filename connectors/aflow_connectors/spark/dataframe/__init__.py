"""DataFrames: as a source, as rows for async calls, and their conversion to Python records and back.

Read ``source.py`` or ``map_async.py`` first; ``columns.py`` and ``schema.py`` convert rows and schemas for both and for
backfills. Writing tables is in ``aflow_connectors.spark.tables``.
"""
