"""Content of savepoints row by row, written by jobs with steps of all kinds."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.backfill.contents import StateRow, rows_of, stored_parts
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.model.key_groups import key_group
from aflow.testing import CollectSink, Pause, ScriptedSource, VirtualClock, settle
from aflow.testing.virtual_time import run
from tests.backfill.hand_over_case import Reading
from tests.cli.savepoints import write_savepoint

READINGS = [Reading("a", 5, 1), Reading("b", 7, 2), Reading("a", 12, 3)]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Everything(af.KeyedProcess[str, Reading, int]):
    last = af.ValueState("last", of=Reading)
    all = af.ListState("all", of=int)
    by_time = af.MapState("by time", key=int, of=int, ttl=timedelta(days=1))

    def process(self, value: Reading, ctx: af.Context[str]) -> None:
        ctx.state(self.last).set(value)
        ctx.state(self.all).add(value.number)
        ctx.state(self.by_time).put(value.at, value.number)
        ctx.set_event_timer(value.at + 1_000)


class PerWindow(af.WindowFunction[str, list[Reading], int]):
    largest = af.ValueState("largest", of=int)

    def process(self, value: list[Reading], ctx: af.WindowContext[str]) -> None:
        ctx.window_state(self.largest).set(max(one.number for one in value))


def flow() -> af.Flow:
    made = af.Flow("contents")
    source = ScriptedSource(*READINGS, Pause(timedelta(days=9)))
    readings = made.source(source, name="readings").event_time(lambda one: one.at, name="times")
    keyed = readings.key_by(lambda one: one.key)
    out = CollectSink[object]()
    keyed.process(Everything(), name="everything").to(out, name="out 1")
    tumbling = keyed.window(af.Tumbling(ms(50)))
    tumbling.fold(int, add, name="tumbling").to(out, name="out 2")
    sliding = keyed.window(af.Sliding(ms(50), ms(25)))
    sliding.fold(int, add, merge=sum_of, name="sliding").to(out, name="out 3")
    sessions = keyed.window(af.Session(ms(50)))
    sessions.fold(int, add, merge=sum_of, name="session").to(out, name="out 4")
    counted = keyed.window(af.Tumbling(ms(50)), trigger=af.triggers.Count(1))
    counted.process(PerWindow(), name="general", of=Reading).to(out, name="out 5")
    joined = keyed.interval_join(
        keyed, between=(ms(0), ms(50)), of=Reading, other_of=Reading
    ).inner(pair, name="join")
    joined.to(out, name="out 6")
    return made


def add(total: int, reading: Reading) -> int:
    return total + reading.number


def sum_of(one: int, other: int) -> int:
    return one + other


def pair(one: Reading, other: Reading) -> tuple[int, int]:
    return one.number, other.number


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Savepoint "sp" of a job with two subtasks, and its checkpoints in "checkpoints"."""
    folder = tmp_path_factory.mktemp("contents")

    async def job() -> None:
        checkpointing = af.Checkpointing(every=None, storage=folder / "checkpoints")
        options = af.Options(clock=VirtualClock())
        async with flow().start(
            parallelism=2, options=options, checkpointing=checkpointing
        ) as running:
            await settle()
            await running.checkpoint()
            await running.stop(drain=False, savepoint=folder / "sp")

    run(job)
    return folder


def rows(path: Path, operator: str | None = None) -> Iterator[StateRow]:
    for part in stored_parts(path, operator=operator):
        yield from rows_of(part)


def told(path: Path, operator: str, kind: str) -> list[tuple[str | None, str, str]]:
    found = (row for row in rows(path, operator) if row.kind == kind)
    return sorted((row.key, row.state, row.value) for row in found if row.key is not None)


def test_each_state_of_each_key_is_a_row(folder: Path) -> None:
    reading = '{"key": "a", "at": 12, "number": 3}'

    assert told(folder / "sp", "everything", "value") == [
        ('"a"', "last", reading),
        ('"b"', "last", '{"key": "b", "at": 7, "number": 2}'),
    ]
    assert told(folder / "sp", "everything", "list") == [
        ('"a"', "all", "[1, 3]"),
        ('"b"', "all", "[2]"),
    ]
    assert told(folder / "sp", "everything", "map") == [
        ('"a"', "by time", "[[5, 1], [12, 3]]"),
        ('"b"', "by time", "[[7, 2]]"),
    ]


