"""What a backfill is given is checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.spark import Results, SparkSink
from aflow_connectors.spark.preparing import check_apart

if TYPE_CHECKING:
    from aflow_connectors.spark.results import Place


@pytest.mark.parametrize("same", ["text", "uri", "results", "sink"])
def test_two_sinks_do_not_write_to_one_folder(tmp_path: Path, same: str) -> None:
    folder = tmp_path / "totals"
    places: dict[str, Place] = {
        "text": str(folder),
        "uri": f"file://{folder}",
        "results": Results(folder, overwrite=True),
        "sink": SparkSink(folder),
    }

    with pytest.raises(
        FlowDefinitionError, match=r"sinks 'a' and 'b' both write to /.*totals: give"
    ):
        check_apart({"a": folder, "c": None, "b": places[same]})


def test_sinks_have_folders_of_their_own(tmp_path: Path) -> None:
    check_apart({"a": tmp_path / "a", "b": tmp_path / "b", "c": print, "d": print, "e": None})
