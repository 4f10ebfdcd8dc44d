"""The part of ``AsyncOperator`` for async handlers with state and timers for each key.

Read ``keyed_handlers.py`` first. ``epochs.py`` is the queue of results, ``key_queues.py`` selects the next handler of
each key, ``timers.py`` holds the timers, and ``stored.py`` encodes running handlers in snapshots.
"""
