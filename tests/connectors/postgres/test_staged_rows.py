"""With checkpoints each record is in the table exactly once, and visible when its checkpoint is complete."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError
from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.writing import begun, opened, prepared, put

pytestmark = pytest.mark.asyncio


@pytest.fixture
def table(database: Database) -> Database:
    asyncio.run(database.execute("CREATE TABLE t (n integer UNIQUE)"))
    return database


def sink_to(database: Database) -> PostgresSink[int]:
    return PostgresSink[int](database.address, "t", row=lambda n: (n,))


async def numbers(database: Database) -> list[int]:
    return [n for (n,) in await database.fetch("SELECT n FROM t ORDER BY n")]


async def staged(database: Database) -> int:
    ((count,),) = await database.fetch("SELECT count(*) FROM _aflow_staged")
    return cast(int, count)


async def test_rows_are_visible_once_their_checkpoint_is_complete(table: Database) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 1, 1, 2)
    await put(writer, 3)
    before = await numbers(table)

    await writer.commit(committable)
    await writer.commit(committable)
    await writer.close()

    assert (before, await numbers(table)) == ([], [1, 2])
    assert await staged(table) == 0


async def test_an_epoch_of_many_chunks_is_committed_once(table: Database) -> None:
    writer = await begun(sink_to(table))

    await put(writer, *range(40_000))
    committable = await prepared(writer, 1)
    chunks = await staged(table)
    await writer.commit(committable)
    await writer.flush()
    await writer.close()

    assert chunks == 3
    assert await numbers(table) == list(range(40_000))


async def test_a_chunk_in_flight_that_the_table_refuses_fails_each_later_checkpoint(
    table: Database,
) -> None:
    writer = await begun(sink_to(table))
    await put(writer, *range(16_383), 7)  # exactly a chunk: it is sent while the writer continues

    for checkpoint in (1, 2):
        with pytest.raises(
            SinkError, match=r"table 't' cannot take row \{'n': '7'\}: duplicate key"
        ):
            await prepared(writer, checkpoint)
    await writer.close()

    assert (await numbers(table), await staged(table)) == ([], 1)


async def test_a_writer_that_is_closed_with_a_chunk_in_flight_leaves_no_row(
    table: Database,
) -> None:
    sink = sink_to(table)
    writer = await begun(sink)
    first = await prepared(writer, 1, -1)
    await put(writer, *range(20_000))

    await writer.commit(first)
    await writer.close()
    await sink_to(table).recover("out", [first])

    assert (await numbers(table), await staged(table)) == ([-1], 0)


async def test_several_prepared_checkpoints_are_committed(table: Database) -> None:
    writer = await begun(sink_to(table))
    committables = [await prepared(writer, n, n) for n in range(1, 7)]

    for committable in committables:
        await writer.commit(committable)
    await writer.close()

    assert await numbers(table) == [1, 2, 3, 4, 5, 6]


async def test_after_a_crash_exactly_the_rows_of_the_checkpoint_remain(table: Database) -> None:
    writer = await begun(sink_to(table))
    first = await prepared(writer, 1, 1)
    await writer.commit(first)
    second = await prepared(writer, 2, *range(2, 9000))
    await prepared(writer, 3, 9003)
    await put(writer, *range(10_000, 16_000))
    await writer.close()

    for _ in range(2):
        await sink_to(table).recover("out", [first, second])

    assert await numbers(table) == list(range(1, 9000))
    assert await staged(table) == 0


async def test_a_sink_that_is_no_longer_exactly_once_writes_the_rows_of_its_checkpoint(
    table: Database,
) -> None:
    def upsert(*, exactly_once: bool) -> PostgresUpsert[int]:
        return PostgresUpsert[int](
            table.address, "t", key="n", row=lambda n: (n,), exactly_once=exactly_once
        )

    writer = await begun(upsert(exactly_once=True))
    committable = await prepared(writer, 1, 1, 2)
    await writer.close()

    for _ in range(2):
        await upsert(exactly_once=False).recover("out", [committable])

    assert (await numbers(table), await staged(table)) == ([1, 2], 0)


async def test_rows_of_many_writers_are_continued_by_fewer(table: Database) -> None:
    former = sink_to(table)
    await former.recover("out", [])
    committables: list[Committable] = []
    for subtask in range(3):
        writer = await opened(former, subtask=subtask)
        committables.append(await prepared(writer, 1, subtask))
        await writer.close()

    writer = await begun(sink_to(table), *committables)
    await writer.commit(await prepared(writer, 2, 9))
    await writer.close()

    assert await numbers(table) == [0, 1, 2, 9]


async def test_writers_at_once_lose_nothing(table: Database) -> None:
    sink = sink_to(table)
    await sink.recover("out", [])

    async def write(subtask: int) -> None:
        writer = await opened(sink, subtask=subtask)
        for checkpoint in range(1, 6):
            await writer.commit(await prepared(writer, checkpoint, subtask * 10 + checkpoint))
        await writer.close()

    async with asyncio.TaskGroup() as writers:
        for subtask in range(4):
            writers.create_task(write(subtask))

    assert await numbers(table) == [s * 10 + c for s in range(4) for c in range(1, 6)]


async def test_sinks_that_begin_at_once_create_the_tables_once(table: Database) -> None:
    async with asyncio.TaskGroup() as sinks:
        for _ in range(5):
            sinks.create_task(sink_to(table).recover("out", []))

    ((count,),) = await table.fetch("SELECT count(*) FROM _aflow_owners")
    assert count == 5


async def test_a_row_that_the_table_refuses_fails_the_checkpoint_not_the_commit(
    table: Database,
) -> None:
    writer = await begun(sink_to(table))
    await writer.commit(await prepared(writer, 1, 7))

    with pytest.raises(SinkError, match=r"table 't' cannot take row \{'n': '7'\}: duplicate key"):
        await prepared(writer, 2, 6, 7)
    await writer.close()

    assert await numbers(table) == [7]


async def test_a_row_that_the_next_epoch_repeats_fails_only_then(table: Database) -> None:
    writer = await begun(sink_to(table))
    first = await prepared(writer, 1, 7)
    second = await prepared(writer, 2, 7)  # waits for the lock, and is not checked

    await writer.commit(first)
    with pytest.raises(SinkError, match=r"cannot commit checkpoint 2 .*duplicate key .*_aflow_sta"):
        await writer.commit(second)
    await writer.close()

    assert await numbers(table) == [7]


async def test_a_job_that_starts_fresh_appends_and_numbers_its_checkpoints_from_one(
    table: Database,
) -> None:
    for number in (1, 2):
        writer = await begun(sink_to(table))
        await writer.commit(await prepared(writer, 1, number))
        await writer.close()

    assert await numbers(table) == [1, 2]


async def test_restoring_a_checkpoint_older_than_the_table_is_refused(table: Database) -> None:
    writer = await begun(sink_to(table))
    committables = [await prepared(writer, n, n) for n in (1, 2)]
    for committable in committables:
        await writer.commit(committable)
    await writer.close()

    with pytest.raises(
        SinkError, match="from checkpoint 1, but table 't' has the rows up to chec"
    ) as told:
        await sink_to(table).recover("out", committables[:1])

    # The message gives the statement that allows it.
    cure = str(told.value).partition("and then ")[2].partition(", or bring")[0]
    await table.execute("DELETE FROM t WHERE n = 2", cure)
    await sink_to(table).recover("out", committables[:1])
    assert await numbers(table) == [1]


async def test_a_former_run_that_still_lives_can_neither_stage_nor_commit(table: Database) -> None:
    zombie = await begun(sink_to(table))
    first = await prepared(zombie, 1, 1)
    second = await prepared(zombie, 2, 2)

    writer = await begun(sink_to(table), first)
    with pytest.raises(SinkError, match="another job has continued from a checkpoint of this one"):
        await zombie.commit(second)
    with pytest.raises(SinkError, match="another job has continued from a checkpoint of this one"):
        await prepared(zombie, 3, 3)
    await zombie.close()
    await writer.commit(await prepared(writer, 2, 5))
    await writer.close()

    assert await numbers(table) == [1, 5]
    assert await staged(table) == 0


async def test_staged_rows_that_were_removed_are_missed(table: Database) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 1, 1, 2)
    await writer.close()
    await table.execute("DELETE FROM _aflow_staged")

    with pytest.raises(SinkError, match=r"2 rows were prepared .* and 0 are staged .*: were rows"):
        await sink_to(table).recover("out", [committable])


async def test_a_crash_during_recovery_leaves_all_for_the_next_one(table: Database) -> None:
    writer = await begun(sink_to(table))
    committables = [await prepared(writer, n, n) for n in (1, 2)]
    await writer.close()
    await table.execute("INSERT INTO t VALUES (2)")  # the second one fails

    with pytest.raises(SinkError, match="duplicate key"):
        await sink_to(table).recover("out", committables)
    after_failure = await numbers(table)
    await table.execute("DELETE FROM t")
    await sink_to(table).recover("out", committables)

    assert (after_failure, await numbers(table)) == ([2], [1, 2])


async def test_jobs_with_sinks_of_one_name_do_not_touch_each_other(table: Database) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 1, 1, 2)

    other = await begun(sink_to(table))
    await other.commit(await prepared(other, 7, 3))
    await writer.commit(committable)
    await writer.close()
    await other.close()

    assert await numbers(table) == [1, 2, 3]


@pytest.mark.parametrize("rows", [(1, 2), ()], ids=["rows", "no rows"])
async def test_another_database_than_that_of_the_checkpoint_is_an_error_that_names_both(
    table: Database, rows: tuple[int, ...]
) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 3, *rows)
    await writer.close()
    await table.execute(
        f"CREATE SCHEMA {table.schema}_b", f"CREATE TABLE {table.schema}_b.t (n integer)"
    )
    moved: PostgresSink[Any] = PostgresSink(table.address, f"{table.schema}_b.t")

    try:
        with pytest.raises(RestoreError, match="Was the address or the table of the sink changed"):
            await moved.recover("out", [committable])
    finally:
        await table.execute(f"DROP SCHEMA {table.schema}_b CASCADE")


async def test_another_table_than_that_of_the_checkpoint_is_an_error_that_names_both(
    table: Database,
) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 1, 7)
    await writer.close()
    await table.execute("CREATE TABLE u (n integer)")

    with pytest.raises(RestoreError, match=r"\"u\" holds rows for table 't' of this job"):
        await PostgresSink[Any](table.address, "u").recover("out", [committable])
    await sink_to(table).recover("out", [committable])

    assert await numbers(table) == [7]
    assert await table.fetch("SELECT n FROM u") == []


async def test_a_writer_refuses_to_commit_rows_of_another_job(table: Database) -> None:
    writer = await begun(sink_to(table))
    committable = await prepared(writer, 1, 1)
    await writer.close()
    other = await begun(sink_to(table))

    with pytest.raises(SinkError, match="names rows of run"):
        await other.commit(committable)
    await other.close()

    assert await numbers(table) == []


@pytest.mark.parametrize("committable", [7, {"writer": 1}, {"checkpoint": "x"}], ids=repr)
async def test_a_committable_of_another_sink_is_an_error_that_shows_it(
    table: Database, committable: object
) -> None:
    with pytest.raises(RestoreError, match=r"^sink 'out' cannot commit .*another kind of sink"):
        await sink_to(table).recover("out", [committable])


@pytest.mark.parametrize(
    "crafted",
    [{name: 2**63} for name in ("writer", "epoch", "checkpoint", "rows")]
    + [{"writer": -1}, {"owner": "\ud800"}, {"run": "\0"}],
    ids=ascii,
)
async def test_a_committable_that_the_server_cannot_hold_is_an_error_of_the_restore(
    table: Database, crafted: dict[str, object]
) -> None:
    writer = await begun(sink_to(table))
    committable = cast("dict[str, object]", await prepared(writer, 1, 1))
    await writer.close()

    with pytest.raises(RestoreError, match="cannot commit"):
        await sink_to(table).recover("out", [{**committable, **crafted}])


async def test_the_end_without_a_checkpoint_that_covers_it_is_an_error(table: Database) -> None:
    writer = await begun(sink_to(table))
    await put(writer, 1)

    with pytest.raises(SinkError, match="no checkpoint covers the last records"):
        await writer.flush()
    await writer.close()


async def test_upserts_of_a_checkpoint_become_visible_together_and_the_last_of_a_key_wins(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE u (k text PRIMARY KEY, n integer NOT NULL, extra text)")
    sink: PostgresUpsert[Any] = PostgresUpsert(
        database.address, "u", key="k", columns=["k", "n"], exactly_once=True
    )
    writer = await begun(sink)
    records = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}]

    first = await prepared(writer, 1, *records)
    before = await database.fetch("SELECT k, n FROM u")
    second = await prepared(writer, 2, {"k": "b", "n": 4})
    await writer.commit(first)
    between = await database.fetch("SELECT k, n FROM u ORDER BY k")
    await writer.close()
    await sink.recover("out", [second])

    assert (before, between) == ([], [("a", 3), ("b", 2)])
    assert await database.fetch("SELECT k, n FROM u ORDER BY k") == [("a", 3), ("b", 4)]
