"""Captures that are collected in pieces however few rows they have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from aflow.state import gradual_capture


@contextmanager
def gradual_captures(piece: int = 1) -> Generator[None]:
    """Collect all captures in pieces of ``piece`` rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradual_capture, "MANY", 1)
        patch.setattr(gradual_capture, "_PIECE", piece)
        yield
