"""The time for which a thread waits for a processor."""

from __future__ import annotations

import sys
import threading

import pytest

from aflow.runtime.calls import processor_wait
from aflow.runtime.calls.processor_wait import ProcessorWait


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the time")
def test_the_time_of_the_thread_that_created_it_is_read_in_any_thread() -> None:
    wait = ProcessorWait()
    found: list[float | None] = []

    thread = threading.Thread(target=lambda: found.append(wait.seconds()))
    before = wait.seconds()
    thread.start()
    thread.join()
    after = wait.seconds()
    wait.close()

    assert before is not None
    assert found[0] is not None
    assert after is not None
    assert before <= found[0] <= after
    assert wait.seconds() is None


def test_the_time_is_unknown_where_the_system_does_not_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor_wait, "_FILE", "/does/not/exist")

    wait = ProcessorWait()

    assert wait.seconds() is None
    wait.close()
