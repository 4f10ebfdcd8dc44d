"""Requirements of Spark on this machine, with clear messages if one is missing, and a local session."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from aflow.errors import ConnectorError, FlowDefinitionError
from aflow.model.distribution import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Oldest Java version that Spark 4 supports.
JAVA: Final = 17

#: Supported versions: from the first, to before the second. The same as in the extra ``aflow-streams[spark]``.
VERSIONS: Final = {
    "pyspark": ((4, 3), (4, 4)),
    "pandas": ((2, 2), (3,)),
    "pyarrow": ((18,), None),
}
#: Distributions that contain the module pyspark; the last two have only the client of Spark Connect.
_PYSPARK: Final = ("pyspark", "pyspark-connect", "pyspark-client")

_INSTALL_JAVA: Final = (
    "on Debian and Ubuntu, 'sudo apt-get install openjdk-17-jre-headless' installs it; "
    "JAVA_HOME names its folder if it is not the `java` on the path"
)
_INSTALL_PACKAGES: Final = install_command("spark")

#: Timeout in seconds for `java -version`, which takes a tenth of one.
_PATIENCE: Final = 30

_IMPORTING: Final = Lock()

#: Session option with the Python executable of its workers.
_PYTHON_OF_SESSION: Final = "spark.sql.execution.pyspark.python"

_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # The JVM runs for seconds or minutes: no second compiler and no collector threads, which compete with Python.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    name: str, *, cores: int = 2, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session in this process: ``cores`` cores and shuffle partitions, UTC, no web UI, errors only.

    ``conf`` adds to these settings or replaces them: ``{"spark.driver.memory": "4g"}``. Blocks for some seconds while
    the JVM starts. ``session.stop()`` ends it. Raises ``ConnectorError`` if a requirement is missing on this machine,
    and if a session with other settings exists already.
    """
    if cores < 1:
        raise FlowDefinitionError(f"local_session: cores must be at least 1, not {cores}")
    check_java()
    check_packages()
    settings = {"spark.sql.shuffle.partitions": str(cores), **_DEFAULTS, **(conf or {})}
    master = settings.pop("spark.master", f"local[{cores}]")
    check_python(master)
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConnectorError(
            "a Spark session is already there in this process, and there can be one: use it, which is "
            "SparkSession.active(), or stop() it first"
        )
    builder = SparkSession.builder.master(master).appName(name)
    try:
        return builder.config(map=dict(settings)).getOrCreate()
    # A JVM that does not start raises errors of many classes.
    except Exception as exc:
        raise ConnectorError(f"cannot start Spark on {master}: {first_line(exc)}") from exc


def check_java() -> None:
    """Raise ``ConnectorError`` if Spark would find no Java on this machine, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    # The same order as in Spark's own scripts.
    java = str(Path(home, "bin", "java")) if home else "java"
    found = shutil.which(java)
    if found is None:
        where = f"JAVA_HOME is {home}, where no bin/java is" if home else "there is no java"
        raise ConnectorError(f"Spark needs Java {JAVA} or newer: {where}; {_INSTALL_JAVA}")
    version = _java_version(found)
    if version < JAVA:
        raise ConnectorError(
            f"Spark needs Java {JAVA} or newer: {found} is Java {version}; {_INSTALL_JAVA}"
        )


def check_packages() -> None:
    """Raise ``ConnectorError`` if pyspark, pandas or pyarrow is missing or has an unsupported version."""
    for package, (first, end) in VERSIONS.items():
        version = _version_of(package)
        if version is None:
            raise ConnectorError(
                f"Spark needs the package {package}, which is not installed: {_INSTALL_PACKAGES}"
            )
        numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
        if numbers < first or (end is not None and numbers >= end):
            wanted = f">={_dotted(first)}" + ("" if end is None else f",<{_dotted(end)}")
            raise ConnectorError(
                f"aflow works on Spark with {package}{wanted}, but {version} is installed: {_INSTALL_PACKAGES}"
            )


def check_python(master: str) -> None:
    """Make a local Spark start its Python workers with the running interpreter, whose packages they need.

    Sets PYSPARK_PYTHON, which Spark reads. Raises ``ConnectorError`` if it names another interpreter. For other masters
    this is a no-op, since the workers of a cluster have a Python of their own.
    """
    if not master.startswith("local"):
        return
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not _is_this_python(chosen):
        raise ConnectorError(
            f"PYSPARK_PYTHON is {chosen}, but on {master} Spark's workers need the running Python with its packages: "
            f"unset it, or set it to {sys.executable}"
        )


def use_this_python(session: SparkSession) -> None:
    """Start the Python workers of a local Spark with the running interpreter, unless the user chose another one.

    Without PYSPARK_PYTHON Spark runs ``python3`` from the path, which is not that of a virtual environment that is not
    activated. For other masters this is a no-op, since executors of a cluster have a Python of their own. Blocks.
    """
    if os.environ.get("PYSPARK_PYTHON") or session.conf.get(_PYTHON_OF_SESSION, None):
        return
    if type(session).__module__.startswith("pyspark.sql.connect."):
        # Set by Spark if this process has started the server: SparkSession.builder.remote("local[2]").
        if os.environ.get("SPARK_LOCAL_REMOTE"):
            session.conf.set(_PYTHON_OF_SESSION, sys.executable)
        return
    context = session.sparkContext
    if (context.master or "").startswith("local") and not context.getConf().get(
        "spark.pyspark.python"
    ):
        context.pythonExec = sys.executable


def import_pyspark() -> None:
    """Import the modules of pyspark that the connector needs, one thread at a time.

    They import each other in cycles: if two threads begin at different modules, Python gives one of them an incomplete
    module. The writers of a sink start concurrently, each in a thread.
    """
    with _IMPORTING:
        import_module("pyspark.sql.pandas.types")


def first_line(exc: BaseException) -> str:
    """Return the first non-empty line of an error's text; its repr if there is none."""
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), repr(exc))


def _java_version(java: str) -> int:
    """Return 17 for Java 17.0.15, 8 for 1.8.0_402."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise ConnectorError(
            f"Spark needs Java {JAVA} or newer: {java} does not run ({first_line(exc)}); {_INSTALL_JAVA}"
        ) from exc
    said = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise ConnectorError(
            f"Spark needs Java {JAVA} or newer: {java} does not print its version but {said.strip()!r}; {_INSTALL_JAVA}"
        )
    return int(found[1])


def _version_of(package: str) -> str | None:
    for distribution in _PYSPARK if package == "pyspark" else (package,):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _is_this_python(name: str) -> bool:
    """Return True if ``name`` is the running interpreter: python3 next to python is, that of another environment is
    not.
    """
    found = shutil.which(name)
    if found is None:
        return False
    # Resolving the links would make all environments equal, which link to the same interpreter.
    same_folder = Path(found).absolute().parent == Path(sys.executable).absolute().parent
    return same_folder and Path(found).samefile(sys.executable)
