"""The distribution that installs aflow. It is not named like the package: `aflow` on PyPI is an unrelated project.

``pyproject.toml`` takes the version from this module and must use the same name. Messages about missing packages are
made here.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "aflow-streams"

VERSION: Final = "0.1.0"


def with_extras(*extras: str) -> str:
    """Return the requirement of the distribution with ``extras``: ``aflow-streams[spark]``."""
    return f"{NAME}[{','.join(extras)}]"


def install_command(*extras: str) -> str:
    """Return the command that installs ``extras``: ``pip install "aflow-streams[spark]"``."""
    return f'pip install "{with_extras(*extras)}"'
