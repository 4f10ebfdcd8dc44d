"""A storage in a bucket whose requests fail, whose process dies, and which a second job takes over at any request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from threading import Thread

import pytest
from obstore.store import MemoryStore

from aflow.errors import AflowError, CheckpointError, RestoreError, StorageTaken
from aflow.runtime.checkpoints.directory.files import SMALL
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.manifest import FileRef, Link
from aflow_connectors.s3 import ObjectStorage
from tests.connectors.s3.faulty_store import FaultyStore, Killed
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest

pytestmark = pytest.mark.usefixtures("inline_threads")

URL = "memory:///state"
OLD = {"sums": complete({0: [("a", "1"), ("b", "1")]})}
NEW = {"sums": complete({0: [("a", "2"), ("b", "1")]})}

#: The claim of a dead job is taken over at once.
HASTY = timedelta(milliseconds=1)

Work = Callable[[ObjectStorage], Awaitable[None]]


def storage_in(store: object) -> ObjectStorage:
    """Return a storage without heartbeats in a test, so requests have the same numbers in each run."""
    storage = ObjectStorage(URL, store=store, lease=HASTY)
    storage._renewal = 3600.0  # pyright: ignore[reportPrivateUsage]
    return storage


async def begin(store: MemoryStore) -> FileRef:
    """Complete checkpoint 1."""
    storage = storage_in(store)
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, OLD)
    await storage.complete(manifest(1, {"sums": [[file]]}))
    await storage.close()
    return file


async def next_checkpoints(storage: ObjectStorage, base: FileRef) -> None:
    """Complete checkpoints 2 and 3, and remove the ones before."""
    await storage.open("flow")
    assert await storage.next_id() >= 2
    newer = await storage.write_part(2, TASK, 0, {"sums": changes({0: [("a", "2")]})})
    await storage.complete(manifest(2, {"sums": [[base, newer]]}))
    await storage.discard(1)
    await storage.sweep([newer])
    one = await storage.compact(3, TASK, 0, "sums", [Link(base, 0, 4), Link(newer, 0, 4)])
    await storage.complete(manifest(3, {"sums": [[one]]}))
    await storage.discard(2)
    await storage.sweep([])


async def following(store: object) -> Restored:
    """Return the checkpoint that the next job finds; that job completes one, too."""
    storage = storage_in(store)
    await storage.open("flow")
    try:
        restored = await storage.latest()
        assert restored is not None
        number = await storage.next_id()
        assert number > restored.manifest.id
        file = await storage.write_part(number, TASK, 0, {"sums": complete({}, "next")})
        await storage.complete(manifest(number, {"sums": [[file]]}))
        await storage.sweep([])
        later = await storage.latest()
        assert later is not None
        assert later.manifest.id == number
    finally:
        await storage.close()
    return restored


def moments() -> Iterator[int]:
    return iter(range(1, 200))


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("how", ["once", "for good", "killed"])
async def test_after_a_fault_at_any_request_there_is_the_old_checkpoint_or_the_new_one(
    how: str, after: bool
) -> None:
    failures = 0
    for moment in moments():
        memory = MemoryStore()
        base = await begin(memory)
        store = FaultyStore(
            memory,
            fails_at=moment,
            after=after,
            for_good=how == "for good",
            killed=how == "killed",
        )
        storage = storage_in(store)
        raised: AflowError | Killed | None = None
        try:
            await next_checkpoints(storage, base)
        except (CheckpointError, Killed) as exc:
            raised = exc
        if how != "killed":
            await storage.close()
        else:
            end_of_process(storage)

        if not store.fell():
            assert raised is None
            assert failures > 20 if how != "once" else failures > 10
            return
        restored = await following(memory)

        assert restored.states == (OLD if restored.manifest.id == 1 else NEW)
        assert restored.passed_over == ()
        failures += raised is not None
        if isinstance(raised, CheckpointError):
            assert not isinstance(raised, StorageTaken)
            assert "no answer" in str(raised)
    raise AssertionError("it never came to an end")


def end_of_process(storage: ObjectStorage) -> None:
    """End the heartbeat, as the end of the process does."""
    heartbeat = storage._heartbeat  # pyright: ignore[reportPrivateUsage]
    if heartbeat is not None:
        heartbeat.stop()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_job_that_was_replaced_at_any_request_completes_nothing_and_removes_nothing() -> (
    None
):
    fenced = 0
    for moment in moments():
        memory = MemoryStore()
        base = await begin(memory)
        found: list[Restored] = []

        def take_over(store: object = memory, found: list[Restored] = found) -> None:
            thread = Thread(target=lambda: found.append(asyncio.run(following(store))))
            thread.start()
            thread.join()

        store = FaultyStore(memory, fails_at=moment, instead=take_over)
        storage = storage_in(store)
        raised: CheckpointError | None = None
        try:
            await next_checkpoints(storage, base)
        except CheckpointError as exc:
            raised = exc
        finally:
            await storage.close()
        if not store.fell():
            assert fenced > 10
            return
        (restored,) = found
        assert restored.states == (OLD if restored.manifest.id == 1 else NEW)
        fenced += isinstance(raised, StorageTaken)

        # Its successor completed a checkpoint, which is still the newest if the replaced job failed.
        last = await following(memory)
        if raised is not None:
            assert last.states == {"sums": complete({}, "next")}
        assert last.passed_over == ()
    raise AssertionError("it never came to an end")


@pytest.mark.asyncio
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("killed", [False, True], ids=["failing", "killed"])
async def test_a_savepoint_is_there_as_a_whole_or_not_at_all(killed: bool, after: bool) -> None:
    for moment in moments():
        memory = MemoryStore()
        base = await begin(memory)
        store = FaultyStore(memory, fails_at=moment, after=after, killed=killed)
        storage = storage_in(store)
        raised: CheckpointError | Killed | None = None
        try:
            await storage.open("flow")
            await storage.export(manifest(1, {"sums": [[base]]}), "memory:///saved/july")
        except (CheckpointError, Killed) as exc:
            raised = exc
        if killed:
            end_of_process(storage)
        else:
            await storage.close()

        reader = storage_in(memory)
        if "saved/july/checkpoint-000001.json" in FaultyStore(memory).stored():
            assert (await reader.read_savepoint("memory:///saved/july")).states == OLD
        else:
            assert raised is not None
            with pytest.raises(RestoreError, match="there is no complete checkpoint at memory"):
                await reader.read_savepoint("memory:///saved/july")
        if not store.fell():
            assert raised is None
            return
    raise AssertionError("it never came to an end")


@pytest.mark.asyncio
async def test_a_failed_read_of_the_newest_checkpoint_does_not_restore_an_older_one() -> None:
    failures = 0
    for moment in moments():
        memory = MemoryStore()
        base = await begin(memory)
        await next_checkpoint(memory, base)
        store = FaultyStore(memory, fails_at=moment)
        storage = storage_in(store)
        try:
            await storage.open("flow")
            restored = await storage.latest()
        except CheckpointError as exc:
            failures += "cannot be read: no answer" in str(exc)
        else:
            assert restored is not None
            assert restored.manifest.id == 2
            assert restored.passed_over == ()
        finally:
            await storage.close()
        if not store.fell():
            assert failures > 5
            return
    raise AssertionError("it never came to an end")


async def next_checkpoint(memory: MemoryStore, base: FileRef) -> None:
    """Complete checkpoint 2, and keep 1."""
    storage = storage_in(memory)
    await storage.open("flow")
    newer = await storage.write_part(2, TASK, 0, {"sums": changes({0: [("a", "2")]})})
    await storage.complete(manifest(2, {"sums": [[base, newer]]}))
    await storage.close()


@pytest.mark.asyncio
async def test_a_manifest_that_is_too_large_is_damage() -> None:
    memory = MemoryStore()
    await next_checkpoint(memory, await begin(memory))
    (key,) = (one for one in FaultyStore(memory).stored() if one.endswith("000002.json"))
    memory.put(key, bytes(SMALL + 1))
    storage = storage_in(memory)
    await storage.open("flow")

    restored = await storage.latest()

    assert restored is not None
    assert restored.manifest.id == 1
    assert "at most" in restored.passed_over[0]
    await storage.close()


@pytest.mark.asyncio
async def test_a_lost_answer_to_the_swap_of_the_register_is_no_failure() -> None:
    memory = MemoryStore()
    base = await begin(memory)
    store = FaultyStore(memory)
    storage = storage_in(store)
    await storage.open("flow")
    store.after, store.fails_at = True, len(store.calls) + 3  # head, manifest, register

    await storage.complete(manifest(2, {"sums": [[base]]}))

    assert store.calls[store.fails_at - 1] == "put state/register.json"
    assert await storage.kept() == [1, 2]
    await storage.close()


@pytest.mark.asyncio
async def test_a_delayed_swap_does_not_take_effect_after_the_checkpoint_was_given_up() -> None:
    memory = MemoryStore()
    base = await begin(memory)
    store = FaultyStore(memory)
    storage = storage_in(store)
    await storage.open("flow")
    store.fails_at = len(store.calls) + 3
    with pytest.raises(CheckpointError, match="no answer to put"):
        await storage.complete(manifest(2, {"sums": [[base]]}))

    await storage.discard(2)

    assert await storage.kept() == [1]
    await storage.close()
    restored = await following(memory)
    assert restored.manifest.id == 1
