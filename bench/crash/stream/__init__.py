"""A stream on Spark whose processes are killed writes what one without kills writes, and leaves the same state.

``proof`` is the command ``python -m bench crash --only stream``; read it first. ``rounds`` starts and kills the driver
until it ends, ``attempts`` is one start, ``moments`` are the times of kills. ``gateway`` is the JVM of a driver,
``drivers`` starts its Python, ``program`` and ``pipeline`` are what runs. ``faults`` are those of tasks, applied by
``faulty_worker``, and ``cluster`` has executors that can be killed. ``results`` compares.
"""
