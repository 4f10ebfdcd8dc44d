"""Chromium for screenshots and for the tests of the page."""

from __future__ import annotations

from typing import Final

#: Names of the program, as in scripts/have-chromium.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")

#: No sandbox, since tests may run as root or in a container, and no traffic of the browser's own.
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
