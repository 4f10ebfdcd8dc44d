"""Every scenario of the data is a test; `python -m pytest tests/conformance` runs them. See also DEVIATIONS.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.conformance.areas import AREAS, driver_for
from tests.conformance.driver import differences, run
from tests.conformance.report import IMPLIED
from tests.conformance.scenarios import (
    DATA,
    HERE,
    Exemption,
    Scenario,
    read_exemptions,
    read_scenarios,
)

EXEMPTIONS: Final = read_exemptions((HERE / "DEVIATIONS.md").read_text("utf-8"))
SCENARIOS: Final = read_scenarios(DATA)


def _marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    if found := _covering(scenario.name, EXEMPTIONS.deviations):
        return [pytest.mark.skip(reason=f"deviates: {found.reason}")]
    if found := _covering(scenario.name, EXEMPTIONS.not_yet):
        return [pytest.mark.xfail(reason=f"not yet: {found.reason}", strict=True)]
    return []


def _covering(name: str, exemptions: Sequence[Exemption]) -> Exemption | None:
    return next((each for each in exemptions if each.covers(name)), None)


def _is_later(area: str) -> bool:
    """An area that is neither built nor listed as later is run, and fails for want of a driver."""
    return area not in AREAS and _covering(area, EXEMPTIONS.later_areas) is not None


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=_marks(scenario))
        for scenario in SCENARIOS
        if not _is_later(scenario.area)
    ],
)
def test_scenario(scenario: Scenario, record_property: Callable[[str, object], None]) -> None:
    driver = driver_for(scenario)
    try:
        run(scenario, driver)

        # Weaker evidence: a difference is a question, not a failure.
        questions = differences(driver, scenario.implied)
        for question in questions:
            record_property(IMPLIED, f"{scenario.name}: {question}")
    finally:
        driver.close()
