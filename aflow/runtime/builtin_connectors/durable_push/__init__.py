"""A push source that keeps its records in a log: ``source`` is the public class, ``reader`` the reader of its records.

``open_log`` is the log as the event loop sees it: accepted records, ids, the size limit. ``tail`` holds the newest
records for the reader, so that a job that keeps up does not read files. ``acknowledgements`` are the waits for
checkpoints, ``arguments`` checks what users pass.
"""
