"""Settings, results and storage of checkpoints. Reached as ``aflow.checkpoints``.

``CheckpointStorage`` is the contract of a storage of your own, with the optional parts ``StepReader`` and
``SavepointReader``, and ``DirectoryStorage`` the storage in a folder. The classes from ``FileRef`` to ``SubtaskState``
are the data that a storage keeps. Check yours by ``aflow.testing.check_storage``.
"""

from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.settings import Aligned, ProcessingGuarantee, Unaligned
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome, SubtaskCheckpoint
from aflow.runtime.checkpoints.storage import (
    CheckpointStorage,
    Restored,
    SavepointReader,
    StepReader,
)
from aflow.runtime.recovery import StartFrom
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState
from aflow.state.snapshot import OperatorSnapshot

__all__ = [
    "Aligned",
    "CheckpointInfo",
    "CheckpointKind",
    "CheckpointStorage",
    "DirectoryStorage",
    "FileRef",
    "KeyGroupRange",
    "Link",
    "Manifest",
    "OperatorSnapshot",
    "Outcome",
    "ProcessingGuarantee",
    "Restored",
    "SavepointReader",
    "StartFrom",
    "StepReader",
    "StepState",
    "SubtaskCheckpoint",
    "SubtaskState",
    "Unaligned",
]
