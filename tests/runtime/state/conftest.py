"""Fixtures of tests with checkpoints."""

from tests.inline_threads import inline_threads

__all__ = ["inline_threads"]
