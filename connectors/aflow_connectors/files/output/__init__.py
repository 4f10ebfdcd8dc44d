"""Output folders of file sinks: scratch files, pieces of checkpoints, locks, and manifests that prove ownership.

Read ``pieces.py`` first, which opens with the protocol of exactly-once output; then ``manifest.py``. ``file_sink.py``
is the base of the sinks. Formats are outside: ``jsonl_sink.py``, ``csv_sink.py`` and ``parquet_sink.py``.
"""
