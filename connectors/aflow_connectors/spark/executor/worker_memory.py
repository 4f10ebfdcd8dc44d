"""Memory of a Python worker process of Spark between its tasks.

Theory. Spark keeps its Python workers for later tasks. When a task ends, its objects are freed, but the allocators of C
and of Arrow keep their pages. So a worker would hold as much memory as the largest of its tasks needed, while the JVM
and other workers could use it. Returning pages takes time, and the next task has to get them again. So they are
returned only after a task with which the process has grown since they were last returned: tasks of equal size, as those
of a stream, pay nothing.

Spark also searches the whole process for cycles after each task. That visits each object of pandas, pyarrow and aflow,
and those that aflow keeps for later tasks, and takes longer than a small task itself. So the objects that are there
when a task begins are frozen (``gc.freeze``): they survived the search after the task before. Cycles among them that
become garbage are found by the search after each ``TASKS`` tasks, for which they are not frozen, and before memory is
returned.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

#: Growth of the process in bytes after which unused pages are returned.
_GROWTH: Final = 64 * 2**20

#: Number of tasks in which all objects are searched for cycles once: a search takes about as long as a small task.
TASKS: Final = 32

#: Sizes of this process in pages: all of it, then the resident part.
_SIZES: Final = Path("/proc/self/statm")


class WorkerMemory:
    """Resident memory of this process since unused pages were last returned; one for each process."""

    def __init__(self) -> None:
        #: Bytes in memory after the last return of pages, or when the first task began.
        self._floor = resident_bytes()
        self._tasks = 0

    def on_task_begin(self) -> None:
        """Freeze the objects of the process; in one of ``TASKS`` tasks thaw them.

        Only for a process in which all objects are searched for cycles after each task.
        """
        self._tasks += 1
        if self._tasks % TASKS:
            gc.freeze()
        else:
            gc.unfreeze()

    def on_task_end(self) -> bool:
        """Return unused pages to the system if the process has grown; return True if that was done.

        No-op on systems without ``/proc``.
        """
        if resident_bytes() - self._floor < _GROWTH:
            return False
        # Objects of the task may be in cycles. Spark collects them after each task, which is too late.
        gc.unfreeze()
        gc.collect()
        # Imported late: `aflow_connectors.spark` can be imported without the package, to say what is missing.
        from aflow_connectors.spark.dataframe.arrow import pa

        pool: Any = pa.default_memory_pool()
        pool.release_unused()
        _trim()(0)
        self._floor = resident_bytes()
        return True


@cache
def worker_memory() -> WorkerMemory:
    """Return the memory of this process."""
    return WorkerMemory()


def resident_bytes() -> int:
    """Return the bytes of this process in memory; 0 if the system does not say."""
    try:
        return int(_SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _trim() -> Callable[[int], object]:
    """Return ``malloc_trim`` of the C library; a no-op if it has none (musl, macOS)."""
    with suppress(AttributeError, OSError, TypeError):
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return found
    return _noop


def _noop(pad: int) -> None:
    pass