def test_a_row_names_its_step_and_subtask(folder: Path) -> None:
    found = {row.key: row for row in rows(folder / "sp", "everything") if row.state == "all"}

    assert {(row.operator, row.what) for row in found.values()} == {("everything", "process")}
    assert {key: (row.key_group, row.subtask) for key, row in found.items()} == {
        '"a"': (key_group("a"), key_group("a") // 64),
        '"b"': (key_group("b"), key_group("b") // 64),
    }


def test_timers_say_when_they_ring(folder: Path) -> None:
    found = [row for row in rows(folder / "sp", "everything") if row.kind == "timer"]

    timers = sorted((row.key, row.state, row.timer) for row in found)
    assert timers == [
        ('"a"', "event timers", 1_005),
        ('"a"', "event timers", 1_012),
        ('"b"', "event timers", 1_007),
    ]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("tumbling", [('"a"', "panes", "4", 0, None), ('"b"', "panes", "2", 0, None)]),
        ("sliding", [('"a"', "panes", "4", 0, None), ('"b"', "panes", "2", 0, None)]),
        ("session", [('"a"', "sessions", "4", 5, 62), ('"b"', "sessions", "2", 7, 57)]),
    ],
)
def test_window_rows_have_bounds_and_content(
    operator: str, expected: list[object], folder: Path
) -> None:
    found = [row for row in rows(folder / "sp", operator) if row.kind == "window"]

    windows = sorted(
        (row.key, row.state, row.value, row.window_start, row.window_end) for row in found
    )
    assert windows == expected


def test_windows_of_any_kind_and_their_states_say_where_they_are(folder: Path) -> None:
    found = [row for row in rows(folder / "sp", "general") if row.key is not None]

    assert sorted((row.key, row.kind, row.state, row.window_end) for row in found) == [
        ('"a"', "value", "largest", 50),
        ('"a"', "window", "key windows", 50),
        ('"b"', "value", "largest", 50),
        ('"b"', "window", "key windows", 50),
    ]


def test_the_buffered_sides_of_a_join_are_keyed_rows(folder: Path) -> None:
    found = [row for row in rows(folder / "sp", "join") if row.kind == "keyed"]

    sides = sorted((row.key, row.state) for row in found)
    assert sides == [('"a"', "left"), ('"a"', "right"), ('"b"', "left")]


def test_state_that_is_not_keyed_has_rows_too(folder: Path) -> None:
    alike = [row for row in rows(folder / "sp") if row.key_group is None]
    found = {(row.operator, row.state): (row.kind, row.value) for row in alike}

    assert found["readings", "progress"] == ("operator", '["script", 3, 0, 0]')
    assert found["times", "watermarks"] == ("operator", '["script", 11]')
    assert found["times", "newest"][0] == "operator"


def test_broadcast_state_has_one_row(tmp_path: Path) -> None:
    write_savepoint(tmp_path / "sp")

    found = [row for row in rows(tmp_path / "sp", "rules") if row.kind == "broadcast"]

    assert [(row.state, row.key, row.value) for row in found] == [("rules", '"limit"', "5")]


def test_a_folder_of_checkpoints_and_a_manifest_and_a_uri_are_read_as_well(folder: Path) -> None:
    whole = list(rows(folder / "sp"))
    manifest = next((folder / "sp").glob("checkpoint-*.json"))

    assert list(rows(manifest)) == whole
    assert [
        row for part in stored_parts((folder / "sp").as_uri()) for row in rows_of(part)
    ] == whole
    checkpoints = {row.operator for row in rows(folder / "checkpoints")}
    assert checkpoints >= {"everything", "tumbling", "session", "join"}


def test_parts_can_be_sent_to_other_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    parts = stored_parts("sp", operator="tumbling")
    monkeypatch.chdir("/")

    sent = pickle.loads(pickle.dumps(parts))

    assert sorted(row.value for part in sent for row in rows_of(part) if row.key) == ["2", "4"]


def test_a_part_that_is_not_whole_is_refused(folder: Path) -> None:
    part = stored_parts(folder / "sp", operator="tumbling")[0]
    link = part.chain[0]
    other = replace(link, file=replace(link.file, checksum="00000000"))

    with pytest.raises(RestoreError, match="is corrupt"):
        list(rows_of(replace(part, chain=(other,))))


def test_a_step_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    with pytest.raises(
        RestoreError, match=r"no step 'sums' in savepoint .* it has: .*'everything'"
    ):
        stored_parts(folder / "sp", operator="sums")


@pytest.mark.parametrize("place", ["nothing", "empty"])
def test_a_place_without_a_savepoint_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(RestoreError, match=f"{place} (cannot be read|holds no checkpoint)"):
        stored_parts(tmp_path / place)


def test_a_place_that_no_file_system_has_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="not in a file system of this machine"):
        stored_parts("s3://bucket/sp")
