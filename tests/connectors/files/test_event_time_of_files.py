"""Event time of files that cover the same time: read sequentially or concurrently."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.testing import run_flow
from aflow_connectors.files import JsonLinesSource


@pytest.mark.parametrize(("concurrency", "late"), [(1, 3), (None, 0), (2, 0)])
def test_files_read_side_by_side_are_not_late_for_each_other(
    tmp_path: Path, concurrency: int | None, late: int
) -> None:
    for name in ("one", "two"):
        lines = [f'{{"at": {second * 1000}}}\n' for second in (1, 11, 21, 31)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    flow, counts, dropped = af.Flow("files"), af.CollectSink[Any](), af.CollectSink[Any]()
    results = (
        flow.source(JsonLinesSource(tmp_path, concurrency=concurrency))
        .event_time(lambda record: record["at"])
        .window_all(af.Tumbling(timedelta(seconds=10)))
        .fold(int, lambda n, _: n + 1, name="count")
    )
    results.to(counts)
    results.late.to(dropped)

    run_flow(flow)

    assert len(dropped.values) == late
    assert sum(one.value for one in counts.values) == 8 - late
