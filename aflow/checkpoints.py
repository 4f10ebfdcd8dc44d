"""Settings, results and storage of checkpoints. Reached as ``aflow.checkpoints``.

``CheckpointStorage`` is the contract of a storage of your own, with the optional parts ``StepReader`` and
``LocationReader``. ``DirectoryStorage`` is the storage in a folder, and ``BucketStorage`` that in an object store, for
which a connector implements ``CheckpointBucket``. The classes from ``FileRef`` to ``SubtaskState``
are the data that a storage keeps. Check yours by ``aflow.testing.check_storage``.
"""

from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.bucket.objects import (
    BucketError,
    CheckpointBucket,
    NoObject,
    ObjectInfo,
    Refused,
    Version,
)
from aflow.runtime.checkpoints.bucket.storage import BucketStorage
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.settings import Aligned, ProcessingGuarantee, Unaligned
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome, SubtaskCheckpoint
from aflow.runtime.checkpoints.storage import (
    CheckpointStorage,
    LocationReader,
    Restored,
    StepReader,
)
from aflow.runtime.recovery import StartFrom
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState
from aflow.state.snapshot import OperatorSnapshot

__all__ = [
    "Aligned",
    "BucketError",
    "BucketStorage",
    "CheckpointBucket",
    "CheckpointInfo",
    "CheckpointKind",
    "CheckpointStorage",
    "DirectoryStorage",
    "FileRef",
    "KeyGroupRange",
    "Link",
    "LocationReader",
    "Manifest",
    "NoObject",
    "ObjectInfo",
    "OperatorSnapshot",
    "Outcome",
    "ProcessingGuarantee",
    "Refused",
    "Restored",
    "StartFrom",
    "StepReader",
    "StepState",
    "SubtaskCheckpoint",
    "SubtaskState",
    "Unaligned",
    "Version",
]
