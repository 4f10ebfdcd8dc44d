"""The stream by which a worker process of Spark hands batches to the JVM."""

from __future__ import annotations

from inspect import currentframe
from typing import Any


def flush_each_batch() -> bool:
    """Have Spark's worker flush its output after each batch. To be called in the generator that yields the batches.

    By itself it flushes 64 KiB at a time (``spark.buffer.size``). Until so much has come together, ``limit(5)`` sees
    none of the results, and the calls go on. Spark's workers can flush each batch, but only a mode of whole clusters
    turns it on, so this looks for their serializer among the callers. Returns False where there is none.
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
