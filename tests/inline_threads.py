"""Work of threads that tests in virtual time do on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import anyio.to_thread
import pytest
from anyio import CancelScope


@pytest.fixture
def inline_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``to_thread.run_sync`` call the function on the loop, between up to three passes of the loop each.

    A job with checkpoints awaits a thread thousands of times, which took half the time of a test. It also makes the
    order of all steps depend on the seed alone. ``test_in_process.py`` uses threads.
    """
    random = Random(1)

    async def run_sync(
        work: Callable[..., Any],
        *args: Any,
        abandon_on_cancel: bool = False,
        limiter: object = None,
    ) -> Any:
        await asyncio.sleep(0)
        with CancelScope(shield=not abandon_on_cancel):
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
            try:
                return work(*args)
            finally:
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)

    monkeypatch.setattr(anyio.to_thread, "run_sync", run_sync)
    for module in (
        "loop_budget",
        "checkpoints.directory.reader",
        "checkpoints.stored_state",
    ):
        monkeypatch.setattr(f"aflow.runtime.{module}.release_gil", lambda: None)
