"""The ``aflow`` command. It owns its process: event loop, signals and terminal are its own, and nobody else's."""

from aflow.cli.commands import main

__all__ = ["main"]
