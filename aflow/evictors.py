"""Evictors, which remove records from windows that fire: ``window(…, evictor=…)``. Reached as ``aflow.evictors``."""

from aflow.machines.windows.evictors import Count, Delta, Element, Evictor, EvictorContext, Time

__all__ = ["Count", "Delta", "Element", "Evictor", "EvictorContext", "Time"]
