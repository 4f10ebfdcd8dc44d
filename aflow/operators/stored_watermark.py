"""How far event time has come, in snapshots: so that a restored step does not fire again what has fired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.state.snapshot import OperatorSnapshot

_WATERMARK: Final = "@watermark"


def stored_watermark(watermark: Timestamp) -> Mapping[str, tuple[bytes, ...]]:
    """Operator state that holds ``watermark``."""
    return {_WATERMARK: (PLAIN.encode(watermark),)}


def restored_watermark(snapshot: OperatorSnapshot, before: Timestamp) -> Timestamp:
    """Where the slowest of the former subtasks was; ``before`` if the snapshot does not know."""
    known = [PLAIN.decode(data) for data in snapshot.operator.get(_WATERMARK, ())]
    return min((at for at in known if isinstance(at, int)), default=before)
