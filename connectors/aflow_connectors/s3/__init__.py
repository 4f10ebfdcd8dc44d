"""Object storage: checkpoints and savepoints in a bucket.

::

    from aflow_connectors.s3 import ObjectStorage

    checkpoints = af.Checkpointing(storage=ObjectStorage("s3://state/card-totals"))

Read ``register.py`` first for checkpoints. The client is ``obstore``.
"""

from __future__ import annotations

from aflow_connectors.s3.storage import ObjectStorage

__all__ = ["ObjectStorage"]
