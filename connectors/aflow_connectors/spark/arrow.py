"""pyarrow as modules that run in executors see it. It has no types that a checker can use, so it is Any."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

pa: Final[Any] = import_module("pyarrow")
