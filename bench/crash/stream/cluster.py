"""Rounds in which executors and their Python are killed, and Spark runs slow tasks twice, while the driver lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from bench.crash.outputs import Output, differences
from bench.crash.stream.drivers import Driver, Drivers
from bench.crash.stream.gateway import (
    DriverJvm,
    kill_session,
    linked_home,
    members_of,
    spark_script,
)
from bench.crash.stream.moments import Moment, Observation
from bench.crash.stream.pipeline import SLOW, input_files, put
from bench.crash.stream.program import StreamSettings
from bench.crash.stream.results import stream_leftovers, stream_output

#: Settings of a cluster whose tasks are tried again, however many executors are killed.
PATIENT: Final = {
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
}
#: Two executors of one core each, on one host.
LOCAL_CLUSTER: Final = {**PATIENT, "spark.master": "local-cluster[2,1,512]"}
_SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    f"spark.executorEnv.{SLOW}": "1.5",
}
#: Hosts of the workers: Spark speculates on another host only. All are this machine.
_HOSTS: Final = ("127.0.0.2", "127.0.0.3")
_MASTER: Final = "127.0.0.1"
#: Most seconds from a moment to a kill, and between two looks.
_LONGEST: Final = 0.4
_LOOK: Final = 0.002
#: Seconds after which a stream hangs.
_TIMEOUT: Final = 1800.0


class ClusterVictim(Enum):
    """A process of an executor."""

    EXECUTOR = "executor"
    WORKER = "Python worker"


#: Text in the command line of each.
_COMMANDS: Final = {
    ClusterVictim.EXECUTOR: "CoarseGrainedExecutorBackend",
    ClusterVictim.WORKER: "pyspark.daemon",
}
_MOMENTS: Final = (Moment.BATCH, Moment.ROWS, Moment.PART, Moment.COMMITTED)


@dataclass(frozen=True, slots=True)
class ClusterRound:
    """Result of a round."""

    kills: Counter[ClusterVictim]
    attempts: Counter[int]
    """Number of tasks at the slow point, by the number of their attempt."""
    wrong: Sequence[str]


def run_cluster_round(
    drivers: Drivers,
    settings: StreamSettings,
    files: int,
    kills: int,
    expected: Output,
    random: Random,
    *,
    sessions: Sequence[int] = (),
) -> ClusterRound:
    """Run a stream in the folder of ``settings``, which must not exist, and kill processes of its executors.

    These are in the session of the JVM, or in ``sessions``.
    """
    folder = Path(settings.folder)
    folder.mkdir(parents=True)
    for number, records in enumerate(input_files(files)):
        put(folder / "input", number, records)
    jvm = DriverJvm(folder / "jvm.log", linked_home(folder / "spark"))
    done = Counter[ClusterVictim]()
    log, began = folder / "start.log", time.monotonic()
    try:
        with drivers.started(settings, jvm.variables, log) as driver:
            while not driver.wait(_LOOK) and time.monotonic() - began < _TIMEOUT:
                if done.total() < kills:
                    _kill_one(driver, folder, [jvm.pid, *sessions], random, done)
    finally:
        jvm.kill()
    if driver.status != 0:
        errors = log.with_suffix(".err").read_text(errors="replace")[-6000:]
        return ClusterRound(done, Counter(), [f"it ended with {driver.status}:\n{errors}"])
    wrong = [*differences(expected, stream_output(folder)), *stream_leftovers(folder)]
    return ClusterRound(done, _attempts(folder), wrong)


def _kill_one(
    driver: Driver,
    folder: Path,
    sessions: Sequence[int],
    random: Random,
    done: Counter[ClusterVictim],
) -> None:
    """Kill a process some time after a random moment, if the program does not end before."""
    seen, victim = Observation(folder, random.choice(_MOMENTS)), random.choice(list(ClusterVictim))
    while seen.count == 0 and not driver.wait(_LOOK):
        seen.look()
    driver.wait(random.uniform(0.0, _LONGEST))
    found = [one for leader in sessions for one in members_of(leader) if _is(victim, one)]
    if found and not driver.has_ended:
        with suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
            done[victim] += 1


def _is(victim: ClusterVictim, process: int) -> bool:
    with suppress(OSError):
        return _COMMANDS[victim] in Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    return False


def _attempts(folder: Path) -> Counter[int]:
    return Counter(int(path.name.rpartition(" ")[2]) for path in (folder / "slow").glob("*"))


def speculating(folder: Path, master: str) -> dict[str, str]:
    """Return the settings of a session whose first attempts at a task are slow, and are run twice."""
    slow = {f"spark.executorEnv.{SLOW}_FOLDER": str(folder / "slow")}
    return {**PATIENT, **_SPECULATION, **slow, "spark.master": master}


@contextmanager
def two_hosts(folder: Path) -> Generator[tuple[str, list[int]]]:
    """Run a cluster with workers on two hosts; yield its URL, and the sessions of the workers."""
    with socket.create_server((_MASTER, 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://{_MASTER}:{port}"
    master = ["deploy.master.Master", "--host", _MASTER, "--port", str(port), "--webui-port", "0"]
    worker = ["deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_daemon(folder, "master", master))
        started += [
            _daemon(folder, host, [*worker, "--host", host, "--work-dir", str(folder / host), url])
            for host in _HOSTS
        ]
        yield url, [one.pid for one in started[1:]]
    finally:
        for one in started:
            kill_session(one.pid)
            one.wait()


def _daemon(folder: Path, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    name_of_class, *rest = arguments
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [spark_script("spark-class"), f"org.apache.spark.{name_of_class}", *rest],
            env={**os.environ, "SPARK_DAEMON_MEMORY": "256m"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
