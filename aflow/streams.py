"""Types of streams and builders that the methods of ``Stream`` and ``KeyedStream`` return, for annotations.

Reached as ``aflow.streams``.
"""

from aflow.api.connected import BroadcastConnectedStreams, ConnectedStreams, JoinResults
from aflow.api.joins import AsOfJoinedStreams, JoinedStreams
from aflow.api.windowed import WindowResults

__all__ = [
    "AsOfJoinedStreams",
    "BroadcastConnectedStreams",
    "ConnectedStreams",
    "JoinResults",
    "JoinedStreams",
    "WindowResults",
]
