"""Prints ``N passed, N failed`` for the scenarios, and their deviations.

A plugin that ``tests/conftest.py`` registers, since tests may run in other processes than the one that prints.
"""

from __future__ import annotations

from typing import Final

import pytest

#: Property of a test: an implied fact that does not hold, which is a question, not a failure.
IMPLIED: Final = "implied, and different here"

_SCENARIO: Final = "tests/conformance/test_scenarios.py::test_scenario["


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = {outcome: _scenarios(terminalreporter, outcome) for outcome in _OUTCOMES}
    count = {outcome: len(some) for outcome, some in reports.items()}
    if not any(count.values()):
        return  # other tests were asked for
    terminalreporter.section("conformance")
    terminalreporter.line(f"{count['passed']} passed, {count['failed'] + count['error']} failed")
    if count["skipped"] or count["xfailed"]:
        terminalreporter.line(
            f"{count['skipped']} deviate by design, {count['xfailed']} not built yet: see DEVIATIONS.md"
        )
    for report in reports["passed"]:
        for name, question in report.user_properties:
            if name == IMPLIED:
                terminalreporter.line(f"{IMPLIED}: {question}")


_OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed")


def _scenarios(reporter: pytest.TerminalReporter, outcome: str) -> list[pytest.TestReport]:
    return [
        report
        for report in reporter.stats.get(outcome, [])
        if getattr(report, "nodeid", "").startswith(_SCENARIO)
    ]
