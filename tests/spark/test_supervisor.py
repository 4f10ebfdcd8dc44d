"""A stream ends after the epoch in progress or at once, and its folders are in use as long as an epoch runs."""

# ruff: noqa: N802, N815 - the names are those of Spark

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Thread
from typing import Any, cast

import pytest

from aflow_connectors.spark.stream import supervisor
from aflow_connectors.spark.stream.supervisor import Supervisor

#: Time (s) after which a test fails.
_TIMEOUT = 20.0


class Epochs:
    """Epochs of a stream: each one is ``during``, and is committed unless it was cancelled or fails."""

    flow = "sums"
    checkpoint = "nowhere"
    is_finished = False
    batch = None

    def __init__(self, during: Callable[[], None], *, can_advance: bool = False) -> None:
        self._during = during
        self._can_advance = can_advance
        self.is_cancelled = Event()
        self.committed: list[int] = []
        #: True once the folders are released, and the number of epochs that ran then.
        self.ended: list[int] = []
        self.running = 0

    def run_batch(self, rows: object, batch: int) -> None:
        self.running += 1
        try:
            self._during()
            if self.is_cancelled.is_set():
                raise RuntimeError("stopped at once")
            self.committed.append(batch)
        finally:
            self.running -= 1

    def can_advance(self) -> bool:
        return self._can_advance

    def run_without_rows(self) -> None:
        """Do nothing."""

    def cancel(self) -> None:
        self.is_cancelled.set()

    def end(self) -> None:
        if not self.ended:
            self.ended.append(self.running)

    def progress(self) -> list[int]:
        return self.committed


@dataclass
class Spark:
    """A session, its streaming DataFrame and its query, which passes one batch in a thread of its own."""

    stop_error: Exception | None = None
    cancelled: Event = field(default_factory=Event)
    stopped: Event = field(default_factory=Event)
    terminated: Event = field(default_factory=Event)
    thread: Thread | None = None
    asked: Event = field(default_factory=Event)
    """Set when the state of the query is read."""
    runId = "7"
    lastProgress = None
    recentProgress: tuple[object, ...] = ()
    sparkSession = sparkContext = writeStream = property(lambda self: self)

    def foreachBatch(self, function: Callable[[object, int], None]) -> Spark:
        def run() -> None:
            try:
                function(self, 0)
            except Exception:
                self.terminated.set()

        self.thread = Thread(target=run)
        return self

    def outputMode(self, *_: object, **__: object) -> Spark:
        return self

    option = queryName = trigger = outputMode

    def start(self) -> Spark:
        assert self.thread is not None
        self.thread.start()
        return self

    @property
    def status(self) -> dict[str, object]:
        self.asked.set()
        return {"message": "Waiting for data to arrive"}

    def addJobTag(self, tag: str) -> None:
        """Do nothing."""

    removeJobTag = addJobTag

    def awaitTermination(self, seconds: float) -> bool:
        return self.terminated.wait(seconds)

    def stop(self) -> None:
        self.stopped.set()
        if self.stop_error is not None:
            raise self.stop_error
        assert self.thread is not None
        self.thread.join(_TIMEOUT)
        self.terminated.set()

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.set()

    def cancelJobGroup(self, group: str) -> None:
        """Do nothing."""


@contextmanager
def running(epochs: Epochs, spark: Spark, on_end: Callable[[], None]) -> Generator[Supervisor]:
    stream = Supervisor(cast("Any", epochs), cast("Any", spark), timedelta(milliseconds=20))
    stream.start(on_end)
    try:
        yield stream
    finally:
        stream.end(at_once=True)


def ending(stream: Supervisor, *, at_once: bool) -> Thread:
    thread = Thread(target=lambda: stream.end(at_once=at_once))
    thread.start()
    return thread


class Blocked:
    """An epoch that runs until the test lets it end."""

    def __init__(self) -> None:
        self.has_begun = Event()
        self.may_end = Event()

    def __call__(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(_TIMEOUT)


def test_a_stopped_stream_commits_the_epoch_in_progress() -> None:
    epoch, spark, ended = Blocked(), Spark(), Event()
    epochs = Epochs(epoch)
    with running(epochs, spark, ended.set) as stream:
        assert epoch.has_begun.wait(_TIMEOUT)
        stopping = ending(stream, at_once=False)
        # Several looks at the query later the epoch still runs undisturbed.
        assert not spark.stopped.wait(0.3)
        assert not spark.cancelled.is_set()
        epoch.may_end.set()
        stopping.join(_TIMEOUT)

    assert ended.is_set()
    stream.result()
    assert epochs.committed == [0]
    assert epochs.ended == [0]


def test_a_stream_that_is_stopped_at_once_does_not_commit_the_epoch_in_progress() -> None:
    spark = Spark()
    has_begun = Event()

    def until_cancelled() -> None:
        has_begun.set()
        assert spark.cancelled.wait(_TIMEOUT)

    epochs = Epochs(until_cancelled)
    with running(epochs, spark, lambda: None) as stream:
        assert has_begun.wait(_TIMEOUT)
        stopping = ending(stream, at_once=False)
        stream.end(at_once=True)  # while another call waits for the end of the epoch
        stopping.join(_TIMEOUT)

    stream.result()
    assert epochs.committed == []
    assert epochs.ended == [0]


def test_spark_is_not_asked_for_data_while_an_epoch_runs() -> None:
    epoch, spark = Blocked(), Spark()
    with running(Epochs(epoch, can_advance=True), spark, lambda: None):
        assert epoch.has_begun.wait(_TIMEOUT)
        spark.asked.clear()  # before the epoch
        assert not spark.asked.wait(0.2)
        epoch.may_end.set()

        assert spark.asked.wait(_TIMEOUT)


def test_a_failure_of_the_epoch_for_which_a_stop_waits_is_that_of_the_stream() -> None:
    epoch = Blocked()

    def fail() -> None:
        epoch()
        raise ValueError("no price")

    with running(Epochs(fail), Spark(), lambda: None) as stream:
        assert epoch.has_begun.wait(_TIMEOUT)
        stopping = ending(stream, at_once=False)
        epoch.may_end.set()
        stopping.join(_TIMEOUT)

        with pytest.raises(ValueError, match="no price"):
            stream.result()


def test_folders_stay_in_use_until_an_epoch_that_cannot_be_ended_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_TIMEOUT", 0.1)
    epoch, ended = Blocked(), Event()
    spark = Spark(stop_error=TimeoutError("the query does not stop"))
    epochs = Epochs(epoch)
    with running(epochs, spark, ended.set) as stream, caplog.at_level(logging.WARNING):
        assert epoch.has_begun.wait(_TIMEOUT)
        stream.end(at_once=True)
        assert ended.wait(_TIMEOUT)
        assert epochs.ended == []
        epoch.may_end.set()
        assert spark.thread is not None
        spark.thread.join(_TIMEOUT)

    assert epochs.committed == []
    assert epochs.ended != []
    assert "the query does not stop" in caplog.text


def test_a_stream_ends_although_its_event_loop_is_closed() -> None:
    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    epochs = Epochs(lambda: None)
    with running(epochs, Spark(), closed) as stream:
        stream.end(at_once=False)

    stream.result()
    assert epochs.committed == [0]
    assert epochs.ended == [0]
