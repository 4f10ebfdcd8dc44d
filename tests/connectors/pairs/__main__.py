"""``python -m tests.connectors.pairs NAME --kills 100 --seed 1``: kill the job of a pair, and what it is connected to.

``all`` runs each pair. Seven of ten disturbances kill the job, two a server, and one disturbs connections; after
``--seconds`` no further one begins. It prints a line for each run, and ends with 1 if an output differs from what the
guarantee says.
"""

from __future__ import annotations

import argparse
import sys
from math import inf
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from tests.connectors.pairs.pair import MODULES
from tests.connectors.pairs.run import plan, run_pair
from tests.connectors.pairs.servers import Servers


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.connectors.pairs")
    parser.add_argument("name", choices=[*MODULES, "all"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=inf)
    given = parser.parse_args()
    names = list(MODULES) if given.name == "all" else [given.name]
    folder = Path(mkdtemp(prefix="aflow-pairs-"))
    print(f"logs are in {folder}", flush=True)
    wrong = 0
    with Servers(folder) as servers:
        for name in names:
            work = folder / name
            work.mkdir()
            report = run_pair(
                name,
                servers,
                work,
                plan(given.kills, Random(given.seed)),
                seed=given.seed,
                seconds=given.seconds,
                progress=lambda line: print(line, flush=True),
            )
            print(report, flush=True)
            wrong += bool(report.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
