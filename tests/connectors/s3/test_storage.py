"""``ObjectStorage``: its contract, its claim, its messages, and jobs that use it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

import aflow as af
from aflow.checkpoints import OperatorSnapshot
from aflow.errors import CheckpointError, FlowDefinitionError, RestoreError, StorageTaken
from aflow.runtime.checkpoints.bucket.register import read_register
from aflow.testing import check_storage
from aflow_connectors.s3 import ObjectStorage
from tests.connectors.s3.faulty_store import FaultyStore
from tests.connectors.s3.server import S3Server
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest

SHORT = timedelta(milliseconds=60)
LONG = timedelta(hours=1)


@pytest.mark.asyncio
async def test_a_bucket_in_memory_is_a_storage() -> None:
    store = MemoryStore()

    await check_storage(lambda place: ObjectStorage(f"memory:///{place}", store=store, lease=SHORT))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_bucket_of_a_server_is_a_storage(s3: S3Server) -> None:
    await check_storage(
        lambda place: ObjectStorage(
            s3.url(place.replace(" ", "-")),
            client=s3.client,
            lease=timedelta(seconds=1),
        ),
        patience=timedelta(seconds=60),
    )


@pytest.mark.asyncio
async def test_the_claim_of_a_silent_job_is_taken_over_and_the_job_is_fenced() -> None:
    store = MemoryStore()
    first = silent(store)
    await first.open("flow")
    file = await first.write_part(1, TASK, 0, {"sums": complete({}, "1")})

    second = ObjectStorage("memory:///state", store=store, lease=SHORT)
    await second.open("flow")

    with pytest.raises(StorageTaken, match=r"another job .* has taken over memory:///state"):
        await first.complete(manifest(1, {"sums": [[file]]}))
    assert await second.kept() == []
    await first.close()
    # The end of the first job does not release the claim of the second, which is alive.
    with pytest.raises(CheckpointError, match="in use by another live job"):
        await ObjectStorage("memory:///state", store=store, lease=LONG).open("flow")
    await second.close()


@pytest.mark.asyncio
async def test_a_claimant_with_a_shorter_lease_waits_for_that_of_the_holder() -> None:
    store = MemoryStore()
    first = ObjectStorage("memory:///state", store=store, lease=LONG)
    await first.open("flow")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ObjectStorage("memory:///state", store=store, lease=SHORT).open("flow")

    file = await first.write_part(1, TASK, 0, {"sums": complete({}, "1")})
    await first.complete(manifest(1, {"sums": [[file]]}))
    await first.close()


def silent(store: MemoryStore) -> ObjectStorage:
    """Return a storage that does not renew its claim."""
    storage = ObjectStorage("memory:///state", store=store, lease=SHORT)
    storage._renewal = LONG.total_seconds()  # pyright: ignore[reportPrivateUsage]
    return storage


@pytest.mark.asyncio
async def test_a_closed_storage_is_opened_without_waiting_for_the_lease() -> None:
    store = MemoryStore()
    for _ in range(2):
        storage = ObjectStorage("memory:///state", store=store, lease=LONG)
        async with asyncio.timeout(300):
            await storage.open("flow")
        await storage.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", range(4))
async def test_a_close_that_is_cancelled_releases_the_claim_first(steps: int) -> None:
    storage = ObjectStorage("memory:///state", store=MemoryStore(), lease=LONG)
    await storage.open("flow")

    closing = asyncio.create_task(storage.close())
    for _ in range(1 + steps):
        await asyncio.sleep(0)
    for _ in range(2):
        closing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([closing])

    assert holder_of(storage) is None
    assert not any(one.name == "aflow-claim" for one in threading.enumerate())


@pytest.mark.asyncio
async def test_a_claim_whose_open_is_cancelled_meanwhile_is_released() -> None:
    class SlowStore(FaultyStore):
        def put(self, path: str, data: object, **options: Any) -> Any:
            if path.endswith("register.json"):
                loop.call_soon_threadsafe(claims.set)
                may_end.wait(30)
            return super().put(path, data, **options)

    loop, claims, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    storage = ObjectStorage("memory:///state", store=SlowStore(), lease=LONG)
    opening = asyncio.create_task(storage.open("flow"))
    await claims.wait()

    opening.cancel()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait([opening])

    assert opening.cancelled()
    assert holder_of(storage) is None


def holder_of(storage: ObjectStorage) -> object:
    found = read_register(storage._bucket)  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    return found[0].holder


@pytest.mark.asyncio
async def test_a_store_without_conditional_writes_is_refused(tmp_path: Path) -> None:
    class Careless(FaultyStore):
        def put(self, path: str, data: object, **options: Any) -> Any:
            return super().put(path, data)

    with pytest.raises(CheckpointError, match="ignores the conditions of conditional writes"):
        await ObjectStorage("memory:///state", store=Careless()).open("flow")
    with pytest.raises(CheckpointError, match="does not support this request"):
        await ObjectStorage("file:///state", store=LocalStore(tmp_path)).open("flow")


@pytest.mark.asyncio
async def test_a_sweep_keeps_a_part_that_was_being_written_when_it_began() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    class SlowStore(FaultyStore):
        def put(self, path: str, data: object, **options: Any) -> Any:
            if "parts/" in path:
                begun.set()
                may_end.wait()
            return super().put(path, data, **options)

        def list(self, prefix: str | None) -> Any:
            if begun.is_set():  # the sweep: the part is complete before it looks
                may_end.set()
                ended.wait()
            return super().list(prefix)

    store = SlowStore()
    storage = ObjectStorage("memory:///state", store=store, lease=LONG)
    await storage.open("flow")
    one = {"sums": complete({}, "1")}
    writing = asyncio.create_task(storage.write_part(1, TASK, 0, one))
    writing.add_done_callback(lambda _: ended.set())
    await asyncio.to_thread(begun.wait)
    # The checkpoint is aborted, but later ones may need the part.
    await storage.discard(1)

    await storage.sweep([])

    part = await writing
    await storage.complete(manifest(2, {"sums": [[part]]}))
    await storage.close()


@pytest.mark.asyncio
async def test_an_object_that_is_missing_or_damaged_is_named() -> None:
    store = MemoryStore()
    storage = ObjectStorage("memory:///state", store=store, lease=LONG)
    await storage.open("flow")
    files = [
        await storage.write_part(number, TASK, 0, {"sums": complete({}, str(number))})
        for number in (1, 2, 3)
    ]
    for number, file in enumerate(files, start=1):
        await storage.complete(manifest(number, {"sums": [[file]]}))
    store.put(f"state/{files[2].path}", b"x" * files[2].size)
    store.delete(f"state/{files[1].path}")

    restored = await storage.latest()

    assert restored is not None
    assert restored.manifest.id == 1
    damaged, missing = restored.passed_over
    assert f"memory:///state/{files[2].path} is corrupt" in damaged
    assert f"memory:///state/{files[1].path} is missing" in missing
    await storage.close()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_part_above_the_size_of_one_request_is_written_in_pieces(s3: S3Server) -> None:
    large = complete({0: [(f"{n}", "x" * 1_000_000) for n in range(18)]})
    storage = ObjectStorage(s3.url("large"), client=s3.client)
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, {"sums": large})
    await storage.complete(manifest(1, {"sums": [[file]]}))
    restored = await storage.latest()
    await storage.close()

    assert file.size > 17_000_000
    assert restored is not None
    assert restored.states == {"sums": large}


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["bucket", "server"])
async def test_an_error_of_the_server_names_the_reason_and_no_secret(
    s3: S3Server, wrong: str
) -> None:
    client: dict[str, object] = {**s3.client, "retry_config": {"max_retries": 0}}
    url = s3.url("state")
    if wrong == "bucket":
        url, reason = "s3://nothing-here/state", "there is no bucket s3://nothing-here"
    else:
        client["endpoint"], reason = "http://127.0.0.1:1", "cannot write s3://"

    with pytest.raises(CheckpointError, match=reason) as caught:
        await ObjectStorage(url, client=client).open("flow")

    assert s3.secret not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.asyncio
async def test_a_denied_request_says_so_without_the_keys() -> None:
    class PermissionDeniedError(Exception):
        """As obstore raises it."""

    class Denying(FaultyStore):
        def put(self, path: str, data: object, **options: Any) -> Any:
            raise PermissionDeniedError(
                "Error performing PUT …: <Error><Code>InvalidAccessKeyId</Code><Message>The key AKIAEXAMPLE is "
                "unknown</Message></Error> Debug source: sesame"
            )

    client = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "sesame"}
    with pytest.raises(CheckpointError) as caught:
        await ObjectStorage("s3://state", client=client, store=Denying()).open("flow")

    assert "access is denied, check the credentials: InvalidAccessKeyId: The key *** is" in str(
        caught.value
    )
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("bucket/prefix", {}, "must be like 's3://bucket/prefix'"),
        ("s3://me:sesame@bucket/x", {}, "must have no credentials"),
        ("s3://bucket", {"lease": timedelta(0)}, "lease= must be a positive"),
    ],
    ids=["no URL", "credentials", "lease"],
)
def test_invalid_arguments_are_refused(url: str, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message) as caught:
        ObjectStorage(url, **options)

    assert "sesame" not in str(caught.value)


def test_the_url_of_a_bucket_in_place_of_a_folder_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"for a bucket pass ObjectStorage\(url\)"):
        af.Checkpointing(storage="s3://bucket/state")


@pytest.mark.asyncio
async def test_a_job_continues_from_a_savepoint_in_the_bucket() -> None:
    store = MemoryStore()
    words = af.PushSource[str]()

    def flow_of(seen: list[int]) -> af.Flow:
        flow = af.Flow("words")
        counts = flow.source(words, name="words").key_by(lambda word: word)
        counts.fold(int, lambda count, _: count + 1, name="count").map(
            lambda count: seen.append(count), name="see"
        ).to(af.CallbackSink(lambda _: None), name="out")
        return flow

    seen: list[Any] = []
    first = ObjectStorage("memory:///first", store=store)
    async with flow_of(seen).start(checkpointing=af.Checkpointing(storage=first)) as job:
        await words.send_many(["a", "a"])
        await job.stop(savepoint="memory:///saved/july")
    words = af.PushSource[str]()
    second = ObjectStorage("memory:///second", store=store)
    async with flow_of(seen).start(
        checkpointing=af.Checkpointing(storage=second), restore="memory:///saved/july"
    ) as job:
        await words.send("a")
        await job.stop()

    assert [one.value if hasattr(one, "value") else one for one in seen][-1] == 3


@pytest.mark.asyncio
async def test_a_job_whose_storage_was_taken_over_fails() -> None:
    store = MemoryStore()
    words = af.PushSource[str]()
    flow = af.Flow("words")
    flow.source(words, name="words").to(af.CallbackSink(lambda _: None), name="out")
    mine = silent(store)
    other = ObjectStorage("memory:///state", store=store, lease=SHORT)

    with pytest.raises(StorageTaken):  # noqa: PT012
        async with flow.start(checkpointing=af.Checkpointing(storage=mine, every=None)) as job:
            await other.open("words")
            with pytest.raises(af.CheckpointError, match="taken over"):
                await job.checkpoint()
            await job.wait()
    await other.close()


@pytest.mark.asyncio
async def test_a_job_whose_storage_was_taken_over_fails_without_a_checkpoint() -> None:
    store = MemoryStore()
    flow = af.Flow("words")
    flow.source(af.PushSource[str](), name="words").to(af.CallbackSink(lambda _: None), name="out")
    mine = ObjectStorage("memory:///state", store=store, lease=LONG)
    mine._renewal = 0.1  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(StorageTaken, match="another job"):  # noqa: PT012
        async with flow.start(checkpointing=af.Checkpointing(storage=mine, every=None)) as job:
            claim_for_another(store)
            async with asyncio.timeout(300):
                await job.wait()


def claim_for_another(store: MemoryStore) -> None:
    """Replace the holder in the register, as the claim of another job does."""
    register = json.loads(bytes(store.get("state/register.json").bytes()))
    register["epoch"] += 1
    register["holder"]["token"] = "another"
    store.put("state/register.json", json.dumps(register).encode())


@pytest.mark.asyncio
async def test_a_savepoint_in_a_folder_is_read_too(tmp_path: Path) -> None:
    storage = ObjectStorage("memory:///state", store=MemoryStore())
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, {"sums": complete({}, "1")})
    await storage.export(manifest(1, {"sums": [[file]]}), str(tmp_path / "saved"))
    with pytest.raises(CheckpointError, match="written to the bucket of the checkpoints"):
        await storage.export(manifest(1, {"sums": [[file]]}), "s3://other/saved")
    await storage.close()

    restored = await storage.read_savepoint(str(tmp_path / "saved"))

    assert restored.states == {"sums": complete({}, "1")}


@pytest.mark.asyncio
async def test_the_newest_checkpoint_of_a_running_job_is_read_without_a_claim() -> None:
    store = MemoryStore()
    storage = ObjectStorage("memory:///state", store=store)
    await storage.open("flow")
    with pytest.raises(RestoreError, match="there is no complete checkpoint at"):
        await storage.read_savepoint("memory:///state")
    file = await storage.write_part(1, TASK, 0, {"sums": complete({}, "1")})
    await storage.complete(manifest(1, {"sums": [[file]]}))

    restored = await storage.read_savepoint("memory:///state")

    assert restored.manifest.id == 1
    await storage.close()
    register = json.loads(bytes(store.get("state/register.json").bytes()))
    assert register["holder"] is None


#: The actions of two jobs on one storage: its number (0 or 1) and what it does.
ACTIONS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["open", "checkpoint", "discard", "sweep"])),
    max_size=25,
)


@pytest.mark.slow
@given(actions=ACTIONS)
@settings(deadline=None, max_examples=60)
def test_two_jobs_on_one_storage_equal_the_model_of_one_register(
    actions: list[tuple[int, str]],
) -> None:
    """The model: the claim is of the last job that opened; checkpoints of others have no effect."""

    async def run() -> None:
        store = MemoryStore()
        jobs: list[ObjectStorage | None] = [None, None]
        opened: list[ObjectStorage] = []
        owner: int | None = None
        checkpoints: dict[int, OperatorSnapshot] = {}
        chains: dict[int, list[Any]] = {0: [], 1: []}
        for job, action in actions:
            storage = jobs[job]
            if action == "open":
                storage = jobs[job] = ObjectStorage(
                    "memory:///x", store=store, lease=timedelta(milliseconds=1)
                )
                storage._renewal = 3600.0  # pyright: ignore[reportPrivateUsage]
                opened.append(storage)
                await storage.open("flow")
                owner = job
                restored = await storage.latest()
                assert (None if restored is None else restored.manifest.id) == max(
                    checkpoints, default=None
                )
                if restored is not None:
                    assert restored.states["sums"] == checkpoints[restored.manifest.id]
                steps = () if restored is None else restored.manifest.steps
                links = [link for step in steps for one in step.subtasks for link in one.chain]
                chains[job] = [link.file for link in links]
            elif storage is None:
                continue
            elif action == "checkpoint":
                number = await storage.next_id()
                row = {0: [("a", str(number))]}
                state = changes(row) if chains[job] else complete(row)
                part = await storage.write_part(number, TASK, 0, {"sums": state})
                try:
                    await storage.complete(manifest(number, {"sums": [[*chains[job], part]]}))
                except StorageTaken:
                    assert owner != job
                except CheckpointError:  # its successor has removed a part
                    assert owner != job
                else:
                    assert owner == job
                    chains[job].append(part)
                    checkpoints[number] = complete(row)
            elif action == "discard":
                kept = await storage.kept()
                if len(kept) < 2:
                    continue
                try:
                    await storage.discard(kept[0])
                except StorageTaken:
                    assert owner != job
                else:
                    assert owner == job
                    del checkpoints[kept[0]]
            else:
                await storage.sweep([])
        for storage in opened:
            await storage.close()

    asyncio.run(run())
