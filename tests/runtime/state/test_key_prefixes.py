"""Listings of state by a prefix of another type than that of the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import CollectSink, Flow, Job, PushSource
from aflow.backends import InMemory, OnDisk
from aflow.errors import FlowDefinitionError, WrongKey
from aflow.testing.virtual_time import settle, virtual_time

pytestmark = pytest.mark.usefixtures("inline_threads")


def counting(source: PushSource[Any], of: Any = None) -> Flow:
    """Count records, which are their own keys."""
    flow = Flow("keys")
    keyed = flow.source(source, name="in").key_by(lambda key: key, name="key", of=of)
    keyed.fold(int, lambda count, _: count + 1, name="count").to(CollectSink[int](), name="out")
    return flow


async def listed(job: Job, **arguments: Any) -> list[Any]:
    return [key async for key, _ in job.state("count").items(**arguments)]


@virtual_time
async def test_a_prefix_that_no_key_of_the_declared_type_begins_with_is_refused_without_keys() -> (
    None
):
    async with counting(PushSource[Any](), tuple[str, int]).start() as job:
        with pytest.raises(
            WrongKey,
            match=r"no key of step 'count' begins with 'nyc': its keys are of type tuple\[str, int\]; pass a tuple of "
            r"their first parts, as in prefix=\('a',\)",
        ) as caught:
            await listed(job, prefix="nyc")
        with pytest.raises(WrongKey, match=r"begins with \(7,\)"):
            await job.state("count").page(prefix=(7,))

        assert await listed(job, prefix=("nyc",)) == []

    assert caught.value.key == "nyc"
    assert caught.value.key_classes == {tuple}


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize(
    ("key", "prefix", "message"),
    [
        (("nyc", 7), "nyc", r"such as \('nyc', 7\), are no text; pass a tuple"),
        ("nyc", ("nyc",), "such as 'nyc', are no tuples; pass text, as in prefix='a'"),
        (7, "7", "such as 7, are no text; such keys have no prefix"),
    ],
    ids=["tuple", "text", "number"],
)
@virtual_time
async def test_a_prefix_of_another_type_than_the_keys_that_are_there_is_refused(
    tmp_path: Path, disk: bool, key: Any, prefix: Any, message: str
) -> None:
    source = PushSource[Any]()
    state = OnDisk(folder=tmp_path, resident=1) if disk else InMemory()
    async with counting(source).start(options=af.Options(state=state)) as job:
        assert await listed(job, prefix=prefix) == []
        await source.send(key)
        await settle()
        with pytest.raises(WrongKey, match=message):
            await listed(job, prefix=prefix)


@virtual_time
async def test_a_prefix_of_the_type_of_some_keys_selects_among_them() -> None:
    source = PushSource[Any]()
    async with counting(source).start() as job:
        await source.send_many([("nyc", 7), "nyc 1", "nyc 2", "paris", 7])
        await settle()

        assert await listed(job, prefix="nyc") == ["nyc 1", "nyc 2"]
        assert await listed(job, prefix="rome") == []
        assert await listed(job, prefix="nyc", after="nyc 1") == ["nyc 2"]
        assert await listed(job, prefix="nyc", after="nyc 2") == []
        assert await listed(job, prefix=("rome",)) == []
        assert await listed(job, prefix="") == ["nyc 1", "nyc 2", "paris"]


@virtual_time
async def test_an_empty_prefix_is_no_error() -> None:
    source = PushSource[Any]()
    async with counting(source, int).start() as job:
        await source.send(7)
        await settle()

        assert await listed(job, prefix="") == []


@virtual_time
async def test_a_checkpoint_is_not_listed_by_a_prefix_of_another_type(tmp_path: Path) -> None:
    settings = af.Checkpointing(storage=tmp_path, every=None)
    for of, message in ((tuple[str, int], "are of type"), (None, "such as")):
        source = PushSource[Any]()
        async with counting(source, of).start(checkpointing=settings, restore="fresh") as job:
            await source.send(("nyc", 7))
            await settle()
            await job.checkpoint()
            with pytest.raises(WrongKey, match=message):
                await listed(job, prefix="nyc", as_of="checkpoint")
            assert await listed(job, prefix=("nyc",), as_of="checkpoint") == [("nyc", 7)]


@virtual_time
async def test_all_wrong_keys_are_the_same_error_which_is_one_of_the_definition() -> None:
    async with counting(PushSource[Any](), int).start() as job:
        reader = job.state("count")
        for read in (reader.get("a"), reader.get([1]), reader.page(after=[1])):  # type: ignore[arg-type]
            with pytest.raises(WrongKey):
                await read

    assert issubclass(WrongKey, FlowDefinitionError)


@virtual_time
async def test_a_step_without_state_names_those_that_have_some() -> None:
    async with counting(PushSource[Any]()).start() as job:
        with pytest.raises(
            FlowDefinitionError,
            match=r"step 'key' \(key_by\) has no state that can be read; state is in 'count' \(fold\)$",
        ):
            await job.state("key").get("a")
