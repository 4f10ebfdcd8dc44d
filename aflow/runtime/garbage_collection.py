"""Bulk allocation without garbage collections that visit everything.

Theory. CPython collects the oldest generation once the objects that have joined it are a quarter of it. A restore of a
million rows joins them all, so the collector would visit the growing state again and again: a third of the time of a
restore, and up to 0.3 s at once, in which the event loop does nothing. State that is being restored is no garbage.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

#: Since 3.14 the collector visits the oldest generation in increments, and moving all objects takes time for each.
_GENERATIONAL: Final = sys.version_info < (3, 14)


def can_keep_objects() -> bool:
    """Return True if ``objects_are_kept`` may be used in this program.

    Not if it has disabled the collector, or uses ``gc.freeze``, whose effect would be lost. Takes time for each frozen
    object.
    """
    return _GENERATIONAL and gc.isenabled() and not gc.get_freeze_count()


@contextmanager
def objects_are_kept() -> Generator[None]:
    """Run a block without collections, and add what it has allocated to the oldest generation without a visit.

    The block must be short, since nothing is collected meanwhile. Only if ``can_keep_objects``.
    """
    gc.disable()
    try:
        yield
    finally:
        # Two concatenations of lists, regardless of the number of objects.
        gc.freeze()
        gc.unfreeze()
        gc.enable()
