"""The backend for state larger than memory: some keys are in memory, the others in a local database.

``backend`` is the backend, ``residents`` the keys in memory, ``buckets`` the format of the database, ``expiry_index``
its index of rows with a time to live. ``timers`` has the timers of keys, ``window_timers`` those of windows, both with
the far ones in a ``timer_database``. ``ranged_rows`` and ``row_places`` have the rows of windows, ``sliced_records``
and ``record_queue`` the records of joins. ``stored_keys`` has the bytes of keys for all of them. ``stored_rows`` and
``away_rows`` read captured rows, ``snapshot_loader`` writes restored ones. ``store`` is the protocol of databases,
which ``sqlite`` and ``rocksdb`` implement, in a folder of ``scratch``. Cells, tables and captures of keys in memory are
in ``aflow.state``. Read ``backend`` first.
"""
