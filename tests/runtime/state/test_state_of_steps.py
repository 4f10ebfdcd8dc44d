"""The host reads the state of each kind of step, live and in the last checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import aflow as af
from aflow import Checkpointing, PushSource
from aflow.backends import DiskEngine, InMemory, OnDisk
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.state.all_steps import STATES, Expected, Record, all_steps
from tests.sorted_store import sorted_stores

Kind = Literal["memory", "sorted"] | DiskEngine

#: Five keys of two records each, within a window, in two batches with a gap between them.
RECORDS = [
    Record(f"key {key}", 10 * key + n, 100_000 + 2_500 * n + 10_000 * (n % 2) + 7 * key)
    for n, key in itertools.product(range(4), range(5))
]

BACKENDS = [
    pytest.param("memory"),
    pytest.param("sorted"),
    pytest.param(DiskEngine.SQLITE, id="sqlite"),
    pytest.param(
        DiskEngine.ROCKSDB,
        id="rocksdb",
        marks=pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict"),
    ),
]


@contextmanager
def backend_of(kind: Kind, folder: Path) -> Generator[af.Options]:
    """Return options with a backend that has two keys in memory if it is on disk."""
    if kind == "memory":
        yield af.Options(state=InMemory())
    elif kind == "sorted":
        with sorted_stores() as engine:
            yield af.Options(state=OnDisk(engine, folder, 2))
    else:
        yield af.Options(state=OnDisk(kind, folder, 2))


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 3])
@virtual_time
async def test_each_step_shows_its_state_live_and_in_the_checkpoint(
    tmp_path: Path, kind: Kind, parallelism: int
) -> None:
    source = PushSource[Record]()
    settings = Checkpointing(storage=tmp_path / "checkpoints", every=None)
    with backend_of(kind, tmp_path) as options:
        async with all_steps(source).start(
            checkpointing=settings, options=options, parallelism=parallelism
        ) as job:
            for record in RECORDS:
                await source.send(record)
            await settle()
            await job.checkpoint()
            expected = Expected(RECORDS)

            for step, name in STATES:
                reader, values = job.state(step, name), expected.of(step, name)
                listed = [item async for item in reader.items()]
                stored = [item async for item in reader.items(as_of="checkpoint")]
                assert values, step
                assert dict(listed) == values, step
                assert [key for key, _ in listed] == sorted(values), step
                assert stored == listed, step
                for key, value in values.items():
                    assert await reader.get(key) == value, step
                    assert await reader.get(key, as_of="checkpoint") == value, step
                assert await reader.get("nobody") is None
                assert await reader.get("nobody", as_of="checkpoint") is None
