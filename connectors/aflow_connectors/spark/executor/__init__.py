"""Python worker processes of Spark: how functions reach them, and the event loop on which coroutines run there.

Read ``bridge.py`` first: it runs a coroutine over the batches of a Spark task. ``event_loop.py`` keeps one loop per
process, ``resource_pool.py`` keeps resources open, ``functions.py`` and ``serialization.py`` send code.
"""
