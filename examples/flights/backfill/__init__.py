"""One pipeline over history on Spark and then live, compared with the same pipeline live over everything.

Read ``pipeline`` first: it does not depend on where it runs. ``hours``, ``storm_hours``, ``stretches`` and ``silence``
(with ``registry``) are its parts. ``command`` runs the three computations, on Spark (``history``) and live (``live``),
over the Parquet files of ``tables``; ``comparison`` and ``report`` compare them. In place of the backfill, ``stream``
runs the pipeline on Spark over ``arriving_files``.
"""
