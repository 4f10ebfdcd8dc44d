"""Evictors, which remove records from windows that fire: ``window(…, evictor=…)``. Reached as ``aflow.evictors``."""

from aflow.machines.windows.evictor import Element, Evictor, EvictorContext
from aflow.machines.windows.evictors import Count, Delta, Time

__all__ = ["Count", "Delta", "Element", "Evictor", "EvictorContext", "Time"]
