"""Ctrl-C waits until Spark has started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from flights.backfill.history import delayed_interrupts


@pytest.fixture(autouse=True)
def handler() -> Iterator[object]:
    """Python's own, whoever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_when_all_is_done(handler: object) -> None:
    done: list[str] = []

    def start() -> None:
        with delayed_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()

    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_without_an_interrupt_nothing_is_different(handler: object) -> None:
    with delayed_interrupts():
        pass

    assert signal.getsignal(signal.SIGINT) is handler


def test_a_failure_is_told_rather_than_the_interrupt(handler: object) -> None:
    def start() -> None:
        with delayed_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("no JVM")

    with pytest.raises(ValueError, match="no JVM"):
        start()

    assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    def of_spark(*_: object) -> None: ...

    with delayed_interrupts():
        signal.signal(signal.SIGINT, of_spark)

    assert signal.getsignal(signal.SIGINT) is of_spark


def test_in_another_thread_nothing_is_held(handler: object) -> None:
    seen: list[object] = []

    def start() -> None:
        with delayed_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert seen == [handler]
