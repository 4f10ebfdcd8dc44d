"""``aflow savepoint``: contents without the code of the pipeline, and compatibility with a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aflow.operators.handover import BEGINS, begins_at
from aflow.state.snapshot import OperatorSnapshot
from tests.cli.conftest import Aflow, Write
from tests.cli.savepoints import (
    ALL,
    PICKLED_IN_BASE64,
    Stored,
    cards,
    models,
    sink,
    source,
    sums,
    write_savepoint,
)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_show_has_kind_flow_and_times(aflow: Aflow, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp")

    result = aflow("savepoint", "show", str(tmp_path / "sp"))

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("savepoint 7 of flow 'shop'")
    assert "begun 2025-01-02 03:04:05+00:00, complete 2025-01-02 03:04:06+00:00" in result.stdout
    assert "128 key groups; " in result.stdout


def test_show_has_the_moment_of_a_hand_over(
    aflow: Aflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    july = OperatorSnapshot(operator={BEGINS: begins_at(1_372_636_800_000)})
    steps = [Stored("times", "event_time", july), Stored("other times", "event_time", july)]
    write_savepoint(tmp_path / "sp", steps)

    shown = aflow("savepoint", "show", str(tmp_path / "sp")).stdout

    assert (
        "hand-over at 2013-07-01 00:00:00+00:00: it includes earlier records; skipped by 'times', 'other times'"
        in shown
    )


def test_show_has_tables_of_steps_states_sources_and_sinks(
    aflow: Aflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    write_savepoint(tmp_path / "sp")

    shown = aflow("savepoint", "show", str(tmp_path / "sp")).stdout

    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["payments", "payments.csv", "4711"] in rows
    assert ["payments", "old.csv", "read to its end"] in rows
    assert ["out", "7", '"out-7.part"'] in rows
    assert [row[:3] for row in rows if row[:1] == ["rules"] and "broadcast" in row[2]]
    assert [row for row in rows if row[:2] == ["cards", "last"] and row[-2] == "2"]
    assert "Payment{card: str" in shown
    assert "2 event" in shown
    assert "3 batches in flight" in shown


def test_a_long_committable_is_shortened(aflow: Aflow, tmp_path: Path) -> None:
    rows = "x" * 10_000
    write_savepoint(tmp_path / "sp", [Stored("out", "to", sink((7, rows)))])

    shown = aflow("savepoint", "show", str(tmp_path / "sp")).stdout

    assert 200 < shown.count("x") < 400
    assert "10,002" in shown


def test_keys_are_lines_of_json_without_the_code_of_the_pipeline(
    aflow: Aflow, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp")

    result = aflow("savepoint", "keys", str(tmp_path / "sp"), "cards")

    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(line["key"] for line in lines(result.stdout)) == ["0815", "4711"]
    one = next(line for line in lines(result.stdout) if line["key"] == "4711")
    assert one == {
        "key": "4711",
        "timers": {"event": ["2025-01-02T03:04:05.000+00:00"]},
        "states": {
            "by day": [["monday", 1]],
            "last": {"card": "4711", "amount": "1.50", "at": "2025-01-02T03:04:05+00:00"},
            "recent": ["1.50"],
            "seen": {"at": "2025-01-02T03:04:05+00:00", "raw": "YWJj"},
        },
    }


def test_keys_are_limited_to_a_state_and_a_number(aflow: Aflow, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp")

    result = aflow(
        "savepoint", "keys", str(tmp_path / "sp"), "cards", "--state", "recent", "--limit", "1"
    )

    (line,) = lines(result.stdout)
    assert line["states"] == {"recent": ["1.50"]}
    assert "timers" not in line


def test_contents_of_windows_are_shown_in_their_stored_form(aflow: Aflow, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp", [Stored("sums", "window.fold", sums("a"))])

    result = aflow("savepoint", "keys", str(tmp_path / "sp"), "sums", "--state", "windows")

    assert lines(result.stdout) == [{"key": "a", "windows": [[3, 0, 60_000]]}]


def test_pickled_values_are_not_unpickled(aflow: Aflow, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp", [Stored("models", "process", models("a"))])

    (line,) = lines(aflow("savepoint", "keys", str(tmp_path / "sp"), "models").stdout)

    assert line == {"key": "a", "states": {"model": {"pickled": PICKLED_IN_BASE64}}}


def test_entries_of_broadcast_state_are_lines_too(aflow: Aflow, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp")

    result = aflow("savepoint", "keys", str(tmp_path / "sp"), "rules")

    assert lines(result.stdout) == [{"broadcast": "rules", "key": "limit", "value": 5}]


def test_the_error_about_an_unknown_step_or_state_lists_the_known_ones(
    aflow: Aflow, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp")

    step = aflow("savepoint", "keys", str(tmp_path / "sp"), "card")
    state = aflow("savepoint", "keys", str(tmp_path / "sp"), "cards", "--state", "lost")

    assert (step.exit_code, state.exit_code) == (1, 1)
    assert "there is no step 'card' in savepoint 7 of flow 'shop'; it has: 'payments', 'cards'" in (
        step.stderr
    )
    assert "step 'cards' has no state 'lost'" in state.stderr
    assert "'by day', 'last'" in state.stderr


def test_a_path_without_savepoint_is_an_error(aflow: Aflow, tmp_path: Path) -> None:
    result = aflow("savepoint", "show", str(tmp_path / "nothing"))

    assert result.exit_code == 1
    assert "there is no checkpoint at" in result.stderr


PIPELINE = """
    from dataclasses import dataclass
    from datetime import datetime
    from decimal import Decimal
    import aflow as af

    @dataclass
    class Payment:
        card: str
        amount: Decimal
        at: datetime
        {field}

    class Cards(af.KeyedProcess):
        last = af.ValueState("last", of=Payment)
        recent = af.ListState("recent", of=Decimal)
        by_day = af.MapState("by day", key=str, of=int)
        {states}

        def process(self, value, ctx):
            return []

    def build(source: str = "payments") -> af.Flow:
        flow = af.Flow("shop")
        cards = flow.source([1], name=source).key_by(lambda n: n).process(Cards(), name="cards")
        cards.to(af.CollectSink(), name="out")
        return flow
