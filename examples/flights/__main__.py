"""``python -m flights``."""

from flights.commands import main

main(prog_name="python -m flights")
