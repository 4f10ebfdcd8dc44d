"""A flow over history: cut at its keyed exchanges into fragments, which run where the history is.

Knows neither Spark nor Arrow: whoever has executors (``aflow_connectors.spark``; a loop over lists in the tests) moves
rows between fragments, and these modules say which fragments there are, run one, and make a savepoint of what is left.
"""
