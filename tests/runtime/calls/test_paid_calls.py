"""A job that is restarted or resumed does not make completed calls again: the service counts them, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.testing import virtual_time

MILLIS = timedelta(milliseconds=1)
RECORDS = range(12)


class Service:
    """Answers at once, except for the call for 0, which fails the job after 100 ms, the first time."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.counts = Counter[int]()
        self._answer = answer

    async def call(self, number: int) -> Any:
        self.counts[number] += 1
        if number == 0:
            await asyncio.sleep(0.1)
            if self.counts[0] == 1:
                raise ConnectionError("the service restarts")
        return self._answer(number)


@dataclass
class Answer:
    number: int


class Opaque:
    def __init__(self, number: int) -> None:
        self.number = number


Step = Callable[[af.Stream[int], Service], af.Stream[Any]]

STEPS: dict[str, Step] = {
    "map": lambda numbers, service: numbers.map_async(service.call, name="call"),
    "flat map": lambda numbers, service: numbers.flat_map_async(
        lambda number: listed(service, number), name="call"
    ),
    "filter": lambda numbers, service: numbers.filter_async(service.call, name="call"),
    "typed": lambda numbers, service: numbers.map_async(
        service.call, result_of=Answer, name="call"
    ),
    "cached": lambda numbers, service: numbers.map_async(
        service.call, cache=af.calls.Cache(5), name="call"
    ),
}


async def listed(service: Service, number: int) -> list[Any]:
    return [await service.call(number)]


def run(step: Step, service: Service, folder: Path) -> list[Any]:
    """Run with a checkpoint every 10 ms, and a restart after the failure."""
    ledger = af.CollectSink[Any]()

    async def main() -> None:
        flow = af.Flow("paid")
        step(flow.source(RECORDS, name="numbers"), service).to(ledger, name="results")
        await flow.run(
            checkpointing=af.Checkpointing(storage=folder, every=10 * MILLIS),
            restart=af.restart.FixedDelay(1, delay=MILLIS),
        )

    virtual_time.run(main)
    return ledger.values


@pytest.mark.parametrize("name", STEPS)
def test_completed_calls_are_not_made_again_after_a_restart(name: str, tmp_path: Path) -> None:
    service = Service(Answer)

    results = run(STEPS[name], service, tmp_path)

    assert service.counts == {number: 1 + (number == 0) for number in RECORDS}
    expected = list(RECORDS) if name == "filter" else [Answer(number) for number in RECORDS]
    assert results == expected


def test_without_stored_results_all_calls_are_made_again(tmp_path: Path) -> None:
    service = Service(Answer)

    run(
        lambda numbers, service: numbers.map_async(service.call, store_results=False, name="call"),
        service,
        tmp_path,
    )

    assert service.counts == dict.fromkeys(RECORDS, 2)


def test_results_that_cannot_be_stored_are_logged_once_by_each_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(Opaque)

    with caplog.at_level(logging.WARNING, "aflow.job"):
        results = run(STEPS["map"], service, tmp_path)

    assert [one.number for one in results] == list(RECORDS)
    assert service.counts == dict.fromkeys(RECORDS, 2)
    told = [one.message for one in caplog.records if "cannot store the result" in one.message]
    assert len(told) == 2
    assert "result_codec=Pickled[…]()" in told[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"store_results": "no"}, r"store_results=…\) takes True or False"),
        ({"store_results": False, "result_of": int}, "has no effect with store_results=False"),
        ({"result_of": int, "result_codec": af.Pickled[int]()}, "both define how values"),
        ({"result_of": object}, "for its results: of="),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    numbers = af.Flow("wrong").source(RECORDS, name="numbers")

    with pytest.raises(af.FlowDefinitionError, match=complaint):
        numbers.map_async(Service(int).call, **options)


def test_a_filter_has_no_type_of_results() -> None:
    numbers = af.Flow("wrong").source(RECORDS, name="numbers")

    with pytest.raises(af.FlowDefinitionError, match="whether the record is kept"):
        numbers.filter_async(Service(bool).call, result_of=bool)
