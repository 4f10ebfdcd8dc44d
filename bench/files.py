"""``files``: JSON lines in, ``keyed_window``, JSON lines out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

import aflow as af
from aflow_connectors.files import JsonLinesSink, JsonLinesSource
from bench.events import HandWritten, Row, make_events
from bench.harness import Measurement, compare, run_async
from bench.keyed_window import as_row, windowed

#: Lines that the hand-written program reads at a time, so it does not hold the whole file.
_LINES = 1024


def measure(records: int, rounds: int) -> Measurement:
    """Measure against ``orjson.loads`` for each line, the hand-written windows, and ``orjson.dumps`` for each row."""
    with TemporaryDirectory() as folder:
        events, out = Path(folder) / "events.jsonl", Path(folder) / "rows.jsonl"
        events.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in make_events(records)))
        return compare(
            "files",
            records,
            _in_aflow(events, out),
            _by_hand(events, out),
            at_least=0.75,
            rounds=rounds,
            canonical=_rows,
        )


def _in_aflow(events: Path, out: Path) -> Callable[[], Path]:
    def run() -> Path:
        flow = af.Flow("files")
        rows = flow.source(JsonLinesSource(events)).pipe(windowed).map(as_row)
        rows.to(JsonLinesSink(out, overwrite=True))
        run_async(flow.run())
        return out

    return run


def _by_hand(events: Path, out: Path) -> Callable[[], Path]:
    def run() -> Path:
        program, loads, dumps = HandWritten(), orjson.loads, orjson.dumps
        with events.open("rb") as lines:
            some: list[Any] = []
            for line in lines:
                some.append(loads(line))
                if len(some) == _LINES:
                    program.add(some)
                    some = []
            program.add(some)
        with out.open("wb") as file:
            for row in program.finish():
                file.write(dumps(row) + b"\n")
        return out

    return run


def _rows(out: Path) -> list[Row]:
    with out.open("rb") as lines:
        return sorted(tuple(orjson.loads(line)) for line in lines)
