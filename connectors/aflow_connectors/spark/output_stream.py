"""The stream by which a Python worker of Spark sends batches to the JVM."""

from __future__ import annotations

from inspect import currentframe
from typing import Any


def flush_each_batch() -> bool:
    """Make Spark's worker flush its output after each batch; call it in the generator that yields the batches.

    By default it flushes every 64 KiB (``spark.buffer.size``): until then ``limit(5)`` receives no results and the
    calls continue. Spark's workers can flush each batch, but only a cluster-wide setting turns that on, so this
    searches the call stack for their serializer. Returns False if there is none.
    """
    frame = currentframe()
    while frame is not None:
        if frame.f_code.co_name == "dump_stream":
            serializer: Any = frame.f_locals.get("self")  # private to Spark, and without types
            if hasattr(serializer, "_flush_per_batch"):
                serializer._flush_per_batch = True
                return True
        frame = frame.f_back
    return False
