"""A file that the readers of this package can read: a ``Path``, or an object of a bucket."""

from __future__ import annotations

from io import BufferedReader
from typing import Literal, Protocol


class InputFile(Protocol):
    """``str`` names the file in messages. A ``pathlib.Path`` is one."""

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        ...

    def open(self, mode: Literal["rb"], /) -> BufferedReader:
        """Open the file; blocks. Raises ``OSError``."""
        ...
