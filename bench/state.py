"""``state``: state of 10,000,000 keys on disk, in windows, timers and joins, against programs that call RocksDB.

Each program runs in a process of its own, so that its memory can be measured. The ratio is that of CPU times: both
programs use threads of RocksDB, which write and merge files while the program runs, and the wall time depends on what
else the machine does.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from statistics import median

from bench.harness import Budget, Measurement
from bench.state_disk import Digest

#: Modules with a case each, by name. ``in_aflow`` and ``by_hand`` return the ``Digest`` of the same results.
CASES = {
    "windows": "bench.state_windows",
    "timers": "bench.state_timers",
    "join": "bench.state_join",
}
#: Cases whose flow is another program than the measured one: as ``bench timers``, and without budget.
WITH_FLOW = {"timers"}
#: The cost per record is compared with that of this part of the records.
PART = 100

RATIO = 0.5
#: Most memory of a process: 1 GiB.
RSS_MB = 1024
GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class Trial:
    """Figures of one process."""

    results: int
    total: int
    cpu_s: float
    wall_s: float
    rss_mb: float


def measure(records: int, rounds: int) -> Measurement:
    """Measure all cases; ``ratio`` is the worst of their ratios, ``growth`` the greatest increase of a cost."""
    figures: dict[str, float | int | bool | str] = {"records": records}
    ratios: list[float] = []
    growths: list[float] = []
    memory: list[float] = []
    for name in CASES:
        hand: list[Trial] = []
        ours: list[Trial] = []
        small: list[Trial] = []
        flows: list[Trial] = []
        for _ in range(rounds):
            hand.append(run(name, "by_hand", records))
            ours.append(run(name, "in_aflow", records))
            small.append(run(name, "in_aflow", records // PART))
            if name in WITH_FLOW:
                flows.append(run(name, "in_flow", records))
            for one in (*ours, *flows):
                _check(name, one, hand[-1])
        cost, cost_by_hand = (median(one.cpu_s for one in some) / records for some in (ours, hand))
        small_cost = median(one.cpu_s for one in small) / (records // PART)
        wall, wall_by_hand = (median(one.wall_s for one in some) for some in (ours, hand))
        ratios.append(cost_by_hand / cost)
        growths.append(cost / small_cost)
        memory.append(max(one.rss_mb for one in (*ours, *flows)))
        if flows:
            flow_cost = median(one.cpu_s for one in flows) / records
            figures[f"{name}_flow_ratio"] = round(cost_by_hand / flow_cost, 3)
        figures |= {
            f"{name}_records_per_s": round(records / wall),
            f"{name}_cpu_us": round(cost * 1e6, 2),
            f"{name}_by_hand_cpu_us": round(cost_by_hand * 1e6, 2),
            f"{name}_small_cpu_us": round(small_cost * 1e6, 2),
            f"{name}_ratio": round(ratios[-1], 3),
            f"{name}_wall_ratio": round(wall_by_hand / wall, 3),
            f"{name}_growth": round(growths[-1], 2),
            f"{name}_rss_mb": round(memory[-1]),
            f"{name}_by_hand_rss_mb": round(max(one.rss_mb for one in hand)),
        }
    figures |= {
        "ratio": round(min(ratios), 3),
        "growth": round(max(growths), 2),
        "rss_mb": round(max(memory)),
        "rounds": rounds,
        "verified": True,
    }
    return Measurement(
        "state",
        figures,
        [
            Budget("ratio", at_least=RATIO),
            Budget("growth", at_most=GROWTH),
            Budget("rss_mb", at_most=RSS_MB),
        ],
    )


def run(case: str, program: str, records: int) -> Trial:
    """Run a program in a new process."""
    command = [sys.executable, "-m", "bench.state", case, program, str(records)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Trial(**json.loads(done.stdout))


def _check(name: str, ours: Trial, theirs: Trial) -> None:
    if (ours.results, ours.total) != (theirs.results, theirs.total):
        raise SystemExit(f"state: the results of {name} differ from those by hand")


def run_here(case: str, program: str, records: int) -> Trial:
    """Run a program in this process."""
    module = import_module(CASES[case])
    started, wall = _cpu_seconds(), time.perf_counter()
    digest: Digest = getattr(module, program)(records)
    wall, cpu = time.perf_counter() - wall, _cpu_seconds() - started
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Trial(digest.count, digest.total, cpu, wall, kilobytes / 1024)


def _cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(asdict(run_here(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
