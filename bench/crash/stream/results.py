"""Output and state of a round, in a form that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import pyarrow.parquet

import aflow as af
from aflow.backfill.contents import newest_manifest, rows_of, stored_parts
from aflow_connectors.spark import SparkSink
from bench.crash.outputs import Output
from bench.crash.records import Reading
from bench.crash.stream.pipeline import FOLDERS, FUNCTION, build, schema_of

#: The state of the savepoint, beside the sinks.
STATE: Final = "state"
#: Contents of a state folder at the end of a stream, beside the manifest of the last epoch.
_STATE_FOLDER: Final = frozenset({"lock", "parts", "spark"})


def stream_output(round_folder: Path) -> Output:
    """Return the sorted lines of each sink, and the state in the savepoint."""
    out = round_folder / "out"
    return {
        **{sink: sorted(map(_line, _folder_rows(out / sink))) for sink in FOLDERS},
        FUNCTION: sorted(map(_line, _function_rows(out / FUNCTION))),
        STATE: sorted(map(_line, _stored(round_folder / "savepoint"))),
    }


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _folder_rows(folder: Path) -> list[dict[str, Any]]:
    reader: Any = pyarrow.parquet  # which has no types
    rows: list[dict[str, Any]] = reader.read_table(str(folder)).to_pylist()
    return rows


def _function_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.glob("[0-9]*.json"):
        yield from json.loads(file.read_bytes())


def _stored(savepoint: Path) -> Iterator[object]:
    sinks = {*FOLDERS, FUNCTION}
    for part in stored_parts(savepoint):
        if part.operator in sinks:
            continue  # the names of the last files
        for row in rows_of(part):
            stored = asdict(row)
            # Both depend on the parallelism and the batches.
            del stored["subtask"]
            yield {**stored, "value": _sorted(json.loads(row.value))}


def _sorted(value: object) -> object:
    """Return a value whose lists are sorted: their order depends on the batches."""
    if isinstance(value, list):
        return sorted(map(_sorted, cast("list[object]", value)), key=_line)
    return value


def stream_leftovers(round_folder: Path) -> list[str]:
    """Return the files that a stream which has ended should have removed."""
    state = round_folder / "state"
    manifest, _ = newest_manifest(state)
    needed = {Path(one.path).name for one in manifest.files}
    expected = _STATE_FOLDER | {f"checkpoint-{manifest.id:06d}.json"}
    found = [path for path in state.iterdir() if path.name not in expected]
    found += [path for path in (state / "parts").iterdir() if path.name not in needed]
    for sink in FOLDERS:
        hidden = (round_folder / "out" / sink).glob(".*")
        found += [path for path in hidden if path.suffix != ".manifest"]
    return [f"left: {path}" for path in sorted(found)]


async def live_rest(round_folder: Path, records: list[Reading]) -> list[dict[str, Any]]:
    """Run the live job that continues from the savepoint; return the rows of the sink without a folder."""
    rest = af.CollectSink[Any]()
    folders: dict[str, Any] = {
        one: SparkSink[Any](round_folder / "out" / one, schema=schema_of(one)) for one in FOLDERS
    }
    await build(records, thirds=rest, **folders).run(
        restore=round_folder / "savepoint",
        checkpointing=af.Checkpointing(storage=round_folder / "jobs"),
    )
    return rest.values


async def live_whole(records: list[Reading]) -> Output:
    """Return the output of one live job over all records."""
    sinks = {one: af.CollectSink[Any]() for one in (*FOLDERS, FUNCTION)}
    await build(records, **sinks).run()
    return {one: sorted(map(_line, sink.values)) for one, sink in sinks.items()}


def whole_output(round_folder: Path, rest: list[dict[str, Any]]) -> Output:
    """Return the output of a stream and of the live job after it, whose rows ``rest`` are in no folder."""
    found = {one: lines for one, lines in stream_output(round_folder).items() if one != STATE}
    return {**found, FUNCTION: sorted([*found[FUNCTION], *map(_line, rest)])}
