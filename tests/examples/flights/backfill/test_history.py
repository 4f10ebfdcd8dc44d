"""Ctrl-C during the start of Spark is delayed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from flights.backfill.history import delayed_interrupts


@pytest.fixture(autouse=True)
def handler() -> Iterator[object]:
    """The default handler of Python, whatever the test runner has set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_at_the_end(handler: object) -> None:
    done: list[str] = []

    def start() -> None:
        with delayed_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()

    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_without_an_interrupt_the_handler_is_restored(handler: object) -> None:
    with delayed_interrupts():
        pass

    assert signal.getsignal(signal.SIGINT) is handler


def test_a_failure_precedes_the_interrupt(handler: object) -> None:
    def start() -> None:
        with delayed_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("no JVM")

    with pytest.raises(ValueError, match="no JVM"):
        start()

    assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_set_in_the_block_is_kept() -> None:
    def of_spark(*_: object) -> None: ...

    with delayed_interrupts():
        signal.signal(signal.SIGINT, of_spark)

    assert signal.getsignal(signal.SIGINT) is of_spark


def test_another_thread_delays_nothing(handler: object) -> None:
    seen: list[object] = []

    def start() -> None:
        with delayed_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert seen == [handler]
