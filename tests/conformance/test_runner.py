"""The runner fails scenarios that it did not check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from tests.conformance.areas import AREAS, driver_for
from tests.conformance.driver import Driver, Outcome, differences, run
from tests.conformance.scenarios import (
    HERE,
    OWN_DATA,
    Exemption,
    Scenario,
    UnknownWord,
    read_exemptions,
    read_scenarios,
)


class Counting(Driver):
    """Adds up numbers."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    def do_add(self, amount: int) -> Outcome:
        if amount < 0:
            raise FlowDefinitionError("negative")
        self._seen.append(amount)
        return {"returns": sum(self._seen), "list": self._seen}

    def see_total(self) -> int:
        return sum(self._seen)

    def see_seen(self) -> list[int]:
        return self._seen


def scenario(
    *steps: dict[str, Any],
    expect: dict[str, Any] | None = None,
    unknown: tuple[str, ...] = (),
    area: str = "mailbox",
    given: dict[str, Any] | None = None,
) -> Scenario:
    return Scenario(area, "x", given or {}, steps, expect or {}, {}, unknown)


def test_a_scenario_that_holds_passes() -> None:
    run(
        scenario(
            {"add": {"amount": 2}, "returns": 2, "note": "words for people"},
            {"add": 1, "returns": 3, "raises": None, "list_any_order": [1, 2]},
            {"add": -1, "raises": "invalid_argument"},
            {"expect": {"total": 3}},
            expect={"seen_any_order": [1, 2], "total_min": 3, "total_max": 3},
        ),
        Counting(),
    )


@pytest.mark.parametrize(
    "step",
    [
        {"add": 1, "returns": 2},
        {"add": 1, "raises": "invalid_argument"},
        {"add": 1, "list_any_order": [1, 1]},
        {"expect": {"total": 1}},
        {"expect": {"seen_any_order": [1]}},
        {"expect": {"total_min": 1}},
        {"expect": {"total_max": -1}},
    ],
    ids=str,
)
def test_a_fact_that_does_not_hold_fails(step: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        run(scenario(step), Counting())


@pytest.mark.parametrize(
    "step",
    [
        {"subtract": 1},
        {"add": {"amount": 1, "twice": True}},
        {"add": 1, "emits": 1},
        {"expect": {"count": 1}},
    ],
    ids=str,
)
def test_an_unknown_word_in_a_step_fails(step: dict[str, Any]) -> None:
    with pytest.raises(UnknownWord):
        run(scenario(step), Counting())


def test_an_unknown_word_in_the_final_facts_fails() -> None:
    with pytest.raises(UnknownWord):
        run(scenario(expect={"count": 1}), Counting())


def test_an_unknown_part_of_a_scenario_fails() -> None:
    with pytest.raises(UnknownWord, match="weather"):
        run(scenario(unknown=("weather",)), Counting())


def test_an_unexpected_error_is_raised_by_the_runner() -> None:
    with pytest.raises(FlowDefinitionError):
        run(scenario({"add": -1}), Counting())


def test_a_fact_beside_a_step_without_facts_fails() -> None:
    with pytest.raises(AssertionError, match="alone"):
        run(scenario({"expect": {}, "returns": 1}), Counting())


def test_differences_show_the_actual_value() -> None:
    assert list(differences(Counting(), {"total": 1, "note": "?", "seen": []})) == [
        "total is 0, not 1"
    ]


@pytest.mark.parametrize(
    "unknown",
    [
        scenario(area="weather"),
        scenario(given={"kind": "postbox"}),
        scenario(given={"kind": "mailbox", "colour": "red"}),
        scenario(given={"kind": "processor", "default_action": "sing"}),
        scenario(area="watermarks", given={"kind": "generator", "generator": {"by_moon": 1}}),
        scenario(area="window_assigners", given={"assigner": {"by_moon": {}}}),
        scenario(area="timers", given={"callback": "sings"}),
    ],
    ids=lambda each: f"{each.area} {each.given}",
)
def test_a_scenario_with_unknown_words_fails(unknown: Scenario) -> None:
    with pytest.raises(UnknownWord):
        driver_for(unknown)


def test_a_duplicate_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"id": "x", "steps": []}] * 2))

    with pytest.raises(ValueError, match="a/x"):
        read_scenarios(tmp_path)


def test_a_folder_without_scenarios_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scenarios"):
        read_scenarios(tmp_path)


def test_the_tables_of_a_document_are_read_by_heading() -> None:
    text = "\n".join(
        [
            "# All",
            "## Deviations",
            "words",
            "| scenario | reason |",
            "| --- | --- |",
            "| `a/b` | no yield |",
            "## Not yet",
            "| `a/c-*` | later |",
            "## Areas not yet built",
            "| `z` | later |",
        ]
    )

    found = read_exemptions(text)

    assert found.deviations == [Exemption("a/b", "no yield")]
    assert found.not_yet == [Exemption("a/c-*", "later")]
    assert found.later_areas == [Exemption("z", "later")]


EXEMPTIONS = read_exemptions((HERE / "DEVIATIONS.md").read_text("utf-8"))
OWN = read_scenarios(OWN_DATA)


@pytest.mark.parametrize("row", [*EXEMPTIONS.deviations, *EXEMPTIONS.not_yet], ids=str)
def test_a_row_of_the_document_names_an_existing_scenario(row: Exemption) -> None:
    assert any(row.covers(each.name) for each in OWN)


@pytest.mark.parametrize("row", EXEMPTIONS.deviations, ids=str)
def test_a_deviation_is_about_one_scenario(row: Exemption) -> None:
    assert row.pattern in {each.name for each in OWN}


@pytest.mark.parametrize("row", EXEMPTIONS.later_areas, ids=str)
def test_an_area_that_is_listed_as_later_is_not_built(row: Exemption) -> None:
    assert row.pattern in {each.area for each in OWN} - AREAS.keys()


def test_every_area_of_the_data_is_built_or_listed_as_later() -> None:
    later = {row.pattern for row in EXEMPTIONS.later_areas}

    assert {each.area for each in OWN} == AREAS.keys() | later
