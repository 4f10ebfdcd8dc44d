"""The host reads the state of each kind of step, live and in the last checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aflow as af
from aflow import Checkpointing, PushSource
from aflow.backends import DiskEngine, InMemory, OnDisk
from aflow.runtime.state_query import AsOf
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.state.all_steps import DELAY, STATES, Expected, Record, all_steps
from tests.sorted_store import sorted_stores

pytestmark = pytest.mark.usefixtures("inline_threads")

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
@virtual_time
async def test_each_step_shows_its_state_live_and_in_the_checkpoint(
    tmp_path: Path, kind: Kind
) -> None:
    source = PushSource[Record]()
    checkpointing = Checkpointing(storage=tmp_path / "checkpoints", every=None)
    with backend_of(kind, tmp_path) as options:
        async with all_steps(source).start(
            checkpointing=checkpointing, options=options, parallelism=2
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
                assert len(values) == 5, step
                assert listed == sorted(values.items()), step
                assert stored == listed, step
                assert await reader.get("key 3") == values["key 3"], step
                assert await reader.get("key 3", as_of="checkpoint") == values["key 3"], step
                assert await reader.get("nobody") is None, step
                assert await reader.get("nobody", as_of="checkpoint") is None, step


steps = st.sets(st.sampled_from(STATES), min_size=1, max_size=3)
backends: st.SearchStrategy[Kind] = st.sampled_from(["memory", "sorted"])


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Draw records that are out of order, and none late."""
    now, records = 100_000, list[Record]()
    for key, number, step, before in draw(
        st.lists(
            st.tuples(
                st.sampled_from("abcd"),
                st.integers(0, 9),
                st.integers(0, 9_000),
                st.integers(0, DELAY // 2),
            ),
            min_size=1,
            max_size=40,
        )
    ):
        now += step
        records.append(Record(key, number, now - before))
    return records


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    history=histories(),
    states=steps,
    kind=backends,
    parallelism=st.integers(1, 3),
    cut=st.integers(0, 40),
)
def test_the_state_of_a_random_flow_is_that_of_a_plain_program(
    history: list[Record],
    states: set[tuple[str, str | None]],
    kind: Kind,
    parallelism: int,
    cut: int,
) -> None:
    @virtual_time
    async def run(folder: Path) -> None:
        source = PushSource[Record]()
        checkpointing = Checkpointing(storage=folder / "checkpoints", every=None)
        flow = all_steps(source, {step for step, _ in states})
        with backend_of(kind, folder) as options:
            async with flow.start(
                checkpointing=checkpointing, options=options, parallelism=parallelism
            ) as job:
                # The first checkpoint is complete, and the second one holds changes.
                for some in (history[:cut], history[cut:]):
                    await source.send_many(some)
                    await settle()
                    await job.checkpoint()
                expected = Expected(history)
                for step, name in states:
                    for as_of in as_ofs:
                        reader = job.state(step, name)
                        items = [item async for item in reader.items(as_of=as_of)]
                        found = {key: expected.found(step, value) for key, value in items}
                        values = expected.of(step, name)
                        assert {
                            key: one for key, one in found.items() if one is not None
                        } == values, step
                        for key in "abcd":
                            value = await reader.get(key, as_of=as_of)
                            assert expected.found(step, value) == values.get(key), step

    as_ofs: tuple[AsOf, ...] = ("live", "checkpoint")
    with TemporaryDirectory() as folder:
        run(Path(folder))
