"""An append-only log of records in a local folder: what a durable push source keeps.

Read ``segments`` first for the format and the rules for damaged files, then ``log`` (blocking, one folder), then
``appender``, the thread that writes groups of records for a program on the event loop. Nothing here knows jobs,
checkpoints or types of records: the source does (``builtin_connectors/durable_push_source.py``).
"""
