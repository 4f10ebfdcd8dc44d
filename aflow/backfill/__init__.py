"""A flow over history, split at its keyed exchanges into fragments that an engine such as Spark runs.

Read ``fragments.py`` first, then ``fragment_planner.py`` (fragments of a flow), ``fragment_run.py`` (one fragment over
one partition) and ``savepoint.py`` (the state that is left for the live job). Nothing here depends on Spark or Arrow:
an engine (``aflow_connectors.spark``; a loop over lists in the tests) moves rows between fragments.
"""
