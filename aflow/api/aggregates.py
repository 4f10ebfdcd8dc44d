"""Ready-made aggregates, for windows and for aggregating state. Reached as ``aflow.aggregates``."""

from aflow.state.aggregates.numbers import count, mean, sum

__all__ = ["count", "mean", "sum"]
