"""A worker process returns the memory of a large task, and pays nothing after small ones."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from aflow_connectors.spark.executor.worker_memory import (
    TASKS,
    WorkerMemory,
    resident_bytes,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells the memory of a process"
)

MEGABYTES = 2**20


def task(size: int) -> list[bytes]:
    """Allocate ``size`` bytes, and return a few objects that lie between the freed ones."""
    objects = [bytes(1_000) for _ in range(size // 1_000)]
    return objects[::5_000]


def test_memory_of_a_large_task_is_returned() -> None:
    memory = WorkerMemory()
    before = resident_bytes()

    kept = task(120 * MEGABYTES)

    assert memory.on_task_end()
    assert resident_bytes() - before < 40 * MEGABYTES
    assert kept


def test_after_tasks_of_equal_size_nothing_is_done() -> None:
    memory = WorkerMemory()

    for _ in range(3):
        task(5 * MEGABYTES)
        assert not memory.on_task_end()


def test_the_growth_of_several_tasks_counts() -> None:
    memory = WorkerMemory()

    kept = [bytearray(30 * MEGABYTES)]
    first = memory.on_task_end()
    kept.append(bytearray(50 * MEGABYTES))

    assert (first, memory.on_task_end()) == (False, True)
    assert len(kept) == 2


@pytest.fixture
def thawed() -> Iterator[None]:
    """Leave no object of this process frozen."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_objects_of_earlier_tasks_are_not_searched_for_cycles() -> None:
    memory = WorkerMemory()

    memory.on_task_begin()

    assert gc.get_freeze_count() > 0


class Knot:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("thawed")
def test_cycles_that_outlive_a_task_are_collected_some_tasks_later() -> None:
    memory = WorkerMemory()
    knot = weakref.ref(kept := Knot())

    memory.on_task_begin()
    del kept
    gc.collect()
    is_kept = knot() is not None
    for _ in range(TASKS - 1):
        memory.on_task_begin()
    gc.collect()

    assert is_kept
    assert knot() is None
