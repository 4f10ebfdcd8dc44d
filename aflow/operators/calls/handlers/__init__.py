"""The step with async handlers, state and timers for each key.

``operator.py`` is the one to read first. ``epochs.py`` is its queue of results, ``key_queues.py`` decides which handler
of a key is next, ``timers.py`` keeps the timers and ``stored.py`` the snapshots of running handlers.
"""
