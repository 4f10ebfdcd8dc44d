"""The ``aflow`` command. It owns its process: event loop, signals and terminal are its own, and nobody else's."""

from aflow.cli.commands import main
from aflow.cli.savepoint import savepoint

main.add_command(savepoint)

__all__ = ["main"]
