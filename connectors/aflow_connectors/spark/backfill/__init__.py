"""A backfill: a flow over history on Spark, its results, and the savepoint from which its live job starts.

``api.py`` has the public functions; read it first, then ``driver.py``. ``preparation.py`` checks the arguments,
``fragment_runner.py`` runs each fragment as a Spark job, ``fragment_task.py`` runs on executors, and
``destinations.py`` writes results. The plan of fragments and the savepoint, which do not depend on Spark, are in
``aflow.backfill``.
"""
