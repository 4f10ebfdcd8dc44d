"""A restore finds the types of records among those that the program has imported, and imports none itself."""

from __future__ import annotations

import asyncio
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.model.codecs import PLAIN, record_kinds
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.sections import PENDING, read_committables
from aflow.state.manifest import Link, SubtaskState
from aflow.state.snapshot import OperatorSnapshot

MODULE = "orders_of_test_restoring_types"
SOURCE = "from dataclasses import dataclass\n\n@dataclass\nclass Order:\n    id: int\n"


def imported(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    record_kinds.form_named.cache_clear()
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    exec(SOURCE, vars(module))
    return module


def build(orders: list[Any], sink: af.Sink[Any], *, stuck: bool) -> af.Flow:
    async def call(order: Any) -> Any:
        if stuck:
            await asyncio.Event().wait()
        return order.id

    flow = af.Flow("orders")
    flow.source(orders, name="orders").map_async(call, name="call").to(sink, name="out")
    return flow


async def checkpoint_with_calls(folder: Path, orders: list[Any]) -> None:
    settings = af.Checkpointing(storage=folder, every=None)
    async with build(orders, af.CollectSink(), stuck=True).start(checkpointing=settings) as job:

        def under_way() -> int:
            calls = job.metrics().steps["call"].calls
            return 0 if calls is None else calls.in_flight

        while under_way() < len(orders):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        await job.checkpoint()
        await job.cancel()


@pytest.mark.asyncio
async def test_records_under_way_come_back_if_their_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(monkeypatch)
    await checkpoint_with_calls(tmp_path, [module.Order(1), module.Order(2)])

    sink: af.CollectSink[int] = af.CollectSink()
    settings = af.Checkpointing(storage=tmp_path, every=None)
    await build([module.Order(1), module.Order(2)], sink, stuck=False).run(checkpointing=settings)

    assert sorted(sink.values) == [1, 2]


@pytest.mark.asyncio
async def test_a_restore_imports_no_module_that_a_checkpoint_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(monkeypatch)
    orders = [module.Order(1), module.Order(2)]
    await checkpoint_with_calls(tmp_path / "state", orders)
    (tmp_path / f"{MODULE}.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n{SOURCE}"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, MODULE)
    record_kinds.form_named.cache_clear()  # another process has none

    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    with pytest.raises(af.RestoreError, match=rf"step 'call' .*'{MODULE}' is not imported"):
        await build(orders, af.CollectSink(), stuck=False).run(checkpointing=settings)

    assert not (tmp_path / "ran").exists()
    assert MODULE not in sys.modules


FORGED: list[object] = [
    7,
    None,
    "text",
    [],
    (1,),
    [[]],
    {"a": 1},
    (1, 2, 3, 4, 5, 6, 7, 8),
    ("0", b"", 1, b""),
]


@pytest.mark.parametrize("name", ["@calls", "@in flight", "@results"])
@pytest.mark.parametrize("forged", FORGED, ids=repr)
@pytest.mark.asyncio
async def test_operator_state_that_aflow_did_not_write_is_an_error_of_the_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, forged: object
) -> None:
    module = imported(monkeypatch)
    orders = [module.Order(1)]
    await checkpoint_with_calls(tmp_path / "state", orders)
    storage = DirectoryStorage(tmp_path / "state")
    await storage.open("orders")
    latest = await storage.latest()
    assert latest is not None
    # The sink is in the same part, and needs nothing.
    steps = {step.name: latest.states[step.name] for step in latest.manifest.steps}
    steps["call"] = replace(steps["call"], operator={name: (PLAIN.encode(forged),)})
    changed = await storage.write_part(9, "forged", 0, steps)
    whole = (SubtaskState(0, (Link(changed, 0, latest.manifest.key_groups),)),)
    await storage.complete(
        replace(
            latest.manifest,
            id=9,
            steps=tuple(replace(step, subtasks=whole) for step in latest.manifest.steps),
        )
    )
    await storage.close()

    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    with pytest.raises(af.RestoreError, match=r"step 'call'|the checkpoint cannot be read"):
        await build(orders, af.CollectSink(), stuck=False).run(checkpointing=settings)


@pytest.mark.parametrize("forged", [7, None, (), (1,), ("1", "a"), (1, 2, 3)], ids=repr)
def test_an_invalid_committable_is_an_error_that_names_the_sink(forged: object) -> None:
    snapshot = OperatorSnapshot(operator={PENDING: (PLAIN.encode(forged),)})

    with pytest.raises(af.RestoreError, match=r"sink 'out': .* is no committable of a sink"):
        read_committables("out", snapshot)
