"""Prints ``N passed, N failed`` for the scenarios, and what else is to be known about them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.report import IMPLIED

_SCENARIO: Final = "tests/conformance/test_scenarios.py::test_scenario["


def pytest_configure(config: pytest.Config) -> None:
    config.stash[IMPLIED] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    count = {outcome: _scenarios(terminalreporter, outcome) for outcome in _OUTCOMES}
    if not any(count.values()):
        return  # other tests were asked for
    terminalreporter.section("conformance")
    terminalreporter.line(f"{count['passed']} passed, {count['failed'] + count['error']} failed")
    if count["skipped"] or count["xfailed"]:
        terminalreporter.line(
            f"{count['skipped']} deviate by design, {count['xfailed']} not built yet: see DEVIATIONS.md"
        )
    for question in terminalreporter.config.stash[IMPLIED]:
        terminalreporter.line(f"implied, and different here: {question}")


_OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed")


def _scenarios(reporter: pytest.TerminalReporter, outcome: str) -> int:
    reports = reporter.stats.get(outcome, [])
    return sum(getattr(report, "nodeid", "").startswith(_SCENARIO) for report in reports)
