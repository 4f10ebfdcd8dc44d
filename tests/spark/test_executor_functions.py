"""An executor that lacks aflow, or what a function imports, is reported with its Python and the cure."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from aflow.errors import ConnectorError
from aflow_connectors.spark.executor.functions import Payload, executor_function, map_in_arrow
from aflow_connectors.spark.executor.serialization import dumps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def nothing(payload: Payload[object], batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def test_an_executor_without_aflow_is_named_with_its_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = executor_function(nothing, dumps(7), what="fragment 0 of flow 'sums'")
    # As on a machine where it is not installed.
    monkeypatch.setitem(sys.modules, "aflow_connectors.spark.executor.functions", None)

    with pytest.raises(ImportError) as caught:
        list(function(iter([])))

    message = str(caught.value)
    assert message.startswith(
        f"fragment 0 of flow 'sums' cannot run on executor {socket.gethostname()}: {sys.executable} "
        f"cannot import aflow ("
    )
    assert "install aflow-streams[spark] in the image of the executors" in message
    assert "venv-pack" in message


def test_what_cannot_be_unpickled_there_is_named_with_the_cure() -> None:
    # A pickle that imports a module which is not there.
    missing = b"cno_such_module_of_the_user\nThing\n."
    function = executor_function(nothing, missing, what="fragment 0 of flow 'sums'")

    with pytest.raises(
        ConnectorError, match=r"cannot be unpickled there: .*no_such_module_of_the_"
    ):
        list(function(iter([])))


def frozen(payload: Payload[object], batches: Iterator[Any]) -> Iterator[Any]:
    arrow: Any = import_module("pyarrow")
    yield arrow.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})


@pytest.mark.slow
def test_a_worker_of_spark_freezes_what_it_has_before_a_task(spark: SparkSession) -> None:
    function = executor_function(frozen, dumps(7), what="fragment 0 of flow 'sums'")

    (row,) = map_in_arrow(spark.range(0, 1, 1, 1), function, "objects long").collect()

    assert row.objects > 10_000
