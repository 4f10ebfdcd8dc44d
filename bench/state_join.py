"""``join`` of ``state``: an interval join in which all records are buffered until the end.

As many left records as right ones arrive within an hour of event time, and are joined from an hour before to an hour
after. A key has one record of each input, or one record alone: every second record finds a partner.

The program by hand is the fastest of three that were tried. It keeps the records of a key in each second hour in one
row, so a record reads up to two rows and writes one, and whole hours are deleted as one range. An index of records by
time, or a row for each record, takes longer.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

import aflow as af
from aflow.state.disk.rocksdb import rocksdict
from bench.events import Event
from bench.harness import run_async
from bench.state_disk import ON_DISK, Digest

HOUR = 3_600_000
#: Factors that scatter keys: primes greater than any number of records.
LEFT, RIGHT = 4_000_000_007, 5_000_000_029
#: Records of one input in a row in the program by hand.
TURN = 4096


def events(records: int, scatter: int, first_key: int) -> Iterator[Event]:
    """Yield ``records`` events in time order, each with another key, in an order that looks random."""
    for number in range(records):
        key = first_key + number * scatter % records
        yield {"key": f"key-{key}", "ts": number * HOUR // records, "value": number}


def inputs(records: int) -> tuple[Iterator[Event], Iterator[Event]]:
    """Return the left events and the right ones; half of their keys are the same."""
    half = records // 2
    return events(half, LEFT, 0), events(half, RIGHT, half // 2)


def in_aflow(records: int) -> Digest:
    """Join in a flow with its state on disk."""
    digest = Digest()
    flow = af.Flow("join")

    def keyed(source: Iterator[Event], name: str) -> af.KeyedStream[str, Event]:
        stream = flow.source(source, name=name).event_time(lambda event: event["ts"])
        return stream.key_by(lambda event: event["key"])

    lefts, rights = inputs(records)
    hour = timedelta(hours=1)
    joined = keyed(lefts, "lefts").interval_join(
        keyed(rights, "rights"), between=(-hour, hour), of=Event, other_of=Event
    )
    pairs = joined.inner(lambda left, right: left["value"] * 31 + right["value"], name="pairs")
    pairs.filter(digest.add).to(af.CollectSink())
    run_async(flow.run(options=af.Options(state=ON_DISK)))
    return digest


def by_hand(records: int) -> Digest:
    """Join with rocksdict alone."""
    digest = Digest()
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(tuple[list[Event], list[Event]]).decode
    place = struct.Struct(">I").pack
    module: Any = rocksdict()
    unlogged = module.WriteOptions()
    unlogged.disable_wal = True
    lefts, rights = inputs(records)
    both = ((0, lefts), (1, rights))
    with tempfile.TemporaryDirectory() as folder:
        db = module.Rdict(str(Path(folder) / "db"), module.Options(raw_mode=True))
        get, put = db.get, db.put
        used: set[int] = set()
        while some := list(
            chain.from_iterable(((side, event) for event in islice(of, TURN)) for side, of in both)
        ):
            for side, event in some:
                at = event["ts"]
                slot, encoded_key = at // (2 * HOUR), event["key"].encode()
                own: tuple[list[Event], list[Event]] = ([], [])
                for number in range((at - HOUR) // (2 * HOUR), (at + HOUR) // (2 * HOUR) + 1):
                    data = get(place(number) + encoded_key) if number in used else None
                    if data is None:
                        continue
                    row = decode(data)
                    if number == slot:
                        own = row
                    for partner in row[1 - side]:
                        if abs(partner["ts"] - at) <= HOUR:
                            left, right = (partner, event) if side else (event, partner)
                            digest.add(left["value"] * 31 + right["value"])
                own[side].append(event)
                used.add(slot)
                put(place(slot) + encoded_key, encode(own), unlogged)
        db.delete_range(place(0), place(1), unlogged)
        db.close()
    return digest
