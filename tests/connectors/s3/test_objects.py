"""Objects of a bucket as a source and as a sink."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import zstandard
from obstore.store import LocalStore, MemoryStore, from_url

import aflow as af
from aflow.connect import Batch, Reader, Sink, SinkError, SourceError, WriterContext
from aflow.errors import AflowError, RestoreError
from aflow.testing import check_sink, check_source
from aflow_connectors.s3 import (
    CsvObjects,
    CsvObjectSink,
    JsonLinesObjects,
    JsonLinesObjectSink,
    ParquetObjects,
    ParquetObjectSink,
)
from tests.connectors.s3.faulty_store import FaultyStore, Killed
from tests.connectors.s3.server import S3Server

#: It has no types.
pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")

RECORDS = [{"n": number} for number in range(12)]
LINES = b"".join(b'{"n": %d}\n' % number for number in range(12))


@dataclass
class Number:
    n: int


def filled() -> MemoryStore:
    """Return a store with the same records in three formats, each in several objects."""
    store = MemoryStore()
    half = LINES.index(b'{"n": 6}')
    store.put("lines/a.jsonl.gz", gzip.compress(LINES[:half]))
    store.put("lines/b.jsonl.zst", zstandard.compress(LINES[half:]))
    store.put("lines/_hidden.jsonl", b"not read")
    store.put("lines/.pending/x/c.jsonl", b"not read")
    store.put("lines/deeper/c.jsonl", b'{"n": 12}\n')
    store.put("text/a.csv", b"n\n" + b"".join(b"%d\n" % number for number in range(12)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(12))}), sink, row_group_size=5)
    store.put("columns/a.parquet", sink.getvalue().to_pybytes())
    return store


@pytest.mark.asyncio
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "text", "columns"])
async def test_objects_are_a_source(kind: str) -> None:
    store = filled()
    make: dict[str, Callable[[], Any]] = {
        "lines": lambda: JsonLinesObjects("memory:///lines/", of=Number, store=store),
        "text": lambda: CsvObjects("memory:///text/a.csv", of=Number, store=store),
        "columns": lambda: ParquetObjects("memory:///columns/*", of=Number, store=store),
    }

    await check_source(make[kind], expected=[Number(number) for number in range(12)])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("lines/", ["lines/a.jsonl.gz", "lines/b.jsonl.zst"]),
        ("lines/*.gz", ["lines/a.jsonl.gz"]),
        ("*/[!a].*", ["lines/b.jsonl.zst"]),
        (r"lines/[\a].*", ["lines/a.jsonl.gz"]),
        ("lines/[^b-].*", ["lines/b.jsonl.zst"]),
        ("**/?.jsonl", ["lines/deeper/c.jsonl"]),
        ("l*/*/c.jsonl", ["lines/deeper/c.jsonl"]),
        ("text/a.csv", ["text/a.csv"]),
    ],
)
async def test_a_pattern_matches_the_keys_that_it_matches_as_a_path(
    pattern: str, names: list[str]
) -> None:
    source = JsonLinesObjects(f"memory:///{pattern}", store=filled())

    assert [split.id for split in await source.splits()] == [f"memory:///{one}" for one in names]


@pytest.mark.asyncio
async def test_a_set_of_characters_in_a_pattern_matches_no_slash() -> None:
    source = JsonLinesObjects("memory:///lines[!x]a.jsonl.gz", store=filled())

    with pytest.raises(SourceError, match="no object matches"):
        await source.splits()


@pytest.mark.asyncio
async def test_more_objects_than_a_page_of_a_listing_are_read(s3: S3Server) -> None:
    settings: dict[str, Any] = {**s3.client, "client_options": {"allow_http": True}}
    bucket: Any = from_url(f"s3://{s3.bucket}", **settings)
    folder = s3.url("many").removeprefix(f"s3://{s3.bucket}/")
    for number in range(5):
        bucket.put(f"{folder}/{number}.jsonl", b'{"n": %d}\n' % number)
    found: list[int] = []
    flow = af.Flow("many")
    source = JsonLinesObjects(s3.url("many/"), of=Number, client=s3.client)
    flow.source(source, name="numbers").to(
        af.CallbackSink(lambda one: found.append(one.n)), name="found"
    )

    await flow.run(parallelism=2)

    assert sorted(found) == list(range(5))


async def read_all(reader: Reader[Any]) -> list[Any]:
    values: list[Any] = []
    while (chunk := await reader.read(100)) is not None:
        values += chunk.values
    return values


@pytest.mark.asyncio
async def test_an_object_that_was_replaced_is_an_error() -> None:
    store = MemoryStore()
    store.put("a.jsonl", LINES)
    source = JsonLinesObjects("memory:///a.jsonl", store=store)
    (split,) = await source.splits()
    reader = await source.reader(split, None)
    chunk = await reader.read(2)
    assert chunk is not None
    await reader.close()
    unread = await source.reader(split, None)
    store.put("a.jsonl", LINES)  # the same bytes are another version in this store

    with pytest.raises(SourceError, match=r"memory:///a.jsonl has the ETag .* it was replaced"):
        await source.reader(split, chunk.position)
    with pytest.raises(SourceError, match="the object was replaced while it was read"):
        await unread.read(2)
    await unread.close()


@pytest.mark.asyncio
async def test_missing_objects_and_buckets_are_named(s3: S3Server) -> None:
    store = MemoryStore()
    cases: list[tuple[Any, str]] = [
        (JsonLinesObjects("memory:///a.jsonl", store=store), "there is no object memory:///a.jso"),
        (JsonLinesObjects("memory:///logs/", store=store), "no object matches memory:///logs/"),
        (JsonLinesObjects("s3://no-such/x/", client=s3.client), "there is no bucket s3://no-such"),
        (
            JsonLinesObjects("memory:///a", store=store, discover_every=timedelta(seconds=1)),
            "is a single object",
        ),
    ]
    for source, message in cases:
        with pytest.raises(SourceError, match=message):
            await source.splits()


@pytest.mark.asyncio
async def test_lines_of_ten_megabytes_and_empty_objects_are_written_and_read() -> None:
    store = MemoryStore()
    records = [{"text": "x" * 10_000_000}, {"text": ""}]
    writer = await JsonLinesObjectSink[Any]("memory:///out", store=store).writer(
        WriterContext("out", checkpoints=True)
    )
    writing = writer.write(Batch(records))
    if writing is not None:
        await writing
    await writer.commit(await writer.prepare(1))
    await writer.close()
    store.put("out/empty.jsonl", b"")
    source = JsonLinesObjects("memory:///out/", store=store)

    values = [
        value
        for split in await source.splits()
        for value in await read_all(await source.reader(split, None))
    ]

    assert values == records


@pytest.mark.asyncio
async def test_objects_that_appear_later_are_read() -> None:
    store = MemoryStore()
    found: list[int] = []
    found_one = asyncio.Event()

    def show(one: Number) -> None:
        found.append(one.n)
        found_one.set()

    flow = af.Flow("growing")
    source = JsonLinesObjects(
        "memory:///in/", of=Number, store=store, discover_every=timedelta(milliseconds=10)
    )
    flow.source(source, name="numbers").to(af.CallbackSink(show), name="found")
    async with flow.start() as job:
        for number in (1, 2):
            store.put(f"in/{number}.jsonl", b'{"n": %d}\n' % number)
            async with asyncio.timeout(300):
                await found_one.wait()
            found_one.clear()
        await job.cancel()

    assert found == [1, 2]


# ---------------------------------------------------------------------------------------------- sinks


def visible(store: Any, folder: str = "out/") -> list[dict[str, Any]]:
    """Return the records that a source reads, in the order of subtasks and checkpoints."""
    keys = sorted(one["path"] for page in store.list(folder) for one in page)
    shown = [key for key in keys if "/" not in key.removeprefix(folder)]
    records: list[dict[str, Any]] = []
    for key in shown:
        data = bytes(store.get(key).bytes())
        if key.endswith(".gz"):
            data = gzip.decompress(data)
        if key.endswith(".parquet"):
            records += pq.read_table(pa.BufferReader(data)).to_pylist()
        elif ".csv" in key:
            records += [{"n": int(line)} for line in data.decode().split()[1:]]
        else:
            records += [json.loads(line) for line in data.splitlines()]
    return records


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["lines", "lines.gz", "text", "columns"])
async def test_objects_are_a_transactional_sink(kind: str) -> None:
    stores: list[tuple[Sink[Any], MemoryStore]] = []

    def make() -> Sink[Any]:
        store = MemoryStore()
        sink: Sink[Any]
        if kind == "lines":
            sink = JsonLinesObjectSink("memory:///out", store=store)
        elif kind == "lines.gz":
            sink = JsonLinesObjectSink("memory:///out/late.jsonl.gz", store=store)
        elif kind == "text":
            sink = CsvObjectSink("memory:///out", store=store)
        else:
            sink = ParquetObjectSink("memory:///out", store=store)
        stores.append((sink, store))
        return sink

    def shown(sink: Sink[Any]) -> list[dict[str, Any]]:
        return visible(next(store for one, store in stores if one is sink))

    await check_sink(make, shown, RECORDS)


async def two_checkpoints(store: object, journal: list[Any]) -> None:
    """Continue from the last checkpoint in ``journal``, to the end: each record once."""
    last: tuple[int, list[Any]] = journal[-1] if journal else (0, [])
    position, committables = last
    sink = JsonLinesObjectSink[Any]("memory:///out", store=store)
    await sink.recover("out", committables)
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    try:
        while position < len(RECORDS):
            writing = writer.write(Batch(RECORDS[position : position + 4]))
            if writing is not None:
                await writing
            position += 4
            committable = await writer.prepare(len(journal) + 1)
            journal.append((position, [committable]))
            await writer.commit(committable)
        await writer.flush()
    finally:
        await writer.close()


@pytest.mark.usefixtures("inline_threads")
@pytest.mark.asyncio
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("killed", [False, True], ids=["failing", "killed"])
async def test_each_record_is_visible_once_after_a_fault_at_any_request(
    killed: bool, after: bool
) -> None:
    for moment in range(1, 100):
        memory, journal = MemoryStore(), list[Any]()
        store = FaultyStore(memory, fails_at=moment, after=after, killed=killed)
        with suppress(AflowError, Killed):
            await two_checkpoints(store, journal)
        position = journal[-1][0] if journal else 0
        assert visible(memory) in (RECORDS[:position], RECORDS[: position - 4])

        await two_checkpoints(memory, journal)

        assert visible(memory) == RECORDS
        # The checkpoint may exist although this job does not continue from it, so its output stays.
        orphans = [key for key in FaultyStore(memory).stored() if ".pending" in key]
        assert not orphans or not position
        if not store.fell():
            return
    raise AssertionError("it never came to an end")


@pytest.mark.asyncio
async def test_output_after_the_restored_checkpoint_is_withdrawn() -> None:
    store, journal = MemoryStore(), list[Any]()
    await two_checkpoints(store, journal)

    sink = JsonLinesObjectSink[Any]("memory:///out", store=store)
    await sink.recover("out", journal[0][1])

    assert visible(store) == RECORDS[:4]


async def an_empty_checkpoint(store: object, journal: list[Any]) -> None:
    """Continue from the last checkpoint in ``journal``, and add one without records."""
    position, committables = journal[-1]
    sink = JsonLinesObjectSink[Any]("memory:///out", store=store)
    await sink.recover("out", committables)
    writer = await sink.writer(WriterContext("out", checkpoints=True))
    journal.append((position, [await writer.prepare(len(journal) + 1)]))
    await writer.close()


@pytest.mark.asyncio
async def test_a_checkpoint_without_records_whose_earlier_output_was_removed_is_refused() -> None:
    store, journal = MemoryStore(), list[Any]()
    await two_checkpoints(store, journal)
    await an_empty_checkpoint(store, journal)
    await JsonLinesObjectSink[Any]("memory:///out", store=store).recover("out", journal[0][1])

    with pytest.raises(RestoreError, match="a restore of checkpoint 1 has removed the output"):
        await an_empty_checkpoint(store, journal)
    branch = journal[:1]
    await two_checkpoints(store, branch)

    assert visible(store) == RECORDS
    # A checkpoint of the newer run is not affected, and neither is an older one.
    await an_empty_checkpoint(store, branch)
    await an_empty_checkpoint(store, branch)
    await JsonLinesObjectSink[Any]("memory:///out", store=store).recover("out", journal[0][1])
    with pytest.raises(RestoreError, match="a restore of checkpoint 1 has removed the output"):
        await an_empty_checkpoint(store, branch)


@pytest.mark.asyncio
async def test_restores_of_one_checkpoint_add_one_entry_to_the_log() -> None:
    store, journal = MemoryStore(), list[Any]()
    await two_checkpoints(store, journal)
    owner = journal[0][1][0]["owner"]
    key = f"out/.restores/{owner}.json"

    for number, run in ((1, 9), (1, 9), (0, 9), (0, 9), (1, 13)):
        await JsonLinesObjectSink[Any]("memory:///out", store=store).recover(
            "out", [{**journal[number][1][0], "run": run, "object": ""}]
        )

    assert json.loads(bytes(store.get(key).bytes())) == [[13, 1], [14, 2]]
    store.put(key, b"{}")
    with pytest.raises(SinkError, match="is damaged: it is no list of restores"):
        await JsonLinesObjectSink[Any]("memory:///out", store=store).recover("out", journal[0][1])


@pytest.mark.asyncio
async def test_a_replaced_job_does_not_change_the_output_that_its_successor_prepares() -> None:
    store, journal = MemoryStore(), list[Any]()
    await two_checkpoints(store, journal)
    zombie = JsonLinesObjectSink[Any]("memory:///out", store=store)
    await zombie.recover("out", journal[-1][1])
    old = await zombie.writer(WriterContext("out", checkpoints=True))
    successor = JsonLinesObjectSink[Any]("memory:///out", store=store)
    await successor.recover("out", journal[-1][1])
    new = await successor.writer(WriterContext("out", checkpoints=True))
    for writer, record in ((new, {"n": 12}), (old, {"n": 99})):
        writing = writer.write(Batch([record]))
        if writing is not None:
            await writing

    prepared = await new.prepare(4)
    await old.prepare(4)
    await new.commit(prepared)

    assert visible(store) == [*RECORDS, {"n": 12}]
    await old.close()
    await new.close()


@pytest.mark.asyncio
async def test_output_that_was_removed_is_an_error() -> None:
    store, journal = MemoryStore(), list[Any]()
    await two_checkpoints(store, journal)
    for key in FaultyStore(store).stored():
        store.delete(key)

    with pytest.raises(RestoreError, match="is neither pending nor there as it was written"):
        await JsonLinesObjectSink("memory:///out", store=store).recover("out", journal[-1][1])
    with pytest.raises(RestoreError, match="restore with the former URL"):
        await JsonLinesObjectSink("memory:///new", store=store).recover("out", journal[-1][1])
    with pytest.raises(RestoreError, match="another kind of sink"):
        await JsonLinesObjectSink("memory:///out", store=store).recover("out", [{"rows": 1}])


@pytest.mark.asyncio
async def test_output_of_an_earlier_run_is_kept_unless_it_may_be_overwritten() -> None:
    store = MemoryStore()
    await two_checkpoints(store, [])
    store.put("out/part-of-another.jsonl", b'{"n": 100}\n')

    with pytest.raises(SinkError, match="already exists: remove it, write elsewhere, or pass"):
        await two_checkpoints(store, [])
    sink = JsonLinesObjectSink[Any]("memory:///out", store=store, overwrite=True)
    await sink.recover("out", [])

    assert visible(store) == [{"n": 100}]
    assert not [key for key in FaultyStore(store).stored() if ".pending" in key]


@pytest.mark.asyncio
async def test_a_second_run_without_checkpoints_does_not_replace_the_output_of_the_first() -> None:
    store = MemoryStore()
    sink = JsonLinesObjectSink[Any]("memory:///out", store=store)

    async def run(records: list[dict[str, int]]) -> None:
        flow = af.Flow("copy")
        flow.source(records, name="numbers").to(sink, name="out")
        await flow.run(parallelism=2)

    await run(RECORDS)
    with pytest.raises(SinkError, match="already exists: remove it, write elsewhere, or pass"):
        await run([{"n": 100}])

    assert sorted(one["n"] for one in visible(store)) == list(range(12))


@pytest.mark.asyncio
async def test_a_restart_without_checkpoints_replaces_the_objects_of_the_failed_attempt() -> None:
    store = MemoryStore()
    sink = JsonLinesObjectSink[Any]("memory:///out", store=store)
    contexts = [WriterContext("out", subtask=number, parallelism=2) for number in (0, 1)]
    for finished in ([0], [1], [0, 1]):
        writers = [await sink.writer(context) for context in contexts]
        for number, writer in enumerate(writers):
            writing = writer.write(Batch([{"n": number}]))
            if writing is not None:
                await writing
        for number in finished:
            await writers[number].flush()
        for writer in writers:
            await writer.close()

    assert visible(store) == [{"n": 0}, {"n": 1}]


@pytest.mark.asyncio
async def test_a_missing_bucket_fails_before_a_record_is_written(s3: S3Server) -> None:
    sink = JsonLinesObjectSink[Any]("s3://no-such-bucket/out", client=s3.client)

    with pytest.raises(SinkError, match="there is no bucket s3://no-such-bucket") as caught:
        await sink.recover("out", [])

    assert s3.secret not in str(caught.value)


@pytest.mark.asyncio
async def test_an_unreachable_store_is_a_sink_error() -> None:
    store = FaultyStore(fails_at=1, for_good=True)

    with pytest.raises(SinkError, match="cannot write to memory:///out: no answer to list"):
        await JsonLinesObjectSink[Any]("memory:///out", store=store).recover("out", [])


@pytest.mark.asyncio
async def test_objects_in_a_local_folder_are_written_and_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    flow = af.Flow("copy")
    flow.source(RECORDS, name="numbers").to(
        ParquetObjectSink("file:///out", store=store), name="out"
    )
    await flow.run(checkpointing=af.Checkpointing(storage=tmp_path / "state"))
    source = ParquetObjects("file:///out/", store=store)

    values = [
        value
        for split in await source.splits()
        for value in await read_all(await source.reader(split, None))
    ]

    assert values == RECORDS
