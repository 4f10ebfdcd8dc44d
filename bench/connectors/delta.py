"""Delta Lake: rows of a table, read and written by aflow and by a loop over deltalake, in a local folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import aflow as af
from aflow_connectors.delta import DeltaSink, DeltaSource
from bench.connectors.comparison import compare_directions, temporary_folder
from bench.harness import Measurement

#: They have no types, or incomplete ones.
pa: Any = import_module("pyarrow")
lake: Any = import_module("deltalake")
DeltaTable: Any = lake.DeltaTable
write_deltalake: Any = lake.write_deltalake

#: Rows of a commit of the loop.
COMMIT: Final = 65_536
SCHEMA: Final = pa.schema([("n", pa.int64()), ("name", pa.string()), ("share", pa.float64())])


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Measure the source and the sink."""
    rows: list[dict[str, Any]] = [
        {"n": n, "name": f"a record of some bytes {n}", "share": n / 7} for n in range(records)
    ]
    with temporary_folder() as folder:
        write_deltalake(folder / "source", pa.Table.from_pylist(rows, schema=SCHEMA))
        yield _source(folder / "source", records, rounds)
        yield _sink(folder, rows, rounds)


def _source(path: Path, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, out = af.Flow("read"), af.CollectSink[int]()
        flow.source(DeltaSource[dict[str, Any]](path), name="in").map(lambda row: row["n"]).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        found: list[int] = []
        for batch in DeltaTable(path).to_pyarrow_dataset().to_batches():
            rows = await asyncio.to_thread(batch.to_pylist)
            found += [row["n"] for row in rows]
        return sum(found)

    return compare_directions("delta_source", records, rounds, in_aflow, by_hand)


def _sink(folder: Path, rows: list[dict[str, Any]], rounds: int) -> Measurement:
    numbers = count()

    def total(path: Path) -> int:
        return sum(DeltaTable(path).to_pyarrow_table(columns=["n"])["n"].to_pylist())

    async def in_aflow() -> int:
        path = folder / f"out-{next(numbers)}"
        flow = af.Flow("write")
        sink = DeltaSink[dict[str, Any]](path, schema=SCHEMA)
        flow.source(rows, name="in").to(sink, name="out")
        storage, every = folder / f"state-{path.name}", timedelta(milliseconds=500)
        await flow.run(checkpointing=af.Checkpointing(storage=storage, every=every))
        return total(path)

    async def by_hand() -> int:
        path = folder / f"by-hand-{next(numbers)}"
        for start in range(0, len(rows), COMMIT):
            table = pa.Table.from_pylist(rows[start : start + COMMIT], schema=SCHEMA)
            await asyncio.to_thread(write_deltalake, path, table, mode="append")
        return total(path)

    return compare_directions("delta_sink", len(rows), rounds, in_aflow, by_hand)
