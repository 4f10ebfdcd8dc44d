"""``ObjectStorage``: checkpoints in a bucket, by obstore."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from aflow.checkpoints import BucketStorage
from aflow_connectors.s3.bucket import Bucket


class ObjectStorage(BucketStorage):
    """Stores the checkpoints of one flow in a bucket, below ``url``, as ``s3://bucket/prefix``; see ``BucketStorage``.

    ``client`` are settings of obstore for this URL (``endpoint``, ``region``, ``access_key_id`` and so on); without
    them those of the environment apply. ``store`` is a store of obstore for the bucket to use instead. Raises
    ``FlowDefinitionError`` for invalid arguments.
    """

    def __init__(
        self,
        url: str,
        *,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
        lease: timedelta = timedelta(seconds=15),
    ) -> None:
        super().__init__(Bucket("ObjectStorage", url, client=client, store=store), lease=lease)
