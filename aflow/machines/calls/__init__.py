"""The machines of async calls: pure decisions, without asyncio, clock or output.

``scheduler.py`` is the one to read first: it is composed of the others. ``queues.py`` keeps the order of results,
``attempts.py`` (with ``ready.py``, ``groups.py``, ``deadlines.py`` and ``retry.py``) starts and retries calls,
``cache.py`` shares results, ``limits.py`` (with ``rate.py``, ``breaker.py``,
``limiter.py``, ``adaptive.py``, ``adaptive_limiter.py`` and ``user_limiter.py``) admits
calls, ``on_error.py`` has the error policies and ``settings.py`` all settings of a step.

Not here: the operator (``aflow/operators/calls``) and the coroutines that make calls (``aflow/runtime/calls``).
"""
