"""``connectors``: the source and the sink of each connector, beside a bare loop with the same client and server.

Each case is a module here with a function ``measure(records, rounds)``, which starts its server and returns one
measurement for each direction. A new connector adds a row to ``CASES``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from bench.harness import Budget, Measurement

#: Modules of this package.
CASES: Final = ("http", "kafka", "mqtt", "nats", "postgres", "rabbitmq", "redis", "s3", "delta")


def measure(records: int, rounds: int) -> Measurement:
    """Run all cases. ``ratio`` is the worst of all."""
    figures: dict[str, float | int | bool | str] = {"records": records}
    ratios: list[float] = []
    for case in CASES:
        for one in import_module(f"bench.connectors.{case}").measure(records, rounds):
            ratios.append(float(one.figures["ratio"]))
            for figure in ("records_per_s", "baseline_records_per_s", "ratio"):
                figures[f"{one.name}_{figure}"] = one.figures[figure]
    figures |= {"ratio": min(ratios), "rounds": rounds, "verified": True}
    return Measurement("connectors", figures, [Budget("ratio", at_least=0.6)])
