"""Random flows have the results of oracles, which are written from the guides.

A case (``cases``) consists of records, a flow and a way to run it. The records are random in number, time and order, in
one or several splits. The flow has stateless steps, async calls that fail, error policies, and keyed steps: windows of
all kinds with lateness and triggers, folds, state with timers, deduplication. It runs with another parallelism, other
batches, channels and chains each time, with aligned or overtaking barriers, crashes of sources, and a second job that
continues with another parallelism from a checkpoint, a savepoint or a stop; in virtual time.

The oracles (``oracles``) are plain functions over lists. ``strategies`` excludes cases that are not defined: late
records where several inputs race, and the order of records between subtasks.

This test runs the same 60 cases each time. ``make fuzz MINUTES=20`` runs others for twenty minutes.
"""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz import fuzz
from tests.fuzz.strategies import cases


@pytest.mark.slow
def test_random_flows_have_the_results_of_the_oracles() -> None:
    fuzz(cases())
