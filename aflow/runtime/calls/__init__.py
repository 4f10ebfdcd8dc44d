"""Async calls on the event loop.

``slots.py`` is the one to read first: the coroutines that make the calls of a step. ``options.py`` and ``checks.py``
check what users pass to ``map_async`` and others, ``resources.py`` opens their resources, and ``watchdog.py`` (with
``overdue.py``, ``stacks.py`` and ``reports.py``) reports what blocks the loop.

Not here: decisions about calls (``aflow/machines/calls``) and the operator (``aflow/operators/calls``).
"""
