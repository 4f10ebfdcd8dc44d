"""Which records windows drop when they fire: what ``window(…, evictor=…)`` takes. Reached as ``aflow.evictors``."""

from aflow.machines.windows.evictor import Element, Evictor, EvictorContext
from aflow.machines.windows.evictors import Count, Delta, Time

__all__ = ["Count", "Delta", "Element", "Evictor", "EvictorContext", "Time"]
