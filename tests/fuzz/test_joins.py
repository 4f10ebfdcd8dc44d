"""Random joins and unions have the results of oracles, which are written from the guides: see ``test_flows``."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz import fuzz
from tests.fuzz.strategies import pair_cases


@pytest.mark.slow
def test_random_joins_have_the_results_of_the_oracles() -> None:
    fuzz(pair_cases())
