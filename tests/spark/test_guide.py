"""The code of the Spark guide runs, as a script would, in the session of the other tests; so does its example."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import run_document
from tests.examples.test_examples import WITH_SPARK as EXAMPLES
from tests.examples.test_examples import documented_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_the_code_of_a_document_about_spark_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    # As the main program, whose functions and classes go to executors by value.
    run_document("docs/guide/spark.md", name="__main__", given={"spark": spark})


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_on_spark_runs_and_prints_its_documented_output(
    path: Path, in_another_process: Callable[..., str]
) -> None:
    printed = in_another_process(path)

    assert printed.strip() == documented_output(path.read_text("utf-8"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_without_java_an_example_reports_it_in_one_sentence(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 1
    assert done.stderr.startswith("Spark needs Java 17 or newer: JAVA_HOME is")
    assert done.stderr.count("\n") == 1
