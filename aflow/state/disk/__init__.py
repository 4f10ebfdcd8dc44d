"""The backend for state larger than memory: some keys are in memory, the others in a local database.

``backend`` is the backend, ``residents`` the keys in memory, ``buckets`` the format of the database, ``expiry_index``
its index of rows with a time to live, ``timers`` the timers. ``stored_rows`` reads captured rows, ``snapshot_loader``
writes restored ones. ``store`` is the protocol of databases, which ``sqlite`` and ``rocksdb`` implement, in a folder of
``scratch``. Cells, tables and captures of keys in memory are in ``aflow.state``. Read ``backend`` first.
"""
