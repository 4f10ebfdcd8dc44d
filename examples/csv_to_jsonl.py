"""Convert CSV to JSON lines, with typed rows and a dead letter for each bad row.

Prints:

    {"carrier":"UA","origin":"EWR","delay":75.0}
    {"carrier":"B6","origin":"JFK","delay":101.0}
    bad: flights.csv, line 4
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aflow as af
from aflow_connectors.files import CsvSource, JsonLinesSink

TABLE = """\
carrier,origin,delay
UA,EWR,75
DL,LGA,NA
AA,JFK,soon
B6,JFK,101
"""


@dataclass(frozen=True)
class Flight:
    carrier: str
    origin: str
    delay: float | None


BAD = af.Tag[af.connect.BadRecord]("bad rows")


def build(table: Path, delayed: Path, bad: af.Sink[af.connect.BadRecord]) -> af.Flow:
    flow = af.Flow("delayed flights")
    source = CsvSource(table, of=Flight, missing={"NA"}, dead_letters=BAD)
    flights = flow.source(source, name="flights")
    late = flights.filter(lambda flight: flight.delay is not None and flight.delay > 60)
    late.to(JsonLinesSink[Flight](delayed), name="delayed")
    flights.side(BAD).to(bad, name="bad")
    return flow


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, delayed = Path(folder, "flights.csv"), Path(folder, "delayed.jsonl")
        table.write_text(TABLE)
        bad = af.CollectSink[af.connect.BadRecord]()

        asyncio.run(build(table, delayed, bad).run())

        print(delayed.read_text(), end="")
        for one in bad.values:
            print("bad:", one.place.removeprefix(f"{folder}/"))


if __name__ == "__main__":
    main()
