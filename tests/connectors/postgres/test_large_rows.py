"""Rows with values of 10 MB, and with empty ones, through the sink, the table and the changes."""

from __future__ import annotations

from typing import Any

import pytest

from aflow_connectors.postgres import PostgresChanges, PostgresSink, PostgresTable
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.reading import all_changes, values
from tests.connectors.postgres.writing import begun, prepared


@pytest.mark.asyncio
async def test_values_of_ten_megabytes_and_empty_ones_are_written_and_read(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE large (id integer PRIMARY KEY, item text, data bytea)")
    rows = [
        {"id": 1, "item": "x" * 10_000_000, "data": b""},
        {"id": 2, "item": "", "data": b"y" * 10_000_000},
    ]
    changes: PostgresChanges[Any] = PostgresChanges(
        database.address, "large", slot=database.schema, until="now"
    )
    await all_changes(changes)  # creates the slot
    writer = await begun(PostgresSink[Any](database.address, "large"))

    await writer.commit(await prepared(writer, 1, *rows))
    await writer.close()

    source: PostgresTable[Any] = PostgresTable(database.address, "large", key="id")
    found: list[Any] = []
    for split in await source.splits():
        reader = await source.reader(split, None)
        while (chunk := await reader.read(10)) is not None:
            found += chunk.values
        await reader.close()
    assert found == rows
    assert [one.after for one in values(await all_changes(changes))] == rows
