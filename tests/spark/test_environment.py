"""Missing requirements of Spark are reported in one sentence, before Spark reports them in fifty."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aflow.errors import ConnectorError, FlowDefinitionError
from aflow_connectors.spark.environment import (
    check_java,
    check_packages,
    check_python,
    local_session,
    use_this_python,
)

PROJECT = Path(__file__).parents[2]
INSTALL = "'sudo apt-get install openjdk-17-jre-headless' installs it; JAVA_HOME names its folder"


def java(folder: Path, script: str) -> Path:
    """A `java` in ``folder/bin`` that does what ``script`` says."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def says(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2024-01-01' >&2"""


def package(folder: Path, name: str, version: str) -> None:
    """Metadata of an installed package, found before that of the real one."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_without_java_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConnectorError) as caught:
        check_java()

    assert str(caught.value).startswith("Spark needs Java 17 or newer: there is no java; on Debian")
    assert INSTALL in str(caught.value)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(
        ConnectorError, match=f"JAVA_HOME is {tmp_path}, where no bin/java is; .*{INSTALL}"
    ):
        check_java()


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        pytest.param("1.8.0_402", "8", id="8"),
        pytest.param("11.0.22", "11", id="11"),
        pytest.param("16-ea", "16", id="16"),
    ],
)
def test_a_java_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, shown: str
) -> None:
    old = java(tmp_path, says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(
        ConnectorError, match=f"^Spark needs Java 17 or newer: {old} is Java {shown}; .*{INSTALL}"
    ):
        check_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java(tmp_path, says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    check_java()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("exit 3", "does not run", id="fails"),
        pytest.param(
            "echo hello", "does not print its version but 'hello'", id="says something else"
        ),
    ],
)
def test_a_java_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    broken = java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConnectorError, match=f"{broken} {reason}"):
        check_java()


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        pytest.param("pyspark", "3.5.1", r"pyspark>=4.3,<4.4", id="pyspark too old"),
        pytest.param("pyspark", "4.4.0", r"pyspark>=4.3,<4.4", id="pyspark too new"),
        pytest.param("pandas", "3.0.1", r"pandas>=2.2,<3", id="pandas too new"),
        pytest.param("pyarrow", "17.0.0", r"pyarrow>=18", id="pyarrow too old"),
    ],
)
def test_a_package_of_a_version_that_does_not_work_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, wanted: str
) -> None:
    good = {"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "26.0.0", name: version}
    for other, its_version in good.items():
        package(tmp_path, other, its_version)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(ConnectorError) as caught:
        check_packages()

    assert str(caught.value) == (
        f'aflow works on Spark with {wanted}, but {version} is installed: pip install "aflow-streams[spark]"'
    )


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "pyarrow"])
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name, version in {"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "26.0.0"}.items():
        if name != missing:
            package(tmp_path, name, version)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(
        ConnectorError,
        match=rf'^Spark needs the package {missing}, which is not installed: pip install "aflow-streams\[spark\]"$',
    ):
        check_packages()


def have_java(home: Path, *arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """Output of the script that `make test` runs. With JAVA_HOME set it installs nothing."""
    return subprocess.run(
        [PROJECT / "scripts" / "have-java", *arguments],
        env={**os.environ, "JAVA_HOME": str(home), "CI": ci},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_script_says_nothing_where_there_is_java(tmp_path: Path) -> None:
    java(tmp_path, says("17.0.15"))

    done = have_java(tmp_path, "required", ci="true")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "ci", "code"),
    [
        pytest.param([], "", 0, id="tests skip"),
        pytest.param([], "true", 1, id="in CI"),
        pytest.param(["required"], "", 1, id="required"),
    ],
)
def test_the_script_names_the_package_to_install_and_fails_if_java_is_required(
    tmp_path: Path, arguments: list[str], ci: str, code: int
) -> None:
    java(tmp_path, says("1.8.0_402"))

    done = have_java(tmp_path, *arguments, ci=ci)

    assert done.returncode == code
    assert done.stderr.startswith(
        f"Spark needs Java 17 or newer, and '{tmp_path}/bin/java' is Java 8: on Debian"
    )
    assert ("Without it the tests of Spark are skipped." in done.stderr) == (code == 0)


def test_a_local_spark_gets_the_running_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    check_python("local[2]")

    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_another_python_for_a_local_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in another virtual environment: the same interpreter, with other packages.
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))

    with pytest.raises(ConnectorError, match=f"PYSPARK_PYTHON is {other}, .* or set it to "):
        check_python("local[*]")


def test_the_python_of_a_cluster_is_its_own_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/there/python3")

    check_python("spark://master:7077")


class Context:
    """Attributes of a ``SparkContext`` that are read."""

    def __init__(self, master: str, conf: dict[str, str]) -> None:
        self.master = master
        self.conf = conf
        self.pythonExec = "python3"  # the name of Spark's

    def getConf(self) -> dict[str, str]:  # noqa: N802 - the name of Spark's
        return self.conf


class Session:
    """Attributes of a ``SparkSession`` that are read."""

    def __init__(self, master: str, conf: dict[str, str]) -> None:
        self.conf = conf
        self.sparkContext = Context(master, conf)


@pytest.mark.parametrize(
    ("master", "conf", "env", "expected"),
    [
        ("local[2]", {}, "", sys.executable),
        ("local-cluster[1,1,512]", {}, "", sys.executable),
        ("spark://master:7077", {}, "", "python3"),
        ("yarn", {}, "", "python3"),
        ("local[2]", {}, "/opt/python3", "python3"),
        ("local[2]", {"spark.pyspark.python": "/opt/python3"}, "", "python3"),
        ("local[2]", {"spark.sql.execution.pyspark.python": "/opt/python3"}, "", "python3"),
    ],
)
def test_a_python_chosen_by_the_user_is_kept(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], env: str, expected: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", env)
    session: Any = Session(master, conf)

    use_this_python(session)

    assert session.sparkContext.pythonExec == expected


def test_a_session_without_cores_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="cores must be at least 1, not 0"):
        local_session("none", cores=0)


def test_threads_that_need_pyspark_at_once_all_get_it() -> None:
    program = """
import sys
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from aflow_connectors.spark.dataframe.schema import spark_schema
sys.setswitchinterval(1e-5)
schemas = [pa.schema([("n", pa.int64())]), "n long"] * 4
with ThreadPoolExecutor(8) as threads:
    made = [threads.submit(spark_schema, schema, owner="a sink") for schema in schemas]
assert [one.exception() for one in made[::2]] == [None] * 4, made
assert {type(one.exception()).__name__ for one in made[1::2]} == {"FlowDefinitionError"}  # without a session
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd=PROJECT
    )

    assert done.stderr == ""
