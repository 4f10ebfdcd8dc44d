"""Machines of windows: decisions without state of keys. Read ``assigners`` and ``trigger`` first.

- ``assigners``, ``stagger``: the windows of a record;
- ``merging_window_set``: the windows of a key where windows merge, and their state windows;
- ``trigger``, ``triggers``: the contract of triggers, and those that aflow has;
- ``evictors``: the contract of evictors, and those that aflow has;
- ``window_timers``: timers by window and key.

Not here: contents and results of windows, which the operators keep (``aflow.operators.windows``).
"""
