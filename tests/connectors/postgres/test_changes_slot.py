"""Slots, publications and privileges: what is missing or lost is an error with the next step."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from aflow.connect import Reader, SourceError
from aflow_connectors.postgres import Change, PostgresChanges
from aflow_connectors.postgres.changes import link
from aflow_connectors.postgres.changes.position import decoded
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.reading import all_changes, changes, opened, snapshot_of, values
from tests.connectors.postgres.server import WITH_PASSWORD, run

pytestmark = pytest.mark.asyncio


def source(database: Database, **options: Any) -> PostgresChanges[Any]:
    dsn: str = options.pop("dsn", database.address)
    given: dict[str, Any] = {"slot": database.schema, **options}
    return PostgresChanges(dsn, "t", **given)


@asynccontextmanager
async def reading(
    source: PostgresChanges[Any], position: object = None
) -> AsyncGenerator[Reader[Change[Any]]]:
    reader = await opened(source, position)
    try:
        yield reader
    finally:
        await reader.close()


async def position_of(reader: Reader[Change[Any]]) -> object:
    chunk = await reader.read(100)
    assert chunk is not None
    return chunk.position


@pytest.fixture(autouse=True)
def table(database: Database) -> None:
    run(database.execute("CREATE TABLE t (id integer PRIMARY KEY)"))


async def confirmed(database: Database) -> int:
    ((lsn,),) = await database.fetch(
        "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1",
        database.schema,
    )
    return int(lsn)


async def test_the_slot_confirms_what_completed_checkpoints_cover_and_nothing_else(
    database: Database,
) -> None:
    async with reading(source(database, snapshot=False)) as reader:
        start = await confirmed(database)
        await reader.read(1)
        await database.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        first = await position_of(reader)
        await database.execute("INSERT INTO t VALUES (3)")
        second = await position_of(reader)
    assert await confirmed(database) == start

    async with reading(source(database), second) as reader:
        await reader.on_checkpoint_completed(first)
    assert await confirmed(database) == decoded(first, "").lsn > start

    async with reading(source(database), first) as reader:
        assert [one.key for one in await changes(reader, 1)] == [("3",)]


async def test_a_checkpoint_before_the_confirmed_position_is_refused(database: Database) -> None:
    async with reading(source(database, snapshot=False)) as reader:
        early = await position_of(reader)
        await database.execute("INSERT INTO t VALUES (1)")
        await reader.on_checkpoint_completed(await position_of(reader))

    with pytest.raises(SourceError, match="a later checkpoint of this job has confirmed it"):
        await opened(source(database), early)


async def test_rows_before_changes_are_required_at_the_start_and_of_each_change(
    database: Database,
) -> None:
    full = source(database, require_before=True)
    with pytest.raises(
        SourceError, match=r'table \'t\': .* ALTER TABLE .*\."t" REPLICA IDENTITY FULL'
    ):
        await opened(full)
    await database.execute("ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1)")

    async with reading(full) as reader:
        assert [one.kind for one in await changes(reader, 1)] == ["insert"]
        await database.execute("UPDATE t SET id = 2")
        assert [one.before for one in await changes(reader, 1)] == [{"id": 1}]
        await database.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT", "DELETE FROM t")
        with pytest.raises(SourceError, match="the delete was sent without the row before it"):
            await changes(reader, 1)


async def test_rows_before_changes_are_required_of_each_partition(database: Database) -> None:
    await database.execute(
        "CREATE TABLE p (id integer PRIMARY KEY, a text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id)",
        "CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE p REPLICA IDENTITY FULL",  # not of its partitions
        "INSERT INTO p VALUES (1, 'a'), (11, 'b')",
    )
    full = PostgresChanges[Any](database.address, "p", slot=database.schema, require_before=True)

    with pytest.raises(SourceError, match="table 'p'") as refused:
        await opened(full)
    demanded = str(refused.value).partition("demands: ")[2].split("; ")
    assert [one.rpartition(".")[2] for one in demanded] == [
        '"p1" REPLICA IDENTITY FULL',
        '"p21" REPLICA IDENTITY FULL',
    ]

    await database.execute(*demanded)
    async with reading(full) as reader:
        await snapshot_of(reader)
        await database.execute("UPDATE p SET a = 'c' WHERE id = 1", "DELETE FROM p WHERE id = 11")
        found = await changes(reader, 2)
    assert [one.before for one in found] == [{"id": 1, "a": "a"}, {"id": 11, "a": "b"}]


async def test_a_dropped_slot_is_an_error_for_a_checkpoint(database: Database) -> None:
    async with reading(source(database)) as reader:
        position = await position_of(reader)
    await database.execute(f"SELECT pg_drop_replication_slot('{database.schema}')")

    with pytest.raises(SourceError, match=r"the slot was dropped, .* start the job fresh"):
        await opened(source(database), position)


async def test_a_checkpoint_of_another_server_or_source_is_refused(database: Database) -> None:
    async with reading(source(database)) as reader:
        position = await position_of(reader)
    other = replace(decoded(position, ""), system="1")

    with pytest.raises(SourceError, match="the checkpoint is of another server"):
        await opened(source(database), other.encoded())
    with pytest.raises(SourceError, match="the checkpoint is of another kind of source"):
        await opened(source(database), 7)


async def test_a_fresh_job_with_an_existing_slot_reads_a_snapshot_or_continues_at_the_slot(
    database: Database,
) -> None:
    await all_changes(source(database, until="now"))
    await database.execute(
        "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1"
    )

    with_snapshot = values(await all_changes(source(database, until="now")))
    without = values(await all_changes(source(database, until="now", snapshot=False)))

    assert [(one.kind, one.key) for one in with_snapshot] == [("insert", ("2",))]
    assert [(one.kind, one.key) for one in without] == [
        ("insert", ("1",)),
        ("insert", ("2",)),
        ("delete", ("1",)),
    ]


async def test_a_slot_that_another_reader_uses_is_waited_for_and_then_an_error(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_IN_USE_MARGIN", 0.1)
    options = f"-c search_path={database.schema} -c wal_sender_timeout=100ms"
    second = source(database, client={"options": options})

    async with reading(source(database)):
        with pytest.raises(SourceError, match=r"is active .* another job reads this slot"):
            await opened(second)


async def test_slots_of_another_kind_are_refused(database: Database) -> None:
    await database.execute(
        f"SELECT pg_create_physical_replication_slot('{database.schema}')",
        f"SELECT pg_create_logical_replication_slot('{database.schema}_2', 'test_decoding')",
    )

    with pytest.raises(SourceError, match="the slot is a physical one"):
        await opened(source(database))
    with pytest.raises(SourceError, match="the slot is of plugin 'test_decoding'"):
        await opened(source(database, slot=f"{database.schema}_2"))


async def test_missing_tables_and_publications_are_errors(database: Database) -> None:
    await database.execute(f"CREATE PUBLICATION p_{database.schema}")

    with pytest.raises(SourceError, match="there is no publication 'nowhere'"):
        await opened(source(database, publication="nowhere"))
    with pytest.raises(SourceError, match=r"has no table 't': add it \(ALTER PUBLICATION"):
        await opened(source(database, publication=f"p_{database.schema}"))
    await database.execute("DROP TABLE t")
    with pytest.raises(SourceError, match="there is no table 't' in the search path"):
        await opened(source(database))


async def test_a_slot_that_is_older_than_its_publication_is_not_continued(
    database: Database,
) -> None:
    await database.execute(
        f"SELECT pg_create_logical_replication_slot('{database.schema}', 'pgoutput')",
        "INSERT INTO t VALUES (1)",
    )

    with pytest.raises(SourceError, match="the slot is continued, and there is no publication"):
        await opened(source(database, snapshot=False))
    async with reading(source(database)) as reader:
        position = await position_of(reader)
        assert [one.key for one in await snapshot_of(reader)] == [("1",)]
    await database.execute(f"DROP PUBLICATION {database.schema}")
    with pytest.raises(SourceError, match="the slot is continued, and there is no publication"):
        await opened(source(database), position)


@pytest.mark.parametrize(
    ("moving", "name"),
    [("RENAME TO u", "u"), ("SET SCHEMA {}_b", "{}_b.t")],
    ids=["renamed", "moved"],
)
async def test_a_table_that_is_renamed_is_an_error_and_continued_by_its_new_name(
    database: Database, moving: str, name: str
) -> None:
    await database.execute(f"CREATE SCHEMA {database.schema}_b")
    name = name.format(database.schema)
    try:
        async with reading(source(database, snapshot=False)) as reader:
            position = await position_of(reader)
            await database.execute(
                "INSERT INTO t VALUES (1)",
                f"ALTER TABLE t {moving.format(database.schema)}",
                f"INSERT INTO {name} VALUES (2)",
            )
            with pytest.raises(SourceError, match=r"'t' was renamed or moved to .*: name it so in"):
                await changes(reader, 2)

        renamed = PostgresChanges[Any](database.address, name, slot=database.schema, snapshot=False)
        async with reading(renamed, position) as reader:
            found = await changes(reader, 2)
    finally:
        await database.execute(f"DROP SCHEMA {database.schema}_b CASCADE")

    assert [(one.table, one.key) for one in found] == [(name, ("1",)), (name, ("2",))]


async def test_a_snapshot_needs_a_key(database: Database) -> None:
    await database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")

    with pytest.raises(SourceError, match="table 't' has no primary key, and a snapshot needs one"):
        await opened(source(database))
    async with reading(source(database, snapshot=False)) as reader:
        await reader.read(1)
        await database.execute("INSERT INTO t VALUES (1)")
        (insert,) = await changes(reader, 1)
    assert insert.key == ()


async def test_missing_privileges_are_errors_with_the_next_step(database: Database) -> None:
    role, password = WITH_PASSWORD
    host, port = database.server.host_and_port
    exists = await database.fetch("SELECT 1 FROM pg_roles WHERE rolname = $1", role)
    if not exists:
        await database.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    name = f"{database.schema}.t"
    other = PostgresChanges(
        f"postgresql://{role}@{host}:{port}/postgres",
        name,
        slot=database.schema,
        client={"password": password},
    )
    await database.execute(f"GRANT USAGE ON SCHEMA {database.schema} TO {role}")

    try:
        with pytest.raises(SourceError, match="needs the attribute REPLICATION"):
            await opened(other)
        await database.execute(f"ALTER ROLE {role} REPLICATION")
        with pytest.raises(
            SourceError, match="let the owner of the tables run: CREATE PUBLICATION"
        ):
            await opened(other)
        await database.execute(f"CREATE PUBLICATION {database.schema} FOR TABLE t")
        async with reading(other) as reader:
            await reader.read(1)
            with pytest.raises(SourceError, match="the snapshot needs SELECT on the tables"):
                await snapshot_of(reader)
    finally:
        await database.execute(f"ALTER ROLE {role} NOREPLICATION")


async def test_a_wrong_password_fails_at_once_without_the_password(database: Database) -> None:
    host, port = database.server.host_and_port
    for dsn, reason in (
        (
            f"postgresql://{WITH_PASSWORD[0]}:0pen@{host}:{port}/postgres",
            "password authentication failed",
        ),
        (f"postgresql://postgres:0pen@{host}:{port}/nowhere", '"nowhere" does not exist'),
    ):
        with pytest.raises(SourceError, match=reason) as told:
            await opened(source(database, dsn=dsn))
        assert "0pen" not in str(told.value)
