"""Connectors of aflow: ``files`` (JSON lines, CSV, text, Parquet), ``sqlite`` and ``spark``.

Each package has its public names in its ``__init__.py``, to be read first. The modules here are shared by all of them.
The interfaces of sources and sinks are in ``aflow.connect``.
"""
