"""Windows that are needed less often, and the base of window assigners of your own. Reached as ``aflow.windows``."""

from aflow.api.windows import DynamicSession
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.stagger import WindowStagger
from aflow.model.windows import GLOBAL_WINDOW

__all__ = ["GLOBAL_WINDOW", "DynamicSession", "WindowAssigner", "WindowStagger"]
