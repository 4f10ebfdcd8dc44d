"""Delta tables as a source and as a sink."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Batch, Position, SinkError, SourceError, Tag, WriterContext
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.testing import check_sink, check_source
from aflow_connectors.delta import ChangeKind, DeltaChanges, DeltaSink, DeltaSource, RowChange

#: They have no types, or incomplete ones.
pa: Any = import_module("pyarrow")
lake: Any = import_module("deltalake")
DeltaTable: Any = lake.DeltaTable
write_deltalake: Any = lake.write_deltalake

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
RECORDS = [{"n": number, "name": str(number)} for number in range(12)]


@dataclass
class Row:
    n: int
    name: str | None


ROWS = [Row(number, str(number)) for number in range(12)]


def filled(path: Path, *, feed: bool = False) -> str:
    """Create a table of three versions with four rows each."""
    configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
    DeltaTable.create(path, schema=SCHEMA, configuration=configuration)
    for first in (0, 4, 8):
        write_deltalake(
            path, pa.Table.from_pylist(RECORDS[first : first + 4], schema=SCHEMA), mode="append"
        )
    return str(path)


def rows_of(path: object) -> list[dict[str, Any]]:
    table = DeltaTable(str(path)).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["n"])


async def read(source: DeltaSource[Any], position: Position | None = None) -> list[Any]:
    """Return the records after ``position``, to the end."""
    (split,) = await source.splits()
    reader = await source.reader(split, position)
    values: list[Any] = []
    while (chunk := await reader.read(3)) is not None:
        values += chunk.values
    await reader.close()
    return values


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_versions_of_a_table_are_a_source(tmp_path: Path) -> None:
    path = filled(tmp_path / "table")

    await check_source(lambda: DeltaSource(path, of=Row, start=0), expected=ROWS)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_changes_of_a_table_are_a_source(tmp_path: Path) -> None:
    path = filled(tmp_path / "table", feed=True)
    DeltaTable(path).update(updates={"name": "'x'"}, predicate="n = 3")
    DeltaTable(path).delete("n = 5")

    await check_source(lambda: DeltaChanges(path, of=Row, start=0))
    changes = await read(DeltaChanges(path, of=Row, start=3))

    assert sorted(changes, key=lambda one: (one.version, one.kind.value)) == [
        RowChange(ChangeKind.AFTER, Row(3, "x"), 4),
        RowChange(ChangeKind.BEFORE, Row(3, "3"), 4),
        RowChange(ChangeKind.DELETE, Row(5, "5"), 5),
    ]
    snapshot = await read(DeltaChanges(path, of=Row))
    assert {one.kind for one in snapshot} == {ChangeKind.INSERT}
    assert len(snapshot) == 11


@pytest.mark.asyncio
async def test_a_snapshot_is_of_one_version_also_after_a_restart(tmp_path: Path) -> None:
    path = filled(tmp_path / "table")
    source = DeltaSource(path, of=Row, columns=["n", "name"])
    (split,) = await source.splits()
    reader = await source.reader(split, None)
    chunk = await reader.read(5)
    assert chunk is not None
    DeltaTable(path).delete("n < 12")

    with pytest.raises(SourceError, match=r"version 4 of .* \(DELETE\) changed or deleted rows"):
        await read(source, chunk.position)
    rest: list[Row] = []
    with suppress(SourceError):
        while (more := await reader.read(100)) is not None:
            rest += more.values

    assert sorted((*chunk.values, *rest), key=lambda row: row.n) == ROWS


@pytest.mark.asyncio
async def test_rewritten_files_are_not_read_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "table")
    DeltaTable(path).optimize.compact()
    write_deltalake(
        path, pa.Table.from_pylist([{"n": 12, "name": None}], schema=SCHEMA), mode="append"
    )

    assert await read(DeltaSource(path, of=Row, start=2)) == [*ROWS[8:], Row(12, None)]
    assert len(await read(DeltaSource(path))) == 13


@pytest.mark.asyncio
async def test_new_versions_are_followed(tmp_path: Path) -> None:
    path = filled(tmp_path / "table")
    found: list[int] = []
    more = asyncio.Event()

    def show(row: Row) -> None:
        found.append(row.n)
        if len(found) >= 12:
            more.set()

    flow = af.Flow("follow")
    source = DeltaSource(path, of=Row, discover_every=timedelta(milliseconds=10))
    flow.source(source, name="rows").to(af.CallbackSink(show), name="show")
    async with flow.start() as job:
        await more.wait()
        more.clear()
        write_deltalake(path, pa.Table.from_pylist(RECORDS[:1], schema=SCHEMA), mode="append")
        await more.wait()
        await job.cancel()

    assert sorted(found[:12]) == list(range(12))
    assert found[12:] == [0]


@pytest.mark.asyncio
async def test_rows_that_do_not_match_are_dead_letters(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, pa.table({"n": [1, None], "name": ["a", "b"]}))

    with pytest.raises(SourceError, match=r"version 0, row 1: .* - at `\$.n`"):
        await read(DeltaSource(path, of=Row))
    source = DeltaSource(path, of=Row, dead_letters=Tag[BadRecord]("bad"))
    assert await read(source) == [Row(1, "a")]


@pytest.mark.asyncio
async def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*nothing"):
        await read(DeltaSource(str(tmp_path / "nothing")))
    path = filled(tmp_path / "table")
    with pytest.raises(SourceError, match=r"version 1 of .*table has no change feed"):
        await read(DeltaChanges[Any](path, start=0))
    with pytest.raises(SourceError, match="is not a position in a Delta table"):
        await read(DeltaSource(path), ("a",))
    with pytest.raises(FlowDefinitionError, match="start= must be 'snapshot' or"):
        DeltaSource(path, start=-1)
    with pytest.raises(FlowDefinitionError, match="must have no credentials") as caught:
        DeltaSource("s3://me:sesame@bucket/table")
    assert "sesame" not in str(caught.value)


# ---------------------------------------------------------------------------------------------- sink


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_table_is_a_transactional_sink(tmp_path: Path) -> None:
    made: list[tuple[DeltaSink[Any], Path]] = []

    def make() -> DeltaSink[Any]:
        path = tmp_path / str(len(made))
        made.append((DeltaSink(path, schema=SCHEMA), path))
        return made[-1][0]

    def visible(sink: DeltaSink[Any]) -> list[dict[str, Any]]:
        path = next(path for one, path in made if one is sink)
        return rows_of(path) if DeltaTable.is_deltatable(str(path)) else []

    await check_sink(make, visible, RECORDS)


async def write_to_end(path: Path, journal: list[Any], *, stop: int = len(RECORDS)) -> None:
    """Continue from the last checkpoint in ``journal``: each record once."""
    last: tuple[int, list[Any]] = journal[-1] if journal else (0, [])
    position, committables = last
    sink = DeltaSink[Any](path, schema=SCHEMA)
    await sink.recover("out", committables)
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    try:
        while position < stop:
            writing = writer.write(Batch(RECORDS[position : position + 4]))
            if writing is not None:
                await writing
            position += 4
            committable = await writer.prepare(position // 4)
            journal.append((position, [committable]))
            await writer.commit(committable)
        await writer.flush()
    finally:
        await writer.close()


@pytest.mark.asyncio
async def test_a_text_of_ten_megabytes_and_an_empty_one_are_written_and_read(
    tmp_path: Path,
) -> None:
    rows = [{"n": 1, "name": "x" * 10_000_000}, {"n": 2, "name": ""}]
    sink = DeltaSink[Any](tmp_path, schema=SCHEMA)
    await sink.recover("out", [])
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    writing = writer.write(Batch(rows))
    if writing is not None:
        await writing

    await writer.commit(await writer.prepare(1))
    await writer.close()

    assert await read(DeltaSource(str(tmp_path))) == rows


@pytest.mark.asyncio
async def test_later_rows_are_removed_when_an_older_checkpoint_is_restored(tmp_path: Path) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal)
    write_deltalake(
        tmp_path, pa.Table.from_pylist([{"n": 99, "name": "other"}], schema=SCHEMA), mode="append"
    )

    # Twice: the numbers of the removed checkpoints are used again.
    for _ in range(2):
        await DeltaSink[Any](tmp_path).recover("out", journal[0][1])
        assert rows_of(tmp_path) == [*RECORDS[:4], {"n": 99, "name": "other"}]
        await write_to_end(tmp_path, journal[:1])
        assert rows_of(tmp_path) == [*RECORDS, {"n": 99, "name": "other"}]


@pytest.mark.asyncio
async def test_rows_that_were_rewritten_cannot_be_removed(tmp_path: Path) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal)
    DeltaTable(tmp_path).optimize.compact()

    with pytest.raises(RestoreError, match=r"their files were rewritten \(OPTIMIZE\)"):
        await DeltaSink[Any](tmp_path).recover("out", journal[0][1])
    await DeltaSink[Any](tmp_path).recover("out", journal[-1][1])
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_rows_that_were_rewritten_in_part_cannot_be_removed(tmp_path: Path) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal, stop=8)
    DeltaTable(tmp_path).optimize.compact()
    await write_to_end(tmp_path, journal)

    with pytest.raises(RestoreError, match=r"their files were rewritten \(OPTIMIZE\)"):
        await DeltaSink[Any](tmp_path).recover("out", journal[0][1])
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_rewritten_rows_of_another_run_cannot_be_removed(tmp_path: Path) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal, stop=4)
    await write_to_end(tmp_path, journal[:1])
    DeltaTable(tmp_path).optimize.compact()

    with pytest.raises(RestoreError, match=r"their files were rewritten \(OPTIMIZE\)"):
        await DeltaSink[Any](tmp_path).recover("out", journal[0][1])
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_no_rows_are_removed_from_a_table_that_is_append_only(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, schema=SCHEMA, configuration={"delta.appendOnly": "true"})
    journal: list[Any] = []
    await write_to_end(tmp_path, journal)

    with pytest.raises(RestoreError, match=r"delta.appendOnly\. Set it to 'false'"):
        await DeltaSink[Any](tmp_path).recover("out", journal[0][1])
    assert rows_of(tmp_path) == RECORDS
    DeltaTable(tmp_path).alter.set_table_properties({"delta.appendOnly": "false"})
    await write_to_end(tmp_path, journal[:1])
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_a_checkpoint_with_removed_rows_cannot_be_restored(tmp_path: Path) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal)
    later = journal[:1]
    await write_to_end(tmp_path, later, stop=8)

    for removed in journal[1:]:
        with pytest.raises(RestoreError, match=r"a restore of checkpoint 1 has removed the rows"):
            await DeltaSink[Any](tmp_path).recover("out", removed[1])
    assert rows_of(tmp_path) == RECORDS[:8]
    # Checkpoints of the new run have the same numbers.
    await write_to_end(tmp_path, later)
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_a_checkpoint_is_refused_after_another_run_has_written_rows_in_its_place(
    tmp_path: Path,
) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal, stop=4)
    former = DeltaSink[Any](tmp_path)
    await former.recover("out", journal[0][1])
    writer = await former.writer(WriterContext("out", checkpoints=True))
    without_rows = [await writer.prepare(number) for number in (2, 3)]
    await writer.close()
    # Nothing is withdrawn, and the numbers are used again.
    await write_to_end(tmp_path, journal)

    for one in without_rows:
        with pytest.raises(RestoreError, match="restored from an older checkpoint has written"):
            await DeltaSink[Any](tmp_path).recover("out", [one])
    assert rows_of(tmp_path) == RECORDS
    for _, committables in reversed(journal):
        await DeltaSink[Any](tmp_path).recover("out", committables)
    assert rows_of(tmp_path) == RECORDS[:4]


@pytest.mark.asyncio
async def test_an_older_checkpoint_is_restored_with_an_older_version_of_the_table(
    tmp_path: Path,
) -> None:
    journal: list[Any] = []
    await write_to_end(tmp_path, journal, stop=4)
    version = DeltaTable(tmp_path).version()
    await write_to_end(tmp_path, journal)
    DeltaTable(tmp_path).optimize.compact()
    DeltaTable(tmp_path).restore(version)

    await write_to_end(tmp_path, journal[:1])
    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
async def test_a_commit_of_two_processes_takes_effect_once(tmp_path: Path) -> None:
    sink = DeltaSink[Any](tmp_path, schema=SCHEMA)
    await sink.recover("out", [])
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    writing = writer.write(Batch(RECORDS))
    if writing is not None:
        await writing
    committable = await writer.prepare(1)

    await asyncio.gather(
        *(DeltaSink[Any](tmp_path).recover("out", [committable]) for _ in range(4)),
        writer.commit(committable),
    )
    await writer.close()

    assert rows_of(tmp_path) == RECORDS


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": ["name"]}, "is partitioned by name"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "maps its columns"),
    ],
    ids=["partitions", "names"],
)
async def test_tables_that_plain_files_would_break_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    try:
        DeltaTable.create(tmp_path, schema=SCHEMA, **options)
    except Exception as exc:
        pytest.skip(f"this version of deltalake creates no such table: {exc}")

    with pytest.raises(SinkError, match=message):
        await DeltaSink(tmp_path).recover("out", [])


@pytest.mark.asyncio
async def test_a_table_with_a_constraint_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, schema=SCHEMA).alter.add_constraint({"positive": "n > 0"})

    with pytest.raises(SinkError, match="has the constraint 'positive'"):
        await DeltaSink(tmp_path).recover("out", [])


@pytest.mark.asyncio
async def test_a_missing_table_and_a_wrong_record_are_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"there is no Delta table at .*: create it, or give"):
        await DeltaSink(tmp_path / "nothing").recover("out", [])
    sink = DeltaSink[Any](tmp_path / "table", schema=SCHEMA)
    await sink.recover("out", [])
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    writing = writer.write(Batch([{"n": 1}]))
    assert writing is None

    with pytest.raises(SinkError, match="its fields are not the columns"):
        await writer.prepare(1)
    await writer.close()
    with pytest.raises(RestoreError, match="another kind of sink"):
        await sink.recover("out", [{"rows": 1}])


@pytest.mark.asyncio
async def test_a_job_copies_a_table(tmp_path: Path) -> None:
    path = filled(tmp_path / "table")
    flow = af.Flow("copy")
    sink = DeltaSink[Row](tmp_path / "copy", schema=SCHEMA)
    flow.source(DeltaSource(path, of=Row), name="rows").to(sink, name="copy")

    await flow.run(checkpointing=af.Checkpointing(storage=tmp_path / "state"), parallelism=2)

    assert rows_of(tmp_path / "copy") == RECORDS
