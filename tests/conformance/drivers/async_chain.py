"""async_wait.json, ``operator_chain`` and ``retry_strategy``: asynchronous steps in a row, and delays of retries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from aflow.machines.calls.retry import Attempt, Retry
from tests.conformance.driver import Driver, Outcome
from tests.conformance.drivers.async_wait import Operator
from tests.conformance.scenarios import Json, UnknownWord

_STEP: Final = re.compile(r"async (ordered|unordered), capacity (\d+), \[2\*x\]")
_MAP: Final = "map x+1"
_MILLISECOND: Final = timedelta(milliseconds=1)


class Chain(Driver):
    """Asynchronous steps, and maps between them. Each step gets the results of the one before when that has ended."""

    def __init__(self, *, chain: Sequence[str]) -> None:
        self._steps = [_step(words) for words in chain]
        self._input: list[Json] = []
        self._output: list[Json] = []

    def do_element(self, value: int, ts: int) -> None:
        self._input.append({"value": value, "ts": ts})

    def do_end_input(self, yes: bool) -> None:
        elements: list[Json] = self._input
        for step in self._steps:
            if step is None:
                elements = [{**each, "value": each["value"] + 1} for each in elements]
                continue
            for each in elements:
                step.do_element(each["value"], each["ts"])
            step.do_end_input(yes)
            elements = step.see_output()
        self._output = elements

    def see_output(self) -> list[Json]:
        return self._output


class RetryStrategy(Driver):
    """A retry policy. ``attempt`` counts from the first call of a record, and ``max_attempts`` the calls after it."""

    def __init__(
        self,
        *,
        strategy: str,
        max_attempts: int,
        initial_delay_ms: int,
        max_delay_ms: int,
        multiplier: float,
    ) -> None:
        if strategy != "exponential":
            raise UnknownWord(f"retry strategy {strategy!r}")
        self._retry = Retry(
            attempts=max_attempts + 1,
            delay=initial_delay_ms * _MILLISECOND,
            factor=multiplier,
            max_delay=max_delay_ms * _MILLISECOND,
        )

    def do_can_retry(self, attempt: int) -> Outcome:
        return {"returns": self._again(attempt) is not None}

    def do_backoff_ms(self, attempt: int) -> Outcome:
        delay = self._again(attempt)
        assert delay is not None
        return {"returns": delay // _MILLISECOND}

    def _again(self, attempt: int) -> timedelta | None:
        return self._retry.again(Attempt(number=attempt, error=RuntimeError()), 0.5)


def _step(words: str) -> Operator | None:
    """The step that ``words`` describe; None for the map."""
    if words == _MAP:
        return None
    found = _STEP.fullmatch(words)
    if found is None:
        raise UnknownWord(f"a chain with {words!r}")
    return Operator(
        mode=found[1], capacity=int(found[2]), function="completes on a pool with [2*x]"
    )
