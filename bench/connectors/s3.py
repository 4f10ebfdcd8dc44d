"""Object storage: JSON lines in objects, read and written by aflow and by a loop over obstore.

The server is moto, which is a test double in Python: it takes most of the time of both programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson
from obstore.store import from_url

import aflow as af
from aflow_connectors.s3 import JsonLinesObjects, JsonLinesObjectSink
from bench.connectors.comparison import compare_directions, temporary_folder
from bench.harness import Measurement
from tests.connectors.s3.server import S3Server, running

#: Records in an object, also of the loop.
OBJECT: Final = 50_000


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sink."""
    rows: list[dict[str, object]] = [
        {"n": n, "name": f"a record of some bytes {n}", "share": n / 7} for n in range(records)
    ]
    with running() as endpoint, temporary_folder() as folder:
        server = S3Server(endpoint)
        settings: dict[str, Any] = {**server.client, "client_options": {"allow_http": True}}
        bucket: Any = from_url(f"s3://{server.bucket}", **settings)
        for start in range(0, records, OBJECT):
            data = b"\n".join(map(orjson.dumps, rows[start : start + OBJECT]))
            bucket.put(f"source/{start:09d}.jsonl", data + b"\n")
        yield _source(server, bucket, records, rounds)
        yield _sink(server, bucket, folder, rows, rounds)


def _source(server: S3Server, bucket: Any, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, out = af.Flow("read"), af.CollectSink[int]()
        source = JsonLinesObjects(f"s3://{server.bucket}/source/", client=server.client)
        flow.source(source, name="in").map(lambda row: row["n"]).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        found: list[int] = []
        async for page in bucket.list("source"):
            for one in page:
                data = bytes(await (await bucket.get_async(one["path"])).bytes_async())
                found += [orjson.loads(line)["n"] for line in data.splitlines()]
        return sum(found)

    return compare_directions("s3_source", records, rounds, in_aflow, by_hand)


def _sink(
    server: S3Server, bucket: Any, folder: Path, rows: list[dict[str, object]], rounds: int
) -> Measurement:
    numbers = count()

    def total(prefix: str) -> int:
        return sum(
            orjson.loads(line)["n"]
            for page in bucket.list(prefix)
            for one in page
            for line in bytes(bucket.get(one["path"]).bytes()).splitlines()
        )

    async def in_aflow() -> int:
        number = next(numbers)
        flow = af.Flow("write")
        sink = JsonLinesObjectSink[dict[str, object]](
            f"s3://{server.bucket}/out-{number}", client=server.client
        )
        flow.source(rows, name="in").to(sink, name="out")
        every = timedelta(milliseconds=500)
        await flow.run(checkpointing=af.Checkpointing(storage=folder / str(number), every=every))
        return total(f"out-{number}")

    async def by_hand() -> int:
        prefix = f"by-hand-{next(numbers)}"
        for start in range(0, len(rows), OBJECT):
            data = b"\n".join(map(orjson.dumps, rows[start : start + OBJECT]))
            await bucket.put_async(f"{prefix}/{start:09d}.jsonl", data + b"\n")
        return total(prefix)

    return compare_directions("s3_sink", len(rows), rounds, in_aflow, by_hand)
