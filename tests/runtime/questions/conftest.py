"""Fixtures of tests that ask jobs."""

from tests.inline_threads import inline_threads

__all__ = ["inline_threads"]
