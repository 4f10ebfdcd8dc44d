"""Ready-made aggregates, for windows and for aggregating state. Reached as ``aflow.aggregates``.

``of`` is a function that returns the aggregated value of a record; it is called once for each record. Without it the
record itself is aggregated. It is not a type, unlike ``of=`` of sources and of steps: the type of stored values is
``stored_as``. Snapshots need no ``of=`` on the step, since each aggregate defines how its accumulators are stored.
"""

from aflow.state.aggregates.arrival_order import collect, first, last
from aflow.state.aggregates.distinct import distinct
from aflow.state.aggregates.extremes import max, min, top_k
from aflow.state.aggregates.fields import fields
from aflow.state.aggregates.numbers import count, mean, sum
from aflow.state.aggregates.quantiles import quantile

__all__ = [
    "collect",
    "count",
    "distinct",
    "fields",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "sum",
    "top_k",
]
