"""``connectors``: the source and the sink of each connector, beside a bare loop with the same client and server.

Each case is a module here with a function ``measure(records, rounds)``, which starts its server and yields one
measurement for each direction, with ``ratio``, and one for a pair of them, with ``latency_added_p50_ms``. A new
connector adds a row to ``CASES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from bench.harness import Budget, Measurement

#: Modules of this package, with their share of the records: slow clients have fewer.
CASES: Final[Mapping[str, float]] = {
    "http": 0.5,
    "kafka": 0.25,
    "mqtt": 0.1,
    "nats": 0.1,
    "postgres": 1,
    "rabbitmq": 0.1,
    "redis": 0.25,
    "s3": 1,
    "delta": 1,
}

_SHOWN: Final = (
    "records_per_s",
    "baseline_records_per_s",
    "ratio",
    "cpu_ratio",
    "latency_added_p50_ms",
)


def measure(records: int, rounds: int, only: Sequence[str] = ()) -> Measurement:
    """Run all cases, or those named in ``only``. Raises ``SystemExit`` for an unknown name.

    ``ratio`` is the worst of all directions, ``latency_added_p50_ms`` the worst of all pairs. S3 and Delta Lake have no
    pair: their sources look for new data at intervals.
    """
    if unknown := [name for name in only if name not in CASES]:
        raise SystemExit(f"connectors: there is no case {unknown[0]!r}: {', '.join(CASES)}")
    figures: dict[str, float | int | bool | str] = {"records": records}
    worst = {"ratio": min, "latency_added_p50_ms": max}
    found: dict[str, list[float]] = {name: [] for name in worst}
    for case, share in CASES.items():
        if not only or case in only:
            module = import_module(f"bench.connectors.{case}")
            for one in module.measure(max(1, round(records * share)), rounds):
                shown = [figure for figure in _SHOWN if figure in one.figures]
                figures |= {f"{one.name}_{figure}": one.figures[figure] for figure in shown}
                for figure, values in found.items():
                    if figure in one.figures:
                        values.append(float(one.figures[figure]))
    figures |= {name: choose(found[name]) for name, choose in worst.items() if found[name]}
    figures |= {"rounds": rounds, "verified": True}
    budgets = [Budget("ratio", at_least=0.6)]
    if "latency_added_p50_ms" in figures:
        budgets.append(Budget("latency_added_p50_ms", at_most=2))
    return Measurement("connectors", figures, budgets)
