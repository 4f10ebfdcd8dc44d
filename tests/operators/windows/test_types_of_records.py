"""The type of kept records, taken from annotations by every step that keeps records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aflow.machines.windows import evictors
from aflow.machines.windows.assigners import SessionWindows
from aflow.machines.windows.triggers import Count, EventTime
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.windows.factory import window_operator
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import logic


@dataclass(frozen=True)
class View:
    page: str


def pages(views: list[View]) -> list[str]:
    return [view.page for view in views]


SESSIONS = SessionWindows(10)
EARLY = EventTime[Any](early=Count(9))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"assigner": SESSIONS},
        {"trigger": EARLY},
        {"trigger": EARLY, "assigner": SESSIONS},
        {"evictor": evictors.Count(5)},
        {"evictor": evictors.Count(5), "assigner": SESSIONS},
    ],
    ids=["fast", "sessions", "trigger", "trigger, sessions", "evictor", "evictor, sessions"],
)
def test_records_with_an_annotated_type_are_restored(parts: dict[str, Any]) -> None:
    made = logic(apply=pages, **parts)
    step = OperatorHarness[View, Any](lambda: window_operator(made), key=lambda view: view.page)
    step.push(View("home"), 1)

    step.restart()
    step.push(View("home"), 2)
    step.watermark(MAX_TIMESTAMP)

    assert [one.value for one in step.values] == [["home", "home"]]
