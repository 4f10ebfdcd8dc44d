"""Joins of two keyed streams. Read ``join`` first, the base of joins, then one of:

- ``interval``: pairs of records whose timestamps differ by no more than an interval;
- ``as_of``: each left record with the version valid at its time, which ``versions`` keeps;
- ``co_group``: the records of both inputs in the same window, as lists or as pairs.

``columns`` holds the records of a key in interval and as-of joins.

Not here: the operators of windows (``aflow.operators.windows``), and joins with asynchronous lookups
(``aflow.operators.calls``).
"""
