"""Complete captures that are collected in pieces however few rows they have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from aflow.operators.windows import incremental_windows
from aflow.state import gradual_capture, memory


@contextmanager
def gradual_captures(piece: int = 1) -> Generator[None]:
    """Collect all complete captures in pieces of ``piece`` rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "MANY", 1)
        patch.setattr(incremental_windows, "MANY", 1)
        patch.setattr(gradual_capture, "_PIECE", piece)
        yield
