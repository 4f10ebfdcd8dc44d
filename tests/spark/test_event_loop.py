"""The event loop of a worker process. Needs no Spark."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from aflow_connectors.spark.executor.event_loop import WorkerLoop, worker_loop

#: Seconds after which a test that hangs fails instead.
PATIENCE = 300


@pytest.fixture(autouse=True)
def loop() -> Iterator[WorkerLoop]:
    """The loop of this process, which is no worker of Spark: it ends with the test."""
    begun_with = worker_loop()
    yield begun_with
    for one in {begun_with, worker_loop()}:
        one.close()


def _nobody() -> None:
    return


def test_there_is_one_loop_for_the_life_of_the_process(loop: WorkerLoop) -> None:
    assert worker_loop() is loop


def test_its_thread_does_not_keep_the_process_alive() -> None:
    thread = next(one for one in threading.enumerate() if one.name == "aflow event loop")

    assert thread.daemon


def test_it_is_the_fast_one() -> None:
    kinds: list[str] = []

    async def noting() -> None:
        kinds.append(type(asyncio.get_running_loop()).__module__)

    assert worker_loop().begin(noting, _nobody).wait(PATIENCE)
    assert kinds == ["uvloop"]


def test_a_loop_that_was_closed_is_not_used_again(loop: WorkerLoop) -> None:
    loop.close()

    assert worker_loop() is not loop


def test_users_code_that_stops_the_loop_does_not_end_it(loop: WorkerLoop) -> None:
    async def stopping() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.001)

    job = loop.begin(stopping, _nobody)

    assert job.wait(PATIENCE)
    assert job.error is None


def test_an_errand_that_is_cancelled_before_it_begins_runs_nothing(loop: WorkerLoop) -> None:
    ran: list[int] = []
    go_on = threading.Event()

    async def noting() -> None:
        ran.append(1)

    loop.soon(lambda: go_on.wait(PATIENCE))  # until then nothing begins
    job = loop.begin(noting, _nobody)
    threading.Timer(0.01, go_on.set).start()
    loop.end(job)

    assert job.over
    assert ran == []


def _in_the_child(answers: Connection, parents_loop: WorkerLoop) -> None:
    async def noting() -> None:
        answers.send((os.getpid(), worker_loop() is parents_loop))

    ended = worker_loop().begin(noting, _nobody).wait(PATIENCE)
    answers.send(ended)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_was_forked_has_a_loop_of_its_own(loop: WorkerLoop) -> None:
    answers, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_in_the_child, args=(theirs, loop))

    child.start()
    got = [answers.recv() if answers.poll(PATIENCE) else None for _ in range(2)]
    child.join(PATIENCE)

    assert got == [(child.pid, False), True]
