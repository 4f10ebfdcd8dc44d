"""Rates of aflow on other masters, each in a process of its own, since a process has one session.

``python -m bench.spark_stream.growth MASTER PARALLELISM RECORDS`` prints the events per second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from aflow_connectors.spark import local_session
from bench.spark.session import settings
from bench.spark_stream.batches import Batches
from bench.spark_stream.programs import by_aflow
from bench.spark_stream.trial import Trial

#: By the names of figures: the master, and the number of tasks of a keyed step.
_MASTERS: Final = {
    "two_cores": ("local[2]", 2),
    "four_cores": ("local[4]", 4),
    "two_executors": ("local-cluster[2,1,1024]", 2),
}


def figures(records: int) -> dict[str, float]:
    """Return the rates of four cores and of two executors, each divided by that of two cores.

    A master on which it fails has no figure, and its error is printed: the other figures have taken minutes.
    """
    rates: dict[str, float] = {}
    for name, (master, parallelism) in _MASTERS.items():
        program = [sys.executable, "-m", "bench.spark_stream.growth"]
        command = [*program, master, str(parallelism), str(records)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"spark_stream: {' '.join(command)} failed:\n{done.stderr}", file=sys.stderr)
        else:
            rates[name] = json.loads(done.stdout.splitlines()[-1])
    two = rates.pop("two_cores", None)
    if two is None:
        return {}
    found = {f"{name}_of_two_cores": round(one / two, 3) for name, one in rates.items()}
    return {"two_cores_per_s": round(two), **found}


def rate(master: str, parallelism: int, records: int) -> float:
    """Return the events per second in large batches of few keys, in a session of its own."""
    batches = Batches(
        rows=records, keys=max(1, records // 20), window_rows=records, warm=2, measured=3
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        # Executors of a local cluster do not start in this folder.
        paths = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
        conf = {
            **settings(folder),
            "spark.master": master,
            "spark.executorEnv.PYTHONPATH": paths,
        }
        session = local_session("bench", cores=parallelism, conf=conf)
        try:
            return records / fmean(Trial(session, folder / "trial", batches).seconds(by_aflow))
        finally:
            session.stop()


if __name__ == "__main__":
    print(json.dumps(rate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
