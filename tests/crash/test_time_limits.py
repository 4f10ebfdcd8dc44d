"""Time limits of the crash tests: a program that waits for a CPU is slow, and one that waits for nothing hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from bench.crash import cpu


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine a program never gets a CPU."""
    ages: dict[int | None, float] = {}

    def waited_for_cpu(process: int | None) -> float:
        ages[process] = ages.get(process, 0.0) + 1000
        return ages[process]

    monkeypatch.setattr(cpu, "waited_for_cpu", waited_for_cpu)


async def endless() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def quick() -> int:
    await asyncio.sleep(0)
    return 7


async def failing() -> NoReturn:
    raise LookupError("of the work")


@pytest.mark.asyncio
async def test_work_that_waits_for_nothing_exceeds_its_limit() -> None:
    with pytest.raises(TimeoutError):
        await cpu.limited(endless(), 0)


@pytest.mark.asyncio
async def test_work_without_a_cpu_does_not_exceed_its_limit(busy_machine: None) -> None:
    assert await cpu.limited(quick(), 0) == 7


@pytest.mark.asyncio
async def test_an_error_of_limited_work_is_raised_as_it_is() -> None:
    with pytest.raises(LookupError, match="of the work"):
        await cpu.limited(failing(), 60)


def test_a_process_that_does_not_exist_has_not_waited() -> None:
    assert cpu.waited_for_cpu(None) == 0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux counts it")
def test_a_stopwatch_divides_all_seconds() -> None:
    watch = cpu.Stopwatch(1)

    assert watch.without_cpu >= 0
    assert watch.seconds <= watch.elapsed
