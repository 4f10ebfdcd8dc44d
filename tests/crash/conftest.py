"""Fixtures of tests with crashes."""

from tests.inline_threads import inline_threads

__all__ = ["inline_threads"]
