"""The pyarrow module, for modules that run on executors. Typed as Any: pyarrow has no type stubs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

pa: Final[Any] = import_module("pyarrow")
