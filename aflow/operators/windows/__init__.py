"""Operators of windows. Read ``logic`` first, the definition of a window step, then ``factory``, which chooses its
operator.

``window_operator`` handles every assigner, trigger, evictor and function. Its parts:

- ``separate_windows`` and ``merging_windows``: the windows of a subtask, for windows that do not merge and that do;
- ``key_window_set``, ``disk_windows``: the windows of a key that merge, and the rows of windows on disk;
- ``window_contents``: the records or the accumulator of a key in a window, with ``arrival_order`` where windows merge;
- ``function``, ``contexts``, ``window_state``: window functions, and the contexts and state of functions and triggers;
- ``lateness``: when a window is late or cleaned up;
- ``staggers``: shifted tumbling windows;
- ``window_snapshots``: snapshots of windows and timers.

Steps that fold records and fire at the end of the window in event time have faster operators: ``panes`` with
``two_stacks`` (tumbling and sliding windows) and ``sessions``. ``incremental_windows`` is their base.

Not here: assigners, triggers and evictors (``aflow.machines.windows``), and joins (``aflow.operators.joins``).
"""
