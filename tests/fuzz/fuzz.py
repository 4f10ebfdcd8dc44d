"""Runs random cases, and says how to repeat the one that fails.

The suite runs ``ROUNDS``, however long they take. ``make fuzz`` sets ``FUZZ_SECONDS``, the time for each kind of case,
and ``FUZZ_SEED``, the seed of its first round.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import time
from typing import Final, Protocol

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.strategies import SearchStrategy

#: Rounds of the suite: the same cases in each run, on a busy machine too.
ROUNDS: Final = 1

#: Cases of a round. Hypothesis begins each round with small ones.
ROUND: Final = 60

#: Numbers between the seeds of two kinds of cases that run at the same time.
_SEEDS: Final = 2**32


class Checked(Protocol):
    """A random case."""

    def check(self) -> None:
        """Raise an exception if the engine and the oracle differ."""
        ...


def fuzz(cases: SearchStrategy[Checked]) -> None:
    """Check random cases, round by round, each with the next seed: ``ROUNDS``, or until ``FUZZ_SECONDS`` are over.

    A failure shows the smallest failing case that was found, as an expression, and the seed of its round. A failing
    case is shrunk, which may take longer.
    """
    seed = _first_seed()
    seconds = os.environ.get("FUZZ_SECONDS")
    if seconds is None:
        for number in range(ROUNDS):
            _check_round(cases, seed + number, math.inf)
        return
    end = time.monotonic() + float(seconds)
    for number in itertools.count():
        _check_round(cases, seed + number, end)
        if time.monotonic() >= end:
            return


def _check_round(cases: SearchStrategy[Checked], seed: int, end: float) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        # Cases that reuse parts of earlier ones take the place of small ones.
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[
            HealthCheck.filter_too_much,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(case=cases)
    def check(case: Checked) -> None:
        if failures or time.monotonic() < end:
            try:
                case.check()
            except BaseException as exc:
                failures.append(exc)
                raise

    failures: list[BaseException] = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            # Hypothesis also draws constants that it finds in the modules that were imported, so that a seed would
            # have other cases in each process of the suite.
            patch.setattr(HypothesisProvider, "_maybe_draw_constant", _nothing, raising=False)
            check()
    except BaseException as exc:
        exc.add_note(
            f"Repeat it with `make fuzz MINUTES=1 SEED={seed}`, or call check() of the case above."
        )
        raise


def _nothing(*_: object, **__: object) -> None:
    """Draw no constant."""


def _first_seed() -> int:
    """Return the seed of the first round: the same in each run of the suite."""
    text = os.environ.get("FUZZ_SEED", "0")
    return random.SystemRandom().randrange(_SEEDS) if text == "random" else int(text)
