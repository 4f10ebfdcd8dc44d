"""How far event time has come, in snapshots: so that a restored step does not fire again what has fired.

The end of time is not stored. It comes with the end of the input (or a drain), when everything has fired and nothing is
left; if the job goes on some day with new input, that is not late because an earlier run has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aflow.model.codecs import PLAIN
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.state.snapshot import OperatorSnapshot

_WATERMARK: Final = "@watermark"


def stored_watermark(
    watermark: Timestamp, *, outlived: bool = False
) -> Mapping[str, tuple[bytes, ...]]:
    """Operator state that holds ``watermark``, unless it is the end of time, which nothing has ``outlived``."""
    if watermark == MAX_TIMESTAMP and not outlived:
        return {}
    return {_WATERMARK: (PLAIN.encode(watermark),)}


def restored_watermark(snapshot: OperatorSnapshot, before: Timestamp) -> Timestamp:
    """Where the slowest of the former subtasks was; ``before`` if the snapshot does not know."""
    known = [PLAIN.decode(data) for data in snapshot.operator.get(_WATERMARK, ())]
    return min((at for at in known if isinstance(at, int)), default=before)
