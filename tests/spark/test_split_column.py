"""Rows of a streaming DataFrame are divided by the column with their split."""

from __future__ import annotations

from typing import Any

import pyarrow

from aflow.backfill.blocks import SplitRows
from aflow_connectors.spark.dataframe.split_column import SplitColumn

pa: Any = pyarrow  # which has no types


def test_records_of_a_split_stay_in_order() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4], "partition": [7, 0, 7, None]})

    found = list(SplitColumn("bids", "partition").divided(batch, ["a", "b", "c", "d"]))

    assert found == [
        SplitRows("bids:7", ["a", "c"]),
        SplitRows("bids:0", ["b"]),
        SplitRows("bids:None", ["d"]),
    ]
