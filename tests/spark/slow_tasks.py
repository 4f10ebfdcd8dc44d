"""Tasks of Spark that last longer than their test, and tell it when they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.runtime.builtin_connectors.helpers import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def hundred_seconds(session: SparkSession, started: Path) -> DataFrame:
    """Return rows that take two cores a hundred seconds. The first task creates the file ``started``."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        started.touch()
        for batch in batches:
            time.sleep(0.5)
            yield batch

    # What mapInArrow takes has no types, since pyarrow has none.
    frame: Any = session.range(0, 400, 1, 400)
    return cast("DataFrame", frame.mapInArrow(slow, "id long"))


async def until_started(started: Path) -> None:
    """Wait until a task runs."""
    await eventually(started.exists)
