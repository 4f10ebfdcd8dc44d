"""Time limits of the crash tests: a program that waits for a CPU is slow, and one that waits for nothing hangs."""

from __future__ import annotations

import asyncio
import itertools
import time
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


def test_a_stopwatch_subtracts_the_seconds_without_a_cpu_since_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_waited(seconds: int) -> None:
        (tmp_path / "1" / "schedstat").write_text(f"7000000000 {seconds}000000000 9\n")

    now = 100.0
    monkeypatch.setattr(cpu, "_PROC", str(tmp_path))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    (tmp_path / "1").mkdir()
    set_waited(5)
    watch = cpu.Stopwatch(1)

    now = 110.0
    set_waited(8)

    assert (watch.elapsed, watch.without_cpu, watch.seconds) == (10.0, 3.0, 7.0)


@pytest.mark.asyncio
async def test_a_process_that_is_started_again_and_again_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "_CHECK_EVERY", 0.01)
    processes = itertools.count(10**9)  # none of them exists

    with pytest.raises(TimeoutError):
        await cpu.limited(endless(), 0.05, lambda: next(processes))
