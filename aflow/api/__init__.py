"""The fluent API: ``Flow``, its streams, and the windows and joins that their methods take.

Each method checks its arguments, adds a node to the ``FlowGraph`` and returns the next stream; nothing runs here.
Operators are in ``aflow.operators``, plans in ``aflow.graph``, options of jobs and calls in ``aflow.runtime``.
Names for users are exported by ``aflow``. Read ``stream.py`` first, then ``keyed.py`` and ``windowed.py``.
"""
