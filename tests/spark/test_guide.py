"""What the documents about Spark show runs, as a script would, in the session of the other tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import WITH_SPARK, run, snippets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(WITH_SPARK))
def test_what_a_document_about_spark_shows_runs(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = PROJECT / name

    # As the main program, whose functions and classes go to executors by value.
    run(snippets(path.read_text("utf-8")), path, name="__main__", given={"spark": spark})
