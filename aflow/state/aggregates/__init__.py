"""Ready-made aggregates, public as ``aflow.aggregates``.

Each file holds aggregates of one kind: ``numbers`` (count, sum, mean), ``extremes`` (min, max, top k),
``arrival_order`` (first, last, collect), ``distinct``, ``quantiles``, and ``fields``, which combines several. Shared
parts are ``exact`` (sums without rounding), ``selector`` and ``accumulator_codecs``. The protocol ``Aggregate`` is in
``aflow.state.aggregate``. Read ``numbers`` first.
"""
