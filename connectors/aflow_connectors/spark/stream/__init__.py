"""A stream: a flow over the micro-batches of Spark Structured Streaming, exactly once.

``api.py`` has the public function; read it first, then ``query.py`` and ``epochs.py``. ``preparation.py`` checks the
arguments, ``epochs.py`` runs an epoch and commits it, ``epoch_task.py`` runs on executors, and ``destinations.py``
writes results. The fragments run as those of a backfill do. Watermarks and the store of epochs, which do not depend on
Spark, are in ``aflow.backfill``.
"""
