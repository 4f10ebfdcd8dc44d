"""A program that makes calls to a service in another process, until it is killed.

Each call opens a connection, writes its number, and reads the answer. The program prints a line for each answer and
each checkpoint, and the list of its results at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path

import aflow as af


def main(port: int, folder: Path, records: int) -> None:
    async def paid(number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"{number}\n".encode())
            answer = int(await reader.readline())
            print(json.dumps("answer"), flush=True)
            return answer
        finally:
            writer.close()

    def tell(event: af.JobEvent) -> None:
        print(json.dumps(type(event).__name__), flush=True)

    async def run() -> None:
        results = af.CollectSink[int]()
        flow = af.Flow("paid")
        calls = flow.source(range(records), name="numbers").map_async(
            paid, capacity=records, name="paid"
        )
        calls.to(results, name="results")
        settings = af.Checkpointing(storage=folder, every=timedelta(milliseconds=20))
        await flow.run(checkpointing=settings, on_event=tell)
        print(json.dumps(results.values), flush=True)

    asyncio.run(run())


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
