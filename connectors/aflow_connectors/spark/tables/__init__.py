"""Sinks for Spark: a folder of Parquet files, and a table of Spark's catalog.

Read ``folder_sink.py`` first, then ``table_sink.py``. Both write Parquet with the columns of ``columns.py``; the table
sink stages files and loads them per checkpoint. Exactly-once files are in ``aflow_connectors.files``.
"""