"""

SOURCE_AND_CARDS = ALL[:2]


def test_a_plan_of_the_same_states_keeps_all_and_exits_with_0(
    aflow: Aflow, write: Write, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp", SOURCE_AND_CARDS)
    write("shop", PIPELINE.format(field="", states="seen = af.ValueState('seen')"))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build", "--parallelism", "4")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "flow 'shop' from savepoint 7 of flow 'shop':",
        "  step 'payments' (source), parallelism 2 → 1: kept",
        "  step 'cards' (process), parallelism 1 → 4: kept",
        "    kept      last: value of Payment{card: str, amount: Decimal, at: datetime}",
        "    kept      recent: list of Decimal",
        "    kept      by day: map of str to int",
        "    kept      seen: value of plain values",
    ]


def test_a_plan_shows_migrated_and_new_states(aflow: Aflow, write: Write, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp", SOURCE_AND_CARDS)
    states = "seen = af.ValueState('seen'); total = af.ValueState('total', of=int)"
    write("shop", PIPELINE.format(field="note: str = '-'", states=states))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build")

    assert result.exit_code == 0
    assert "    migrated  last: value of Payment{card: str" in result.stdout
    assert "Payment.note is added, as '-'" in result.stdout
    assert "    new       total: value of int" in result.stdout


def test_a_plan_that_would_drop_a_state_exits_with_1(
    aflow: Aflow, write: Write, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp", SOURCE_AND_CARDS)
    write("shop", PIPELINE.format(field="", states=""))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build")

    assert result.exit_code == 1
    assert "    dropped   seen: value of plain values" in result.stdout
    assert "2 keys" in result.stdout


def test_a_plan_that_would_refuse_a_type_exits_with_1(
    aflow: Aflow, write: Write, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp", SOURCE_AND_CARDS)
    write("shop", PIPELINE.format(field="shop: str", states="seen = af.ValueState('seen')"))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build")

    assert result.exit_code == 1
    assert "    refused   last: " in result.stdout
    assert "Payment.shop (str) is new and has no default" in result.stdout


def test_options_of_build_follow_the_target_and_change_the_plan(
    aflow: Aflow, write: Write, tmp_path: Path
) -> None:
    write_savepoint(tmp_path / "sp", SOURCE_AND_CARDS)
    write("shop", PIPELINE.format(field="", states="seen = af.ValueState('seen')"))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build", "--source", "paid")

    assert result.exit_code == 1
    assert "  step 'paid' (source): new" in result.stdout
    assert "  step 'payments' (source): dropped" in result.stdout
    assert "was it renamed?" in result.stdout


def test_a_plan_from_another_number_of_key_groups_is_refused(
    aflow: Aflow, write: Write, tmp_path: Path
) -> None:
    steps = [Stored("payments", "source", source(("p", 1, 0))), Stored("cards", "process", cards())]
    write_savepoint(tmp_path / "sp", steps, key_groups=64)
    write("shop", PIPELINE.format(field="", states="seen = af.ValueState('seen')"))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build")

    assert result.exit_code == 1
    assert "refused: keys are stored in 64 key groups, and the job has 128" in result.stdout
