"""What is collected while scenarios run, for the summary at the end."""

from __future__ import annotations

from typing import Final

import pytest

#: Implied facts that do not hold: questions, not failures.
IMPLIED: Final = pytest.StashKey[list[str]]()
