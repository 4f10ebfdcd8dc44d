"""Checkpoint storage in a folder of a file system. Read ``storage`` first.

``storage`` implements ``CheckpointStorage``, ``session`` holds the lock, ``reader`` and ``savepoints`` read and rewrite
parts, ``files`` is the interface to the file system. The format of manifests and parts is in ``aflow.state``.
"""
