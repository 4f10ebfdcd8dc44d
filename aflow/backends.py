"""Backends of keyed state, for ``Options(state=…)``: in memory or on disk. Reached as ``aflow.backends``."""

from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk

__all__ = ["DiskEngine", "InMemory", "OnDisk"]
