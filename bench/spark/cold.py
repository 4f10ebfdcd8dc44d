"""The windows in a new process: the time that a user waits who runs a backfill once.

``python -m bench.spark.cold window|aflow RECORDS`` prints the seconds, without the start of the session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import timed
from bench.spark import windows
from bench.spark.session import started


def figures(records: int, rounds: int) -> dict[str, float]:
    """Return the best of ``rounds`` processes of each program, in turn."""
    times: dict[str, list[float]] = {"window": [], "aflow": []}
    for _ in range(rounds):
        for program, some in times.items():
            command = [sys.executable, "-m", "bench.spark.cold", program, str(records)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            some.append(float(json.loads(done.stdout.splitlines()[-1])))
    return {"windows_cold_ratio": round(min(times["window"]) / min(times["aflow"]), 3)}


def main(program: str, records: int) -> None:
    """Run one of the programs once."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with started("spark", folder) as session:
            # Spark alone writes the rows in both cases, so no program runs with code that was compiled for the other.
            events = windows.events(session, folder, records)
            run = windows.programs(session, events, folder)[program]
            seconds, _ = timed(run)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
