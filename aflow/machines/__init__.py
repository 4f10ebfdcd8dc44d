"""Pure machines: the difficult decisions of the engine, without asyncio, clocks, logging or callbacks.

A machine takes facts and the time, and returns instructions or results. The control plane (``barriers``,
``checkpoints``, ``restart``, ``calls/breaker``) has ``handle(event, now)``; the data plane (``watermarks``,
``timer_queue``, ``mail_order``, ``windows``, ``calls``) has plain methods, since it runs for each record or batch.

Not in here: state of users (``state``), steps (``operators``), everything that waits (``runtime``). Read
``mail_order`` first, then ``barriers``.
"""
