"""With checkpoints each record is in the table exactly once, and visible when its checkpoint is complete."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shutil import copy
from typing import cast

import pytest

from aflow.connect import Committable, SinkError, Writer
from aflow.errors import RestoreError
from aflow_connectors.sqlite import SqliteSink
from tests.connectors.sqlite.database import made, opened, prepared, put, rows

STAGED = "SELECT count(*) FROM _aflow_staged"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return made(tmp_path / "a.db", "CREATE TABLE t (n INTEGER UNIQUE)")


def numbers(path: Path) -> list[int]:
    return [n for (n,) in rows(path)]


def sink_to(database: Path) -> SqliteSink[int]:
    return SqliteSink[int](database, "t", row=lambda n: (n,))


async def begun(database: Path) -> Writer[int]:
    """The writer of a job that starts fresh."""
    sink = sink_to(database)
    await sink.recover("out", [])
    return await opened(sink)


@pytest.mark.asyncio
async def test_rows_are_visible_once_their_checkpoint_is_complete(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committable = await prepared(writer, 1, 1, 2)
    await put(writer, 3)
    before = numbers(database)

    await writer.commit(committable)
    await writer.commit(committable)
    await writer.close()

    assert (before, numbers(database)) == ([], [1, 2])
    assert rows(database, STAGED) == [(0,)]


@pytest.mark.asyncio
async def test_rows_are_staged_in_chunks_before_the_checkpoint(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))

    await put(writer, *range(5000))
    staged = rows(database, STAGED)
    await put(writer, *range(5000, 6000))
    await writer.commit(await prepared(writer, 1))
    await writer.flush()
    await writer.close()

    assert staged == [(1,)]
    assert numbers(database) == list(range(6000))


@pytest.mark.asyncio
async def test_several_prepared_checkpoints_are_committed(
    database: Path,
) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committables = [await prepared(writer, n, n) for n in (1, 2)]

    for committable in committables:
        await writer.commit(committable)
    await writer.close()

    assert numbers(database) == [1, 2]


@pytest.mark.asyncio
async def test_after_a_crash_exactly_the_rows_of_the_checkpoint_remain(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    first = await prepared(writer, 1, 1)
    await writer.commit(first)
    second = await prepared(writer, 2, 2)
    await prepared(writer, 3, 3)
    await put(writer, *range(10, 6000))
    await writer.close()

    await sink_to(database).recover("out", [first, second])
    await sink_to(database).recover("out", [first, second])

    assert numbers(database) == [1, 2]
    assert rows(database, STAGED) == [(0,)]


@pytest.mark.asyncio
async def test_rows_of_many_writers_are_continued_by_fewer(database: Path) -> None:
    await sink_to(database).recover("out", [])
    committables: list[Committable] = []
    former = sink_to(database)
    for subtask in range(3):
        writer = await opened(former, subtask=subtask)
        committables.append(await prepared(writer, 1, subtask))
        await writer.close()

    await sink_to(database).recover("out", committables)
    writer = await opened(sink_to(database))
    await writer.commit(await prepared(writer, 2, 9))
    await writer.close()

    assert numbers(database) == [0, 1, 2, 9]


@pytest.mark.asyncio
async def test_writers_at_once_wait_for_each_other_and_lose_nothing(database: Path) -> None:
    await sink_to(database).recover("out", [])

    async def write(subtask: int) -> None:
        writer = await opened(sink_to(database), subtask=subtask)
        for checkpoint in range(1, 6):
            number = subtask * 10 + checkpoint
            await writer.commit(await prepared(writer, checkpoint, number))
        await writer.close()

    async with asyncio.TaskGroup() as writers:
        for subtask in range(4):
            writers.create_task(write(subtask))

    assert sorted(numbers(database)) == [s * 10 + c for s in range(4) for c in range(1, 6)]


@pytest.mark.asyncio
async def test_a_row_that_the_table_refuses_fails_the_checkpoint_not_the_commit(
    database: Path,
) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    await writer.commit(await prepared(writer, 1, 7))

    with pytest.raises(SinkError, match=r"table 't' cannot take row \{'n': 7\}: UNIQUE constraint"):
        await prepared(writer, 2, 6, 7)
    await writer.close()

    assert numbers(database) == [7]


@pytest.mark.asyncio
async def test_a_job_that_starts_fresh_appends_and_numbers_its_checkpoints_from_one(
    database: Path,
) -> None:
    for number in (1, 2):
        await sink_to(database).recover("out", [])
        writer = await opened(sink_to(database))
        await writer.commit(await prepared(writer, 1, number))
        await writer.close()

    assert numbers(database) == [1, 2]


@pytest.mark.asyncio
async def test_restoring_a_checkpoint_older_than_the_table_is_refused(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committables = [await prepared(writer, n, n) for n in (1, 2)]
    for committable in committables:
        await writer.commit(committable)
    await writer.close()

    with pytest.raises(SinkError, match="from checkpoint 1, but table 't' has the rows up to chec"):
        await sink_to(database).recover("out", committables[:1])

    assert numbers(database) == [1, 2]


@pytest.mark.asyncio
async def test_a_number_of_a_checkpoint_that_was_there_is_refused(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    await writer.commit(await prepared(writer, 5, 1))

    with pytest.raises(SinkError, match=r"has the rows of checkpoint 5 .* now gets 4; was the sto"):
        await prepared(writer, 4, 2)
    await writer.close()


@pytest.mark.asyncio
async def test_staged_rows_that_were_removed_are_missed(database: Path) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 1, 1, 2)
    made(database, "DELETE FROM _aflow_staged")

    with pytest.raises(SinkError, match=r"2 rows were prepared .* and 0 are staged .*: were rows"):
        await writer.commit(committable)
    await writer.close()


@pytest.mark.asyncio
async def test_a_job_that_starts_fresh_keeps_staged_rows_of_another_one_of_that_name(
    database: Path,
) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 1, 1, 2)

    second = sink_to(database)
    await second.recover("out", [])
    other = await opened(second)
    await other.commit(await prepared(other, 7, 3))
    await writer.commit(committable)
    await writer.close()
    await other.close()

    assert numbers(database) == [3, 1, 2]


@pytest.mark.asyncio
async def test_a_job_is_restored_although_another_one_of_that_name_has_started_fresh(
    database: Path,
) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 1, 1)
    await writer.close()
    other = await begun(database)
    await prepared(other, 2, 2)
    await other.close()

    await sink_to(database).recover("out", [committable])

    assert numbers(database) == [1]
    assert rows(database, STAGED) == [(1,)]


@pytest.mark.asyncio
async def test_another_database_than_that_of_the_checkpoint_is_an_error_that_names_both(
    database: Path, tmp_path: Path
) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 3, 1, 2)
    await writer.close()
    moved = made(tmp_path / "b.db", "CREATE TABLE t (n INTEGER)")

    with pytest.raises(RestoreError, match="Was the path or the table of the sink changed") as told:
        await sink_to(moved).recover("out", [committable])

    assert f"were staged in {database}" in str(told.value)
    assert f"the database {moved} holds nothing of this job" in str(told.value)


@pytest.mark.asyncio
async def test_a_job_is_restored_in_a_copy_of_its_database(database: Path, tmp_path: Path) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 3, 1, 2)
    await writer.close()
    copy(database, tmp_path / "b.db")

    await sink_to(tmp_path / "b.db").recover("out", [committable])

    assert (numbers(tmp_path / "b.db"), numbers(database)) == ([1, 2], [])


@pytest.mark.asyncio
async def test_rows_that_were_staged_before_owners_were_known_are_committed(database: Path) -> None:
    writer = await begun(database)
    committable = cast("dict[str, object]", await prepared(writer, 1, 1))
    await writer.close()
    made(database, "UPDATE _aflow_staged SET sink = 'out'")
    former = {k: v for k, v in committable.items() if k not in ("owner", "database")}

    await sink_to(database).recover("out", [former])

    assert numbers(database) == [1]


@pytest.mark.asyncio
async def test_a_writer_refuses_to_commit_rows_of_another_job(database: Path) -> None:
    writer = await begun(database)
    committable = await prepared(writer, 1, 1)
    await writer.close()
    other = await begun(database)

    with pytest.raises(SinkError, match="names rows of owner"):
        await other.commit(committable)
    await other.close()

    assert numbers(database) == []


@pytest.mark.asyncio
async def test_sinks_of_other_names_and_tables_do_not_touch_each_other(database: Path) -> None:
    made(database, "CREATE TABLE u (n)")
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committable = await prepared(writer, 1, 1)

    await sink_to(database).recover("other", [])
    await SqliteSink[int](database, "u").recover("out", [])
    await writer.commit(committable)
    await writer.close()

    assert numbers(database) == [1]


@pytest.mark.asyncio
async def test_staged_rows_keep_their_columns(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committable = await prepared(writer, 1, 1)
    await writer.close()
    made(database, "ALTER TABLE t ADD COLUMN later TEXT")

    await sink_to(database).recover("out", [committable])

    assert rows(database) == [(1, None)]


@pytest.mark.asyncio
@pytest.mark.parametrize("committable", [7, {"writer": 1}, {"checkpoint": "x"}], ids=repr)
async def test_a_committable_of_another_sink_is_an_error_that_shows_it(
    database: Path, committable: object
) -> None:
    with pytest.raises(RestoreError, match=r"^sink 'out' cannot commit .*another kind of sink"):
        await sink_to(database).recover("out", [committable])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "crafted",
    [{name: 2**63} for name in ("writer", "epoch", "checkpoint", "rows")]
    + [{"writer": -1}, {"owner": "\ud800"}, {"columns": ["\ud800"]}],
    ids=ascii,
)
async def test_a_committable_that_sqlite_cannot_hold_is_an_error_of_the_restore(
    database: Path, crafted: dict[str, object]
) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    committable = cast("dict[str, object]", await prepared(writer, 1, 1))
    await writer.close()

    with pytest.raises(RestoreError, match="cannot commit"):
        await sink_to(database).recover("out", [{**committable, **crafted}])


@pytest.mark.asyncio
async def test_the_end_without_a_checkpoint_that_covers_it_is_an_error(database: Path) -> None:
    await sink_to(database).recover("out", [])
    writer = await opened(sink_to(database))
    await put(writer, 1)

    with pytest.raises(SinkError, match="no checkpoint covers the last records"):
        await writer.flush()
    await writer.close()
