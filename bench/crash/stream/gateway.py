"""The JVM of a driver, which outlives the Python of the driver, and is killed with all processes that it has started.

A driver of Spark in Python is two processes. A program starts the JVM itself, as ``local_session`` does, or attaches to
one that exists: notebooks and job servers do that, whose JVM goes on with its tasks if their Python is killed. So a
start after a kill of Python alone meets tasks of its predecessor.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.crash.stream.cluster import CLUSTER, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT: Final = Path(__file__).parents[3]

#: A JVM that starts fast, and has no threads that compete with Python.
FAST: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: Settings with which the JVM starts.
_JVM: Final = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": FAST}
#: Settings of the session of the first Python that attaches to the JVM.
_SESSION: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(map(str, (PROJECT, PROJECT / "connectors"))),
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": "bench.crash.stream.faulty_worker",
    # Compiling queries takes more time than rows of a few small files.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Otherwise each driver, and some of its jobs, have Python workers of their own, which import everything.
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.ui.enabled": "false",
}
#: Seconds between two looks at processes that start or were killed.
_LOOK: Final = 0.005
#: Variable with the folder for the output of executors.
_EXECUTORS: Final = "AFLOW_CRASH_EXECUTORS"
_PORT: Final = struct.Struct("!i")


class DriverJvm:
    """A JVM for the Python of drivers, one after the other, in a session of processes of its own."""

    def __init__(self, log: Path) -> None:
        """Start the JVM, which takes some seconds. ``log`` receives its output. Raises ``OSError`` if it ends."""
        with tempfile.TemporaryDirectory() as folder, log.open("ab") as out:
            told = Path(folder, "connection")
            self._process = subprocess.Popen(
                _command(),
                cwd=PROJECT,
                env={
                    **os.environ,
                    "SPARK_CONNECT_MODE": "0",
                    "SPARK_LAUNCHER_OPTS": FAST,
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
                },
                stdin=subprocess.PIPE,  # it ends when this is closed
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            while not told.exists():
                if self._process.poll() is not None:
                    raise OSError(f"the JVM has ended:\n{log.read_text()[-3000:]}")
                time.sleep(_LOOK)
            port, secret = _connection(told.read_bytes())
        #: Variables with which a program attaches to this JVM.
        self.variables: Final[Mapping[str, str]] = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": secret,
            "PYSPARK_PYTHON": sys.executable,
            _EXECUTORS: str(log.absolute().with_suffix(".executors")),
        }

    @property
    def pid(self) -> int:
        """The process, which leads its session."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it, and all processes that it has started. No-op if that was done."""
        kill_session(self.pid)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _command() -> list[str]:
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise OSError("pyspark is not installed")
    submit = Path(found.submodule_search_locations[0], "bin", "spark-submit")
    settings = (text for name, value in _JVM.items() for text in ("--conf", f"{name}={value}"))
    return [str(submit), *settings, "pyspark-shell"]


def _connection(told: bytes) -> tuple[int, str]:
    """Return port and secret, as the JVM writes them."""
    (port,), secret = _PORT.unpack(told[:4]), told[8:]
    return int(port), secret.decode()


def kill_session(leader: int) -> None:
    """Kill all processes of the session of ``leader``, which this process has started."""
    while alive := members_of(leader):
        for one in alive:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_LOOK)


def members_of(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and _session_of(path) == leader
    ]


def _session_of(process: Path) -> int | None:
    """Return the session of a process; None if it has ended."""
    try:
        # The name of the program, in parentheses, may have blanks.
        state, _, _, session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(session)


def attached_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of the JVM that the variables of ``DriverJvm`` name, created by the first caller.

    ``settings`` are those of this first one; they include ``spark.master``.
    """
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    untyped: Any = java_gateway
    gateway = untyped.launch_gateway()
    # The JVM knows functions of a former Python by their numbers, and would mistake ours for them.
    gateway.gateway_property.pool.next_id = os.getpid() << 20
    jvm = gateway.jvm
    conf: Any = SparkConf(_jvm=jvm)
    for name, value in {"spark.app.name": "killed stream", **_SESSION, **settings}.items():
        conf.set(name, value)
    if settings["spark.master"] == CLUSTER:
        conf.set("spark.master", cluster_of(gateway, os.environ[_EXECUTORS]))
    scala = jvm.org.apache.spark.SparkContext.getOrCreate(conf._jconf)
    context = jvm.JavaSparkContext.fromSparkContext(scala)
    # Of the context as it is: the settings of a later caller do not count.
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=scala.getConf()))
    return SparkSession.builder.getOrCreate()
