"""A worker process returns the memory of a large task, and pays nothing after small ones."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from aflow_connectors.spark.executor.worker_memory import (
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
