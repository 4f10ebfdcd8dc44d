"""Steps that call an async function for each record.

``operator.py`` is the one to read first: it connects the ``CallScheduler`` to records, watermarks, emission and
snapshots. ``handlers/`` is its part for handlers with state and timers for each key, and ``async_process.py`` the class
that users subclass for it.

Not here: decisions about calls (``aflow/machines/calls``) and the coroutines that make them (``aflow/runtime/calls``).
"""
