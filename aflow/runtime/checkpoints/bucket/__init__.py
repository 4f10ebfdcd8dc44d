"""Checkpoint storage in a bucket of an object store. Read ``register`` first, then ``storage``.

``objects`` is the interface to the object store, which a connector implements. Parts and manifests are as in a
folder.
"""
