"""Types that the methods of ``Stream``, ``KeyedStream`` and ``Job`` return, for annotations.

Reached as ``aflow.streams``.
"""

from aflow.api.connected import BroadcastConnectedStreams, ConnectedStreams, JoinResults
from aflow.api.joins import AsOfJoinedStreams, JoinedStreams
from aflow.api.windowed import WindowResults
from aflow.runtime.builtin_connectors import Results

__all__ = [
    "AsOfJoinedStreams",
    "BroadcastConnectedStreams",
    "ConnectedStreams",
    "JoinResults",
    "JoinedStreams",
    "Results",
    "WindowResults",
]
