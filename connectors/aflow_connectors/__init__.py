"""Connectors of aflow: a package for each system, as ``kafka``, and ``files`` (JSON lines, CSV, text, Parquet).

Each package has its public names in its ``__init__.py``, to be read first. The modules here are shared by all of them.
Connectors for brokers use ``formats`` (bytes and records), ``message.py`` (the record with its key and headers),
``messages.py`` (what both sides do with them) and ``reconnect.py`` (lost connections). The interfaces of sources and
sinks are in ``aflow.connect``.
"""
