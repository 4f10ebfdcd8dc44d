"""``python -m aflow`` is the ``aflow`` command."""

from aflow.cli import main

main(prog_name="aflow")
